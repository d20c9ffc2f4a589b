"""A call that repeats: a graph whose program is one segment runs on new inputs by checking these and calling kernels.

Frame, ledger and log of such a run follow from its template. They are made by `resume` when somebody reads the trace,
and at once where the segment stops half-way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kvviz.engine.binding import is_shape
from kvviz.engine.frame import Frame
from kvviz.engine.plan import Plan
from kvviz.engine.program.segment import Ended, Segment
from kvviz.engine.program.watched_run import Layout
from kvviz.engine.run_state import RunState
from kvviz.graph.model import Value
from kvviz.trace.schema.run_options import GivenInputs, RunOptions


class Given(NamedTuple):
    """An input as it was when the program was made. ``facts``: element type, and whether it is packed and writeable.
    ``declared``: what it has to be like where its layout is another each time; else None."""

    slot: int
    facts: tuple[np.dtype, bool, bool]
    layout: Layout
    declared: Value | None


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
        """Whether all inputs are as those of the watched runs, and arrays that own their memory."""
        if len(inputs) != len(self.given) or len({id(value) for value in inputs.values()}) < len(inputs):
            return False
        for name, value in inputs.items():
            given = self.given.get(name)
            if given is None or type(value) is not np.ndarray or value.base is not None:
                return False
            flags, shape, declared = value.flags, value.shape, given.declared
            if not flags.owndata or (value.dtype, flags.c_contiguous, flags.writeable) != given.facts:
                return False
            if (shape, value.strides) != given.layout and (declared is None or not is_shape(declared, shape)):
                return False
        return True

    def run(self, inputs: Mapping[str, Any]) -> Ended:
        """Run the ops on inputs that fit, up to where one is otherwise than it was watched."""
        frame = Frame.__new__(Frame)
        frame.vals = self._values.copy()
        for name, value in inputs.items():
            frame.vals[self.given[name].slot] = value
        return self.segment.go(frame)

    def resume(self, execution: RunState, ended: Ended) -> None:
        """Bring a run that has just begun with equal inputs to where a prepared one ended."""
        frame = execution.main
        frame.vals[:], frame.ahead, frame.watch = ended.values, {}, None
        self.segment.end(execution, frame, ended)


def prepared(plan: Plan, segments: Sequence[Segment]) -> PreparedCall | None:
    """The call of a plan, if one segment runs it whole on packed arrays of the caller's, of which no two share memory,
    and each output has memory of its own."""
    segment = segments[0] if len(segments) == 1 else None
    if segment is None or segment.start is None or len(segment.nodes) < len(plan.order) or segment.uses != plan.uses:
        return None
    given = {}
    left = {plan.slots[value.name]: value for value in plan.graph.inputs}
    facts, layouts = segment.start
    for at, (slot, layout, steady) in enumerate(zip(segment.slots, layouts, segment.steady)):
        dtype, packed, writeable, *rest = facts[at * 8 : at * 8 + 8]
        value = left.pop(slot, None)
        if value is None or value.kind != "tensor" or not packed or rest != [False, 2, True, "caller", slot]:
            return None
        given[value.name] = Given(slot, (dtype, packed, writeable), layout, None if steady else value)
    alone = {slots[0] for slots in segment.living if len(slots) == 1}
    return None if left or not alone.issuperset(plan.outputs) else PreparedCall(plan, segment, given)
