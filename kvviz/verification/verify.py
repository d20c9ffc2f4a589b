"""Predicted beside observed: a policy's prediction of a runtime's allocations, and the actual ones.

The graph is run dry in its recorded order. Recorded shapes replace kernels that are not known here.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from kvviz.decode.run_sessions import SingleRun
from kvviz.decode.synthetic_inputs import generated
from kvviz.engine.binding import check_inputs
from kvviz.engine.policy import Policy
from kvviz.engine.recorded_answers import Key
from kvviz.errors import InputError
from kvviz.graph.model import Graph, Node, graphs_of
from kvviz.memory.ghosts import ghost
from kvviz.other_names import with_other_names
from kvviz.runtimes.ort.known_types import know_blocks, known
from kvviz.runtimes.ort.ort_policy import VERSION, onnxruntime
from kvviz.runtimes.schedules import Picks
from kvviz.trace.model_or_trace import as_graph, as_inputs
from kvviz.trace.recording import Trace
from kvviz.trace.schema.declared import Mark, Timing
from kvviz.verification.matching import ProfileAnswers, Ran, changes, matched, unique_name
from kvviz.verification.rten_recording import read_recording, verify_recording
from kvviz.verification.session_record import ARENA, SessionRecord, observe, read_profile, read_statistics
from kvviz.verification.verified import Verification, VerifiedOp, verified_op

Path = str | os.PathLike[str]


@with_other_names
def verify(
    model: Graph | Path,
    inputs: Mapping[str, Any] | None = None,
    options: Any = None,
    profile: Path | None = None,
    record: Path | None = None,
) -> Verification:
    """Run a model in the installed onnxruntime, and compare its allocations with the policy's prediction.

    Parameters
    ----------
    model : path or Graph
        A model that onnxruntime can run here.
    inputs : mapping of str to array_like, optional
        By name; missing ones are made as by `kvviz.inputs`.
    options : onnxruntime.SessionOptions, optional
        Options of the session; by default all optimisations. Options that make the session
        report on itself is added to them. With ``profile``, those of the session that wrote it.
    profile : path, optional
        A profile (``SessionOptions.enable_profiling``) of a run elsewhere; nothing is run here then. ``model`` is the
        graph that ran: the optimised one, or the model itself where optimisation was off.
    record : path, optional
        With ``profile``, the statistics of the same run (``session.collect_node_memory_stats_to_file``), without which
        nothing is counted. Alone, a recording of rten (``.jsonl``, ``.jsonl.gz``).

    Returns
    -------
    Verification

    Raises
    ------
    KvvizError
        Without onnxruntime, if it refuses the model, or if a record is of another model.

    Examples
    --------
    >>> found = kvviz.verify("model.onnx")                                                  # doctest: +SKIP
    >>> found.agree, found.total                                                            # doctest: +SKIP
    (1342, 1342)
    """
    graph, given = as_graph(model, "kvviz.verify"), as_inputs(inputs)
    if record is not None and profile is None:
        return verify_recording(graph, read_recording(record), given)
    if profile is not None:
        statistics = None if record is None else read_statistics(record)
        return compared(SessionRecord(graph, read_profile(profile, last=True), statistics, options=options), given)
    feeds = check_inputs(graph, generated(graph, {}, given))
    return compared(observe(graph, partial(run_session, feeds), options), feeds, graph)


def run_session(feeds: Mapping[str, Any], session: Any) -> None:
    names = (one.name for one in session.get_inputs())
    session.run(None, {name: np.asarray(feeds[name]) for name in names if name in feeds})


def compared(record: SessionRecord, feeds: Mapping[str, Any], model: Graph | None = None) -> Verification:
    """A session's record beside the prediction for its graph, in its order. ``feeds``: inputs of the run; the record
    has the shapes of missing ones. ``model``: the session's original model, to find what its optimiser changed."""
    graph = record.graph
    runs, missing, policy, answers = replay(record)
    if not record.version and missing:
        raise InputError(
            f"the profile is of another graph than {graph.name!r}, which has no node {missing[0]!r}: pass the "
            "optimised model that the session wrote (SessionOptions.optimized_model_filepath)"
        )
    trace = SingleRun(graph, _recorded_inputs(graph, runs, feeds), policy=policy, dry=answers).run_to_end()
    trace.title = f"{graph.name}, as onnxruntime runs it"
    rows, unknown, doubts = _rows(record, runs, trace)
    if not rows:
        raise InputError(f"the statistics are of another graph than {graph.name!r}: they have none of its nodes")
    what = changes(model, graph, trace) if model is not None else ()
    return Verification(
        tuple(rows), trace, "onnxruntime", record.version, (*notes_of(record), *doubts), (*unknown, *missing), what
    )


def replay(record: SessionRecord) -> tuple[list[Ran], list[str], Policy, ProfileAnswers]:
    """The parts of a dry run of a session's graph: the nodes that ran, those that are not found, the policy with the
    session's order and options, and the recorded results of nodes."""
    graph = record.graph
    if blocks := [run.outputs[0] for run in record.runs if run.op_type == "ReorderInput"]:
        know_blocks(graph, 16 if all(block is None or block[0][1] % 16 == 0 for block in blocks) else 8)
    runs, missing = matched(graph, record.runs)
    order = Picks(tuple(dict.fromkeys((path, node.index) for path, node, _ in runs)))
    return runs, missing, replace(record.policy, schedule=order), ProfileAnswers(graph, runs)


def _recorded_inputs(graph: Graph, runs: Sequence[Ran], feeds: Mapping[str, Any]) -> dict[str, Any]:
    """The given inputs, others without contents in the shapes of their readers' inputs, and the rest made to fit."""
    wanted = {value.name for value in graph.inputs}
    found = {name: value for name, value in feeds.items() if name in wanted}
    for _, node, run in runs:
        names = [name for name in node.inputs if name]
        # A weight that was packed is missing in the profile.
        for name, layout in zip(names, run.inputs if len(names) == len(run.inputs) else ()):
            if layout is not None and name in wanted and name not in found:
                found[name] = ghost(*layout)
    return found if wanted == {*found} else generated(graph, {}, found)


def _rows(record: SessionRecord, runs: Sequence[Ran], trace: Trace) -> tuple[list[VerifiedOp], list[str], list[str]]:
    """A row for each node that ran, those that differ first, then by time; the nodes without a report; and problems of
    the record."""
    graphs = {part.path: part for part in graphs_of(record.graph)}
    steps, times, new = timed_steps(trace, runs), trace.log.declared.times, _new_outputs(trace)
    ran = dict.fromkeys((path, node.name) for path, node, _ in runs)
    # Nodes that no output needs run there and not here.
    rows, unknown = [], [name for path, name in ran if (path, name) not in steps]
    # Casts that change nothing are removed from the session, whatever its level.
    casts = (trace.log[at[0]].op.node for key, at in steps.items() if key not in ran)
    removed = {node.outputs[0]: node.inputs[0] for node in casts if node.op_type == "Cast"}
    absent, left = 0, {*(record.allocated or ())}
    for key, at in steps.items():
        graph, node = graphs[key[0]], trace.log[at[0]].op.node
        if node.outputs[0] in removed:
            continue
        absent += key not in ran
        name = unique_name(graph, node, removed)
        observed = None if record.allocated is None else record.allocated.get(name)
        left.discard(name)
        if observed is None and record.allocated is not None:
            unknown.append(node.name)
            continue
        # The statistics keep the maximum over all runs of a node.
        most = max((new[place] for place in at), key=sum)
        agrees = observed is None or observed == sum(-(-nbytes // ARENA) * ARENA for nbytes in most)
        cause = "" if agrees else _cause(graph, node, sum(most), observed or 0)
        took = sum(times[place].end - times[place].start for place in at if place in times)
        row = verified_op(trace, at, sum(most), observed, cause, took)
        if not agrees:
            when = times[at[0]].end if at[0] in times else 0.0
            mark = Mark(at[0], when, "differs", node.name, -1, nbytes=observed or 0, text=str(row))
            trace.log.declared.marks.append(mark)
        rows.append(row)
    rows.sort(key=lambda row: (row.agrees, -row.microseconds))
    doubts = [f"{absent:,} nodes are not in the profile, which may be cut: their order is a guess"] if absent else []
    if left and not record.version:
        doubts.append(f"{len(left):,} rows of the statistics are of no node of this graph: they may be of another run")
    return rows, unknown, doubts


def timed_steps(trace: Trace, runs: Sequence[Ran]) -> dict[Key, list[int]]:
    """The steps of each node; each step gets its time in the session, on a lane of its own."""
    left = defaultdict(list)
    for path, node, run in reversed(runs):
        left[path, node.name].append(run)
    origin = min((run.start for *_, run in runs), default=0.0)
    steps: dict[Key, list[int]] = defaultdict(list)
    for step, row in enumerate(trace.log):
        key = trace.log.frames[row.frame].program.graph.path, row.op.node.name
        steps[key].append(step)
        if left[key]:
            run = left[key].pop()
            start = run.start - origin
            trace.log.declared.times[step] = Timing("onnxruntime", start, start + run.microseconds)
    return steps


def _new_outputs(trace: Trace) -> list[list[int]]:
    """Bytes of each new output of each step, as onnxruntime counts them: for an If what its branch makes for it, or
    copies for it from a weight. A name counts once in a run: not again in the next iteration, in another body, or for
    an If whose branch reads it."""
    found: list[list[int]] = []
    counted: set[str] = set()
    handed: dict[tuple[int, str], list[tuple[str, int]]] = defaultdict(list)
    weights: set[tuple[int, str]] = set()
    for frame in trace.log.frames:
        if frame.parent is not None and frame.caller is not None and frame.caller.control == "If":
            body, outside = frame.program.graph, frame.caller.node.outputs
            weights |= {
                (frame.parent, name) for value, name in zip(body.outputs, outside) if value.name in body.weights
            }
    for row, step in zip(trace.log, trace.steps):
        frame = trace.log.frames[row.frame]
        counted.update(row.op.node.inputs)
        if row.op.control == "If":
            made = handed.pop((row.frame, row.op.node.name), [])
            made += [(out.name, out.nbytes) for out in step.outs if (row.frame, out.name) in weights]
        else:
            made = [(out.name, out.nbytes) for out in step.outs if out.how in ("new", "passed")]
        body, caller, outer = frame.program.graph, frame.caller, {}
        if caller is not None and frame.parent is not None and caller.control in ("If", "Scan"):
            outer = dict(zip((value.name for value in body.outputs), caller.node.outputs))
            handed[frame.parent, caller.node.name] += [(outer[name], nbytes) for name, nbytes in made if name in outer]
        here = [(name, nbytes) for name, nbytes in made if name not in outer]
        found.append([0 if name in counted else nbytes for name, nbytes in here])
        counted.update(name for name, _ in here)
    return found


def _cause(graph: Graph, node: Node, predicted: int, observed: int) -> str:
    types = known(graph).types
    for name in (*node.outputs, *node.inputs):
        value = types.get(name)
        if name and name not in graph.weights and (value is None or value.shape is None or None in value.shape):
            return (
                f"the size of {name!r} is not known before the run by the rules here; onnxruntime may infer it, and "
                "then dead buffers of that size serve several values"
            )
    if predicted and observed:
        return "both allocate, but not the same size: the session has it in another type or shape"
    if predicted:
        return "the session gave it a buffer of another value, in place or a dead one of its size"
    return "the session did not take over the buffer that the plan gives it"


def notes_of(record: SessionRecord) -> tuple[str, ...]:
    found, minor = [], ".".join(VERSION.split(".")[:2])
    if not record.version:
        found.append(
            f"the profile does not say which onnxruntime wrote it, and with which options: the rules are those of "
            f"{VERSION}, the options those that are given here"
        )
    elif not record.version.startswith(f"{minor}."):
        # On 1.23.2, 1.26.0 and 1.29.0 they held for 15,593 of 15,629 nodes of 25 models.
        found.append(
            f"the rules are those of onnxruntime {VERSION}; from 1.23 on they hold for all but "
            "SkipSimplifiedLayerNormalization, which made no mean and no deviation before 1.31"
        )
    if record.policy is not onnxruntime:
        found.append(f"the options of the session count: predicted under the policy {record.policy.name!r}")
    if record.allocated is None:
        found.append("no allocations were recorded, so nothing is compared: give the statistics of the run as record")
    return tuple(found)
