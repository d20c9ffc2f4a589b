"""A call that repeats: a graph whose program is one segment runs on new inputs by checking these and calling kernels.

Frame, ledger and log of such a run follow from its template. They are made by `resume` when somebody reads the trace,
and at once where the segment stops half-way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kvviz.engine.frame import Frame
from kvviz.engine.plan import Plan
from kvviz.engine.program.segment import Ended, Segment
from kvviz.engine.program.watched_run import Layout
from kvviz.engine.run_state import RunState
from kvviz.trace.schema.run_options import GivenInputs, RunOptions


class Given(NamedTuple):
    """An input as it was when the program was made: a packed array of the caller's that shares its memory with none.

    ``layout``: of each run, if ``steady``; else only its rank and the lengths in ``fixed`` (axis, length) are.
    """

    slot: int
    dtype: np.dtype
    writeable: bool
    layout: Layout
    steady: bool
    fixed: tuple[tuple[int, int], ...]


class Ran(NamedTuple):
    """What is left of a prepared run: the values of its frame, and how far it came."""

    values: list[Any]
    ended: Ended


class PreparedCall:
    """A plan that one segment runs from the first op to the last, and what its inputs must be like.

    ``options``: those that the trace records.
    """

    def __init__(self, plan: Plan, segment: Segment, given: Mapping[str, Given]) -> None:
        self.segment = segment
        self.given = given
        self.outputs = {plan.names[slot]: slot for slot in plan.outputs}
        self.options = RunOptions("run", (), given=GivenInputs(frozenset(given), {}, True))
        self._values: list[Any] = [None] * len(plan.names)
        for name, slot in plan.weights:
            self._values[slot] = plan.graph.weights[name]

    def fits(self, inputs: Mapping[str, Any]) -> bool:
        """Whether all inputs are as those of the watched runs."""
        if len(inputs) != len(self.given) or len({id(value) for value in inputs.values()}) < len(inputs):
            return False
        for name, value in inputs.items():
            given = self.given.get(name)
            if given is None or type(value) is not np.ndarray or value.base is not None or value.dtype != given.dtype:
                return False
            flags, shape = value.flags, value.shape
            if not (flags.c_contiguous and flags.owndata and flags.writeable is given.writeable):
                return False
            if (shape, value.strides) != given.layout and (
                given.steady
                or len(shape) != len(given.layout[0])
                or any(shape[axis] != length for axis, length in given.fixed)
            ):
                return False
        return True

    def run(self, inputs: Mapping[str, Any]) -> Ran:
        """Run the ops on inputs that fit, up to where one is otherwise than it was watched."""
        values = self._values.copy()
        for name, value in inputs.items():
            values[self.given[name].slot] = value
        frame = Frame.__new__(Frame)
        frame.vals = values
        return Ran(values, self.segment.go(frame))

    def resume(self, execution: RunState, ran: Ran) -> None:
        """Bring a run that has just begun with the same inputs to where a prepared one ended."""
        frame = execution.main
        frame.vals[:], frame.ahead, frame.watch = ran.values, {}, None
        self.segment.end(execution, frame, ran.ended)


def prepared(plan: Plan, segments: Sequence[Segment]) -> PreparedCall | None:
    """The call of a plan, if a single segment runs it whole on inputs of the usual kind, and each output has memory of
    its own."""
    segment = segments[0] if len(segments) == 1 else None
    if segment is None or segment.start is None or len(segment.nodes) < len(plan.order) or segment.uses != plan.uses:
        return None
    given = {}
    declared = {plan.slots[value.name]: value for value in plan.graph.inputs}
    facts, layouts = segment.start
    for at, (slot, layout, steady) in enumerate(zip(segment.slots, layouts, segment.steady)):
        dtype, packed, writeable, *rest = facts[at * 8 : at * 8 + 8]
        value = declared.pop(slot, None)
        if value is None or value.kind != "tensor" or not packed or rest != [False, 2, True, "caller", slot]:
            return None
        fixed = tuple((axis, length) for axis, length in enumerate(value.shape or ()) if isinstance(length, int))
        given[value.name] = Given(slot, dtype, writeable, layout, steady, fixed)
    alone = {slots[0] for slots in segment.living if len(slots) == 1}
    return None if declared or not alone.issuperset(plan.outputs) else PreparedCall(plan, segment, given)
