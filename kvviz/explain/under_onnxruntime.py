"""What has to change so that onnxruntime's planner lets an op overwrite its input: the plan is made anew to see.

Bodies never own what they capture, so only values of the op's own graph can be freed for it; and the outputs of a
graph have memory of their own, unless the caller binds one buffer to an input and an output. Sizes are compared before
anything runs, so a dimension without a number or a name may be all that stands in the way: then numbers are given.
"""

from __future__ import annotations

from typing import Any

from kvviz.engine.plan import Plan, needed
from kvviz.explain.changes import Change, Donate, FixDims, arguments, asked
from kvviz.explain.fix_wording import graph_at
from kvviz.explain.kept_runs import keeps_all
from kvviz.explain.sole_use import Clearing, Unfixable
from kvviz.graph.fixed_dimensions import Dims
from kvviz.graph.model import Graph
from kvviz.runtimes.ort import refusal
from kvviz.runtimes.ort.known_types import known
from kvviz.runtimes.ort.told_types import take_types
from kvviz.runtimes.policy_data import policy_of
from kvviz.trace import blockers as b
from kvviz.trace.type_facts import free_dims
from kvviz.trace.value_index import Index

_NOT_KNOWN = refusal.UNKNOWN | refusal.NAMES
_CLEARED = b.NOT_LAST_USE | b.REQUESTED_OUTPUT | b.BORROWED_INPUT | b.ALIASED


def under_onnxruntime(index: Index, step: int, position: int, mask: int) -> tuple[Change, ...]:
    """The changes after which onnxruntime plans a step in place.

    ``mask``: why the planner refused the input.

    Raises `Unfixable`: if no change would do.
    """
    if mask & ~(_CLEARED | _NOT_KNOWN):
        raise Unfixable("no change of the run would do")
    facts = index.trace.type_facts
    if facts is not None and "types" not in index.notes:
        take_types(index.trace.graph, facts)
        index.notes["types"] = True
    changes = tuple(Clearing(index, step, position, lambda *_: "").changes)
    if mask & _NOT_KNOWN:
        changes = (FixDims(_free_dims(index)), *changes)
    if not _is_planned_in_place(index, step, position, changes):
        raise Unfixable("the plan would still give it its own memory")
    return changes


def _free_dims(index: Index) -> Dims:
    """What is to be fixed: of a trace some of whose runs have no steps it is not known."""
    if "free dims" not in index.notes:
        index.notes["free dims"] = free_dims(index.trace) if keeps_all(index.trace) else ()
    dims: Dims = index.notes["free dims"]
    if not dims:
        raise Unfixable("no dimension is free, or none has the same length in every run")
    return dims


def _is_planned_in_place(index: Index, step: int, position: int, changes: tuple[Change, ...]) -> bool:
    row = index.rows[step]
    plans: dict[Any, dict[int, Any]] = index.notes.setdefault("onnxruntime's plans", {})
    key = changes, id(index.frames[row.frame].program)
    if key not in plans:
        plans[key] = _planned(index, row.frame, changes)
    notes = plans[key][row.op.node.index]
    if notes.take >= 0:
        return bool(notes.take == position)
    return notes.bound == position and any(isinstance(change, Donate) for change in changes)


def _planned(index: Index, frame: int, changes: tuple[Change, ...]) -> dict[int, Any]:
    """What onnxruntime would note of the nodes of a frame's graph after the changes, by their indices."""
    trace = index.trace
    policy = policy_of(trace)
    assert policy is not None
    told = arguments(trace, changes, False, policy)
    policy = told.get("policy", policy)
    main = tuple(told.get("outputs", asked(trace)))
    graph: Graph = index.frames[frame].program.graph
    if "graph" in told:
        changed = told["graph"]
        # Of bodies the planner knows what follows from the whole model.
        known(changed)
        changed = policy.rewrite(changed, main) if policy.rewrite else changed
        above = [index.frames[number] for number in index.path(frame)[1:]]
        path = [
            (row.caller.node.index, row.attribute if row.caller.control != "function" else "function") for row in above
        ]
        graph = graph_at(changed, tuple(path))
    outputs = main if index.frames[frame].parent is None else index.outputs(frame)
    plan = Plan(graph, outputs, policy.schedule(graph, needed(graph, outputs), outputs))
    policy.prepare(plan)
    return {planned.node.index: planned.notes for planned in plan.order}
