"""Values that the control inputs of a run determine: masks, lengths and positions, recomputed from these alone.

Only arithmetic on indices and masks is repeated, with the original kernels and the recorded shapes. Values that depend
on the network's numbers are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, cast

import numpy as np

from kvviz.graph.model import Node, weight_layout
from kvviz.ops.kernels import kernel_of
from kvviz.trace.index.frame_values import RunFrames, Spot
from kvviz.trace.reasons import placed_before
from kvviz.trace.recording import Trace
from kvviz.trace.schema.events import Bind, Output

LARGEST = 1 << 24
"""The maximum number of elements of a recomputed value."""

# The operators with which exporters make masks and positions. Matrix products, norms and activations are not among
# them, so the network itself is never repeated.
_OPS = """
Abs Add And ArgMax ArgMin BitwiseAnd BitwiseNot BitwiseOr Cast CastLike Ceil Clip Concat ConstantOfShape CumSum Div
Equal Expand Flatten Floor Gather GatherElements GatherND Greater GreaterOrEqual Identity IsInf IsNaN Less LessOrEqual
Log Max Min Mod Mul Neg NonZero Not OneHot Or Pad Pow Range ReduceMax ReduceMin ReduceSum Reshape ScatterElements
ScatterND Sign Slice Split Squeeze Sub Tile Transpose Trilu Unsqueeze Where Xor
"""
_ARITHMETIC = frozenset(_OPS.split())
# The function that computes a value, its facts, and the values that it needs.
Rule = tuple[Callable[..., Any], tuple[Any, ...], tuple[Spot, ...]]


class Known:
    """Values of one run that its control inputs and recorded shapes determine; ``feeds`` are its inputs without the
    caches."""

    def __init__(self, trace: Trace, frames: RunFrames, feeds: Mapping[str, Any]) -> None:
        self.trace = trace
        self.frames = frames
        self.asked: set[Spot] = set()  # by `value`
        self._kernels: dict[int, Callable[..., Any]] = {}
        self.feeds = feeds
        self._values: dict[Spot, np.ndarray | None] = {}
        self._died: dict[int, list[int]] | None = None
        # Runs that opened the same frames settle the same values in the same order.
        self._orders: dict[Spot, tuple[tuple[Spot, Rule], ...]] = trace.notes.setdefault("known orders", {}).setdefault(
            frames.signature, {}
        )

    def place(self, frame: int, name: str) -> Output | Bind | None:
        """The place of a value other than a weight; None if it was not made."""
        return placed_before(self.trace, self.frames.first + frame, name, len(self.trace.log))

    def shape(self, frame: int, name: str) -> tuple[int, ...] | None:
        graph = self.frames.graph(frame)
        if name in graph.weights:
            return cast("tuple[int, ...]", weight_layout(graph, name).shape)
        place = self.place(frame, name)
        return None if place is None else place.shape

    def kernel(self, node: Node) -> Callable[..., Any]:
        found = self._kernels.get(id(node))
        if found is None:
            found = self._kernels[id(node)] = kernel_of(node).call
        return found

    def step(self, frame: int, index: int) -> int | None:
        return self.trace.step_of(self.frames.first + frame, index)

    def died(self, storage: int, born: int) -> int:
        """The first step from ``born`` on at which a storage was freed; after the last step if none."""
        run = self.trace.runs[self.frames.run]
        if self._died is None:
            self._died = {}
            for step, freed in self.trace.log.died(run.first, run.last):
                self._died.setdefault(freed, []).append(step)
        # A pool may reuse the same storage many times.
        return next((step for step in self._died.get(storage, ()) if step >= born), run.last)

    def value(self, frame: int, name: str) -> np.ndarray | None:
        """A value, or None if it depends on more than the control inputs."""
        spot = (frame, name)
        self.asked.add(spot)
        values = self._values
        if spot not in values:
            order = self._orders.get(spot)
            if order is None:
                order = self._orders[spot] = self._order(spot)
            for place, (settle, facts, needs) in order:
                if place not in values:
                    given = [values[need] for need in needs]
                    known = not needs or not any(value is None for value in given)
                    values[place] = settle(self, *facts, *given) if known else None
        return values[spot]

    def _order(self, spot: Spot) -> tuple[tuple[Spot, Rule], ...]:
        order: dict[Spot, Rule] = {}
        rules: dict[Spot, Rule] = {}
        stack = [spot]
        while stack:
            place = stack[-1]
            if place in order:
                stack.pop()
                continue
            rule = rules.get(place)
            if rule is None:
                rule = rules[place] = self._rule(*place)
                missing = [need for need in rule[2] if need not in order]
                if missing:
                    stack += missing
                    continue
            order[place] = rule
            stack.pop()
        return tuple(order.items())

    def _rule(self, frame: int, name: str) -> Rule:
        graph = self.frames.graph(frame)
        if name in graph.weights and (frame or name not in self.feeds):
            return _settled, (graph.weights[name],), ()
        node = graph.producers.get(name)
        if node is None:
            outer = self.frames.outer(frame, name)
            return (_settled, (), (outer,)) if outer is not None else self._given(frame, name)
        position = node.outputs.index(name)
        if self.frames.bodies(frame, node) or (node.op_type == "Loop" and not node.domain):
            inner = self.frames.inner(frame, node, position)
            return (_settled, (None,), ()) if inner is None else (_settled, (), (inner,))
        if node.op_type in ("Shape", "Size") and not node.domain:
            return _measured, (frame, node), ()
        if node.op_type not in _ARITHMETIC or node.domain:
            return _settled, (None,), ()
        return _computed, (frame, node, position), tuple((frame, given) for given in node.inputs if given)

    def _given(self, frame: int, name: str) -> Rule:
        row = self.frames.rows[frame]
        if row.parent is None:
            return _fed, (name,), ()
        inputs = self.frames.graph(frame).inputs
        # The first input of a Loop's body is the iteration number.
        counts = row.caller is not None and row.caller.node.op_type == "Loop" and inputs and inputs[0].name == name
        count = None if row.iteration is None or not counts else np.array(row.iteration, np.int64)
        return _settled, (count,), ()


def _settled(known: Known, value: np.ndarray | None) -> np.ndarray | None:
    return value


def _fed(known: Known, name: str) -> np.ndarray | None:
    value = known.feeds.get(name)
    return value if isinstance(value, np.ndarray) else None


def _measured(known: Known, frame: int, node: Node) -> np.ndarray | None:
    shape = known.shape(frame, node.inputs[0])
    if shape is None:
        return None
    if node.op_type == "Size":
        return np.array(prod(shape), np.int64)
    return np.array(shape[node.attributes.get("start", 0) : node.attributes.get("end")], np.int64)


def _computed(known: Known, frame: int, node: Node, position: int, *given: np.ndarray) -> np.ndarray | None:
    step = known.step(frame, node.index)
    if step is None:
        return None
    where = known.trace.log.output(step, position)
    if where is None or where.shape is None or prod(where.shape) > LARGEST:
        return None
    if len(given) < len(node.inputs):
        left = iter(given)
        given = tuple(next(left) if name else None for name in node.inputs)  # type: ignore[misc]
    made = known.kernel(node)(*given)
    out = made[position] if isinstance(made, tuple) else made
    return np.asarray(out) if isinstance(out, (np.ndarray, np.generic)) else None
