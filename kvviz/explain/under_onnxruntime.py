"""What has to change so that onnxruntime's planner lets an op overwrite its input: the plan is made anew to see.

Bodies never own what they capture, so only values of the op's own graph can be freed for it; and the outputs of a
graph have memory of their own, unless the caller binds one buffer to an input and an output.
"""

from __future__ import annotations

from kvviz.engine import blockers as b
from kvviz.engine.ort.policy import in_place
from kvviz.engine.plan import Plan, needed
from kvviz.explain.changes import Change, Donate, arguments, asked
from kvviz.explain.clearing import Clearing, Unfixable
from kvviz.explain.index import Index

__all__ = ["in_place", "under_onnxruntime"]

_CLEARED = b.NOT_LAST_USE | b.REQUESTED_OUTPUT | b.BORROWED_INPUT | b.ALIASED


def under_onnxruntime(index: Index, step: int, position: int, mask: int) -> tuple[Change, ...]:
    """The changes after which onnxruntime plans a step in place.

    Parameters
    ----------
    index : Index
    step, position : int
    mask : int
        Why the planner refused the input.

    Raises
    ------
    Unfixable
        If no change would do.
    """
    if mask & ~_CLEARED or index.trace.recipe is None:
        raise Unfixable("no change of the run would do")
    changes = tuple(Clearing(index, step, position, lambda *_: "").changes)
    if not _is_planned_in_place(index, step, position, changes):
        raise Unfixable("the plan would still give it its own memory")
    return changes


def _is_planned_in_place(index: Index, step: int, position: int, changes: tuple[Change, ...]) -> bool:
    trace, row = index.trace, index.rows[step]
    told = arguments(trace, changes)
    policy = told.get("policy", trace.policy)
    graph = index.frames[row[0]].plan.graph
    is_main = index.frames[row[0]].parent is None
    outputs = tuple(told.get("outputs", asked(trace))) if is_main else index.outputs(row[0])
    plan = Plan(graph, outputs, policy.schedule(graph, needed(graph, outputs), outputs))
    policy.prepare(plan)
    notes = next(planned.notes for planned in plan.order if planned.node.index == row[1].node.index)
    if notes.take >= 0:
        return bool(notes.take == position)
    return notes.bound == position and any(isinstance(change, Donate) for change in changes)
