"""A call that repeats: a graph whose ops did twice the same runs on new inputs by checking these and calling kernels.

What follows from weights and from layouts alone is computed once. Neither frames nor storages are kept meanwhile, and
nothing is logged. So nothing needs repair where an op does otherwise than it was watched: the graph runs once more,
step by step. The same makes the trace when somebody reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kvviz.engine.binding import is_shape
from kvviz.engine.frame import Frame
from kvviz.engine.plan import ABSENT, KEEP, Plan, PlannedNode, may_draw
from kvviz.engine.program.segment import Segment
from kvviz.engine.program.segment_code import Code, Facts
from kvviz.engine.program.watched_run import Layout, Seen, Watch
from kvviz.graph.model import Value
from kvviz.trace.schema.run_options import GivenInputs, RunOptions

# Ops whose results follow from the layout of their first input, and how many bytes of results are kept.
_OF_LAYOUTS, _KNOWN_AHEAD = {"Shape", "Size"}, 1 << 24
_NONE: Mapping[str, Any] = {}
# How many calls at most run step by step after one whose trace was read, and how many layouts of an input are kept.
_PAUSE, _LAYOUTS = 63, 64


class Given(NamedTuple):
    """An input. ``layouts``: how it may lie; of one that is ``loose`` those that were seen."""

    slot: int
    declared: Value
    layouts: set[Layout]
    loose: bool

    def may_lie(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
        """Whether a packed array may lie so."""
        if not self.loose or not is_shape(self.declared, shape) or not _lies_as_a_copy(self.declared, shape, strides):
            return False
        if len(self.layouts) < _LAYOUTS:
            self.layouts.add((shape, strides))
        return True


class Branch(NamedTuple):
    """An If that took one branch. ``captured, outputs``: slots of the outer and the inner frame; ``dies``: outer slots
    that are not read any more."""

    condition: int
    truth: bool
    captured: tuple[tuple[int, int], ...]
    body: Body
    outputs: tuple[tuple[int, int], ...]
    dies: tuple[int, ...]

    def go(self, frame: Frame) -> bool:
        vals, inner = frame.vals, self.body.frame()
        condition = vals[self.condition]
        if condition.size != 1 or bool(condition.reshape(())) is not self.truth:
            return False
        for outer, slot in self.captured:
            inner.vals[slot] = vals[outer]
        if not self.body.go(inner):
            return False
        for outer, slot in self.outputs:
            vals[outer] = inner.vals[slot]
        for slot in self.dies:
            vals[slot] = None
        return True


class Stretch(NamedTuple):
    """Ops in a row without a body. ``size``: how many."""

    code: Code
    size: int

    def go(self, frame: Frame) -> bool:
        return self.code(frame, Facts([], [], []))[0] == self.size


class Body:
    """The ops of a plan, in the order of running. ``values``: those that are there when it begins, by slot."""

    def __init__(self, parts: Sequence[Stretch | Branch], values: list[Any]) -> None:
        self.parts = tuple(parts)
        self._values = values

    def frame(self) -> Frame:
        """A frame of which only the values are there."""
        frame = Frame.__new__(Frame)
        frame.vals = self._values.copy()
        return frame

    def go(self, frame: Frame) -> bool:
        """Call the kernels; False where one is otherwise than it was watched."""
        return all(part.go(frame) for part in self.parts)


class PreparedCall:
    """``given``: what the inputs must be like, by name. ``options``: those that the trace records."""

    def __init__(self, plan: Plan, body: Body, given: Mapping[str, Given]) -> None:
        self.given = given
        self.options = RunOptions("run", (), given=GivenInputs(frozenset(given), {}, True))
        self._body = body
        self._outputs = [(plan.names[slot], slot) for slot in plan.outputs]
        self._pause = self._left = 0

    def fits(self, inputs: Mapping[str, Any]) -> bool:
        """Whether all inputs are as those of the watched runs, and arrays that own their memory."""
        if self._left:
            self._left -= 1
            return False
        if len(inputs) != len(self.given) or len({id(value) for value in inputs.values()}) < len(inputs):
            return False
        for name, value in inputs.items():
            given = self.given.get(name)
            if given is None or type(value) is not np.ndarray or value.base is not None:
                return False
            flags, lies = value.flags, (value.shape, value.strides)
            if not flags.owndata or not flags.c_contiguous or value.dtype != given.declared.dtype:
                return False
            if lies not in given.layouts and not given.may_lie(*lies):
                return False
        return True

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
        """The outputs for inputs that fit; None where an op fails or is otherwise than it was watched."""
        frame = self._body.frame()
        for name, value in inputs.items():
            frame.vals[self.given[name].slot] = value
        try:
            whole = self._body.go(frame)
        except Exception:
            return None  # the ordinary run says which op it was
        return {name: frame.vals[slot] for name, slot in self._outputs} if whole else None

    def was_read(self) -> None:
        """The trace of a call was made, which takes a second run: let more and more calls run step by step at once."""
        self._left = self._pause = min(2 * self._pause + 1, _PAUSE)


def prepared(plan: Plan, watch: Watch, segments: Sequence[Segment]) -> PreparedCall | None:
    """The call of a plan of a main graph, if all its ops did what they did in the watched run before, on packed arrays,
    and each output has memory of its own."""
    given = {}
    for value, slot in zip(plan.graph.inputs, plan.inputs):
        layout = watch.given.get(slot)
        if value.kind != "tensor" or value.dtype is None or layout is None or not _lies_as_a_copy(value, *layout):
            return None
        given[value.name] = Given(slot, value, {layout}, slot in watch.loose)
    body = _body(plan, watch, segments) if watch.apart else None
    return None if body is None else PreparedCall(plan, body, given)


def _lies_as_a_copy(value: Value, shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether a copy, of which the trace is made, lies so, too: the only element of an axis may have any stride."""
    return strides == np.empty(shape, value.dtype).strides


def _body(plan: Plan, watch: Watch, segments: Sequence[Segment] = (), outer: Mapping[str, Any] = _NONE) -> Body | None:
    """``outer``: values around it that are the same each time."""
    plain = {planned.position for planned in plan.order if not planned.control}
    # One that appends asks the frame for room.
    appends = any(one.taken and not one.usual for one in watch.alike.values())
    if appends or not plain <= watch.alike.keys() or any(may_draw(plan.order[at].node) for at in plain):
        return None
    parts: list[Stretch | Branch] = []
    uses, first = plan.uses.copy(), 0
    for _, slot in plan.captured:
        uses[slot] += KEEP
    values, fixed, done = _known_ahead(plan, watch, outer)
    same = {**outer, **{name: values[slot] for name, slot in plan.slots.items() if slot in fixed}}
    known = {(segment.first, len(segment.nodes)): segment for segment in segments}
    for at, planned in enumerate([*plan.order, None]):
        if planned is not None and not planned.control:
            continue
        left = [position for position in range(first, at) if position not in done]
        if left:
            segment = known.get((first, len(left))) or Segment(plan, first, at)
            seen = [watch.alike[position] for position in range(first, at)]
            code = segment.code or segment.numbers(seen, watch.loose, uses, done)
            parts.append(Stretch(code, len(left)))
        for passed in plan.order[first:at]:
            _read(passed, uses)
        if planned is not None:
            branch = _branch(plan, planned, watch, _read(planned, uses), same)
            if branch is None:
                return None
            parts.append(branch)
        first = at + 1
    return Body(parts, values)


def _known_ahead(plan: Plan, watch: Watch, outer: Mapping[str, Any]) -> tuple[list[Any], set[int], set[int]]:
    """Values by slot, and the slots of those that are the same each time: weights, and what follows from them and from
    layouts. Also the ops that need not run for them: no other op may write into such a value, or hand it on."""
    values: list[Any] = [None] * len(plan.names)
    given = {value.name for value in plan.graph.overridable}
    fixed = {ABSENT}
    for name, slot in plan.weights:
        values[slot] = plan.graph.weights[name]
        fixed.update({slot} if name not in given else ())
    for name, slot in plan.captured:
        values[slot] = outer.get(name)
        fixed.update({slot} if name in outer else ())
    done, room = set[int](), _KNOWN_AHEAD
    for planned in plan.order:
        seen = watch.alike.get(planned.position)
        if seen is None or seen.sums[0] > room:
            continue
        args = [values[slot] for slot in planned.inputs]
        if planned.node.op_type in _OF_LAYOUTS and seen.layouts[0] and planned.inputs[0] not in watch.loose:
            args[0] = np.broadcast_to(np.empty(()), seen.layouts[0][0])
        elif not fixed.issuperset(planned.inputs):
            continue
        made = _made_ahead(planned, args, seen)
        if not made:
            continue
        room -= seen.sums[0]
        done.add(planned.position)
        fixed.update(planned.outputs)
        for slot, value in zip(planned.outputs, made):
            values[slot] = value if slot else None
    touched = set(plan.outputs)
    for planned in reversed(plan.order):
        if planned.position in done and touched.isdisjoint(planned.outputs):
            continue
        done.discard(planned.position)
        if planned.control:
            touched.update(slot for slot, _ in planned.consumes)
        else:
            seen = watch.alike[planned.position]
            touched.update(planned.inputs[at] for at in (*seen.taken, *seen.sources) if at >= 0)
    return values, fixed, done


def _made_ahead(planned: PlannedNode, args: Sequence[Any], seen: Seen) -> list[np.ndarray]:
    """The outputs of an op; none if it fails, or if one is otherwise than it was made in memory that is given here."""
    count = len(planned.outputs)
    try:
        out = planned.call(*args)
    except Exception:
        return []
    made = [np.asarray(value) for value in ((out,) if count == 1 else out[:count]) if value is not None]
    lies = [where and ((value.shape, value.strides), value.dtype) for value, where in zip(made, seen.placed)]
    return made if lies == [where and (lay, where[4]) for lay, where in zip(seen.made, seen.placed)] else []


def _branch(
    plan: Plan, planned: PlannedNode, watch: Watch, dies: tuple[int, ...], same: Mapping[str, Any]
) -> Branch | None:
    if planned.position not in watch.repeated:
        return None
    attribute, inner, seen = watch.repeated[planned.position]
    captured = tuple((plan.slots[name], slot) for name, slot in inner.captured)
    outputs = tuple((outer, slot) for outer, slot in zip(planned.outputs, inner.outputs) if outer)
    # A branch that was not always taken may have seen only one layout of what it captures.
    seen.loose = seen.loose | {slot for outer, slot in captured if outer in watch.loose}
    body = _body(inner, seen, outer=same)
    if body is None:
        return None
    watch.loose = watch.loose | {outer for outer, slot in outputs if slot in seen.loose}
    return Branch(planned.inputs[0], attribute == "then_branch", captured, body, outputs, dies)


def _read(planned: PlannedNode, uses: list[int]) -> tuple[int, ...]:
    """Count what an op reads; returns the slots that are not read any more."""
    for slot, times in planned.consumes:
        uses[slot] -= times
    return tuple(slot for slot in (*dict(planned.consumes), *planned.outputs) if slot and not uses[slot])
