"""Putting values into a recording: its runs are repeated once, each value is looked at as it is made, and let go.

This is done when somebody asks, never while a graph runs: what is not asked for costs nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kvviz.caches.cache_heat import Source, known_of, row_of, sources
from kvviz.caches.control_values import Known
from kvviz.engine.execution import Execution
from kvviz.engine.recorder import Recorder
from kvviz.engine.replay import Replayer, is_random, may_be_random, never, repeat
from kvviz.engine.weights import Weights
from kvviz.errors import KvvizError, ReplayError
from kvviz.graph.cache_pairs import logits_output
from kvviz.trace.element_types import nbytes
from kvviz.trace.events import VIEW
from kvviz.trace.frame_values import RunFrames
from kvviz.trace.value_numbers import axes_of, has_numbers
from kvviz.trace.value_plan import Seen, as_bytes, plan
from kvviz.trace.value_summaries import Collector, Counted, Key
from kvviz.trace.values_view import Values

if TYPE_CHECKING:
    from kvviz.trace.recording import Trace


class Weighed(NamedTuple):
    """Rows of attention that one value shows: of these caches, in a run."""

    source: Source
    known: Known
    caches: list[int]
    run: int
    cells: int


def summarise(trace: Trace, budget: int | str) -> Values | None:
    """Put summaries of the values of a trace into it; see `Trace.summarise`."""
    limit = as_bytes(budget)
    if not limit:
        trace.value_summaries = None
        return None
    if trace.replayer is None:
        raise ReplayError("there are no values to look at: this trace was loaded from a file")
    if not len(trace.log):
        raise ReplayError("there are no values to look at: no step was recorded")
    seen = list(_seen(trace))
    weighed = list(_weighed(trace))
    # What a cache shares with the one before it costs a row of the table, and no cells.
    costs = [one.cells if i == 0 else 0 for one in weighed for i in range(len(one.caches))]
    chosen = plan(seen, costs, limit)
    rows: dict[Key, list[Weighed]] = defaultdict(list)
    left = chosen.attention
    for one in weighed:
        kept = one.caches[: max(left, 0)]
        left -= len(one.caches)
        if kept:
            rows[one.source.step, one.source.output].append(one._replace(caches=kept))
    collector = Collector(chosen)
    steps, missing = 0, ""
    try:
        for at, values in _values(trace):
            for slot, value in values:
                collector.add(at, slot, value)
                for one in rows.get((at, slot), ()):
                    _attend(trace, collector, one, value)
            steps += at >= 0
    except _Stopped as stopped:
        missing = str(stopped)
    pictures = sum(axes_of(one.shape) is not None for one in seen)
    counted = Counted(len(seen), pictures, len(costs), steps)
    trace.value_summaries = collector.done(limit, counted, missing)
    return trace.values


class _Stopped(Exception):
    """Why later values cannot be looked at."""


def _seen(trace: Trace) -> Iterator[Seen]:
    """All values that could be kept; caches and logits come first, views, which repeat what is elsewhere, last."""
    first = {cache.output for cache in trace.caches}
    with suppress(KvvizError):  # no decoder
        first.add(logits_output(trace.graph) or "")
    frames = trace.log.frames
    for step, row in enumerate(trace.log):
        outermost = frames[row.frame].parent is None
        for slot, (name, out) in enumerate(zip(row.op.node.outputs, row.outs)):
            if out is not None and out.shape is not None and has_numbers(out.shape, out.dtype):
                rank = 0 if outermost and name in first else 2 if out.how == VIEW else 1
                yield Seen(step, slot, rank, nbytes(out.shape, out.dtype), out.shape)
    for run, frame in _mains(trace):
        entry = trace.replayer.runs[run]
        for slot, bind in enumerate(frame.bindings):
            if bind.how == "weight" or bind.shape is None or entry is None or bind.name in entry.carried:
                continue
            if has_numbers(bind.shape, bind.dtype):
                yield Seen(-1 - run, slot, 1, nbytes(bind.shape, bind.dtype), bind.shape)


def _mains(trace: Trace) -> Iterator[tuple[int, Any]]:
    """The main frames of the runs whose steps are there."""
    for frame in trace.log.frames:
        if frame.parent is None and frame.run < len(trace.replayer.runs):
            yield frame.run, frame


def _weighed(trace: Trace) -> Iterator[Weighed]:
    """Where the runs that have told their caches show what attention weighed."""
    for run in range(max((len(cache.runs) for cache in trace.caches), default=0)):
        frames = RunFrames(trace, run)
        if not frames.rows or trace.replayer.runs[run] is None or trace.runs[run].first == trace.runs[run].last:
            continue
        known = known_of(trace, frames)
        found: dict[Key, tuple[Source, list[int], int]] = {}
        for number, cache in enumerate(trace.caches):
            if run >= len(cache.runs):
                continue
            for source in sources(trace, cache, frames, known):
                out = trace.log[source.step].outs[source.output]
                if out is not None and out.shape is not None and len(out.shape) == 4:
                    _, heads, _, keys = out.shape
                    found.setdefault((source.step, source.output), (source, [], heads * keys))[1].append(number)
                    break
        for source, numbers, cells in found.values():
            yield Weighed(source, known, numbers, run, cells)


def _attend(trace: Trace, collector: Collector, one: Weighed, value: Any) -> None:
    row = row_of(one.known, one.source, value)
    if row is None:
        return
    start, weights = row
    stop = start + weights.shape[1]
    # Caches of one layer are as long as each other.
    low, high = max(start, 0), max(start, 0, min(stop, trace.caches[one.caches[0]].runs[one.run].capacity))
    collector.attend(one.caches, one.run, low, weights[:, low - start : high - start])


def _values(trace: Trace) -> Iterator[tuple[int, list[tuple[int, Any]]]]:
    """What each run was given and what each step made, in the order of the recording.

    Raises `_Stopped`: with why the rest is not there.
    """
    replayer: Replayer = trace.replayer
    told = [run.index for run in trace.runs if run.last > run.first]
    needed: set[int] = set()
    for run in told:
        chain = set()
        while run not in needed:
            entry = replayer.runs[run] if 0 <= run < len(replayer.runs) else None
            if entry is None:
                break
            chain.add(run)
            if not entry.carried:
                needed |= chain
                break
            run -= 1
        else:
            needed |= chain
    recorder = Recorder()
    weights = Weights(trace.graph, recorder.ledger)
    last_use: dict[tuple[int, str], int] = {}
    for run in sorted(needed):
        if (entry := replayer.runs[run]) is not None:
            last_use.update(dict.fromkeys(entry.carried.values(), run))
    made: dict[tuple[int, str], Any] = {}
    for run in sorted(needed | set(told)):
        if run not in needed:
            raise _Stopped(f"the inputs of run {run} were not kept")
        yield from _run(trace, run, recorder, weights, made, last_use)


def _run(
    trace: Trace,
    run: int,
    recorder: Recorder,
    weights: Weights,
    made: dict[tuple[int, str], Any],
    last_use: dict[tuple[int, str], int],
) -> Iterator[tuple[int, list[tuple[int, Any]]]]:
    """Repeat one run; ``made`` are values of earlier runs that it or later ones start with."""
    replayer: Replayer = trace.replayer
    entry = replayer.runs[run]
    assert entry is not None
    feeds = {**entry.kept.values, **{name: made[source] for name, source in entry.carried.items()}}
    frame_shift, main = next(((f, row) for f, row in enumerate(trace.log.frames) if row.run == run), (0, None))
    frame_shift -= len(recorder.log.frames)
    start, stop = trace.runs[run].first, trace.runs[run].last
    if main is not None:
        given = [(slot, feeds.get(bind.name)) for slot, bind in enumerate(main.bindings) if bind.how != "weight"]
        yield -1 - run, [(s, value) for s, value in given if main.bindings[s].name not in entry.carried]
    if start == stop and any(may_be_random(node) for _, node in trace.graph.walk()):
        raise _Stopped(f"run {run}, whose steps were not kept, draws random numbers")
    with np.errstate(all="ignore"):
        execution: Any = Execution(replayer.plan, feeds, frozenset(), replayer.policy, recorder, weights, run)
        execution.decide = never
        execution.placed = False
        noted: list[list[tuple[int, Any]]] = []
        plain = execution.note

        def note(frame: Any, planned: Any, *rest: Any) -> None:
            noted.append([(i, frame.vals[slot]) for i, slot in enumerate(planned.outputs) if slot])
            plain(frame, planned, *rest)

        execution.note = note
        for step in range(start, stop):
            row = trace.log[step]
            if is_random(row):
                raise _Stopped(f"from step {step} on: {row.op.node.name} would draw other random numbers")
            noted.clear()
            repeat(execution, trace, row, frame_shift)
            yield step, noted[-1]
        if any(source[0] == run for source in last_use):
            while execution.step():
                pass
            outputs = execution.outputs()
            made.update({source: outputs[source[1]] for source in last_use if source[0] == run})
    for source in [source for source, last in last_use.items() if last <= run and source in made]:
        del made[source]
