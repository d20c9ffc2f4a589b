"""Kernels that make layouts and no numbers: a plan with these runs a graph on ghosts.

Three cases, in this order. What reads only known values is computed truly, up to `MOST_KNOWN` elements. An op that may
return a view gives the view of the ghost. Everything else gives new ghosts of the shapes that follow from its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kvviz.engine.plan import Counts, Plan, PlannedNode
from kvviz.errors import UnknownValueError
from kvviz.graph.model import Graph
from kvviz.memory.ghosts import forget, ghost, is_ghost
from kvviz.ops.attention_core import to_heads
from kvviz.ops.cast import DTYPES
from kvviz.ops.multi_head_attention import projected
from kvviz.ops.output_layouts import Layout, UnknownLengthError, layout_rule, size_of

MOST_KNOWN = 1 << 20
# With so few elements in all, an op of the usual kinds does not make more than `MOST_KNOWN`.
_FEW = 1024
# Ops whose result may be large although what they read is small.
_BY_VALUE = {"ConstantOfShape", "Expand", "EyeLike", "OneHot", "Pad", "Range", "Resize", "Tile", "Upsample"}
# Their kernels only look at the layout of what they return a view of; the other inputs have to be known.
_VIEWS = {
    *("OptionalHasElement", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceLength"),
    "BitCast",
    "Expand",
    "Identity",
    "Optional",
    "OptionalGetElement",
    "SequenceErase",
    "Slice",
    "Split",
    "SplitToSequence",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
}
_LISTS = {"OptionalHasElement", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceLength"}


def use_ghosts(graph: Graph, planned: PlannedNode, counts: Counts) -> None:
    """Let a planned node make ghosts instead of numbers; ``counts`` says what hangs on data."""
    if planned.control:
        return
    planned.call = _GhostKernel(graph, planned, counts).run
    planned.grows = tuple(replace(grow, rows=_of_known(planned, grow.rows)) for grow in planned.grows)
    if planned.cost is not None:
        planned.cost = _of_known(planned, planned.cost)
    if planned.written is not None:
        planned.written = _of_known(planned, planned.written)


def check_known(planned: PlannedNode, position: int, value: Any) -> None:
    """Raise `UnknownValueError` where a node needs the number that a ghost does not have."""
    if value is not None and is_ghost(value):
        node = planned.node
        name = node.inputs[position]
        raise UnknownValueError(
            f"node {node.name!r} ({node.qualified_op}) needs the value of {name!r}, which depends on data; "
            "a dry run knows shapes only: give the input that it is computed from, or run the model with numbers"
        )


def stated(plan: Plan, planned: PlannedNode, position: int, value: Any) -> Any:
    """A number that control flow hangs on: the value itself, or what the caller stated where it is a ghost."""
    if value is None or plan.dry is None or not is_ghost(value):
        return value
    node = planned.node
    if node.name in plan.dry:
        return np.array(plan.dry[node.name])
    what = "its condition" if planned.control == "If" or position else "its trip count"
    number = "1 or 0" if planned.control == "If" else "the iterations"
    raise UnknownValueError(
        f"node {node.name!r} ({node.qualified_op}): {what} depends on data, which a dry run does not know; "
        f"state it: counts={{{node.name!r}: {number}}}"
    )


def _of_known(planned: PlannedNode, rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule that may read lengths and indices, which have to be known."""

    def checked(args: Sequence[Any], *others: Any) -> Any:
        for position, value in enumerate(args):
            if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size <= _FEW:
                check_known(planned, position, value)
        return rule(args, *others)

    return checked


class _GhostKernel:
    """The kernel of one node in a dry run."""

    def __init__(self, graph: Graph, planned: PlannedNode, counts: Counts) -> None:
        node, spec = planned.node, planned.spec
        self.planned = planned
        self.compute = planned.call
        self.unread = frozenset(spec.unread) if spec is not None else frozenset()
        self.bounded = node.op_type not in _BY_VALUE
        self.views = _view_rule(planned)
        past, presents = _PRESENTS.get((node.domain, node.op_type), (0, None))
        self.presents = None if node.inputs[past : past + 1] not in ((), ("",)) else presents
        elsewhere = (1, 2) if self.presents is not None else ()
        self.rule = layout_rule(graph, node, spec, planned.attributes, counts.get(node.name), elsewhere)
        self.single = len(node.outputs) == 1

    def run(self, *args: Any, out: Any = None, grown: Any = None) -> Any:
        """What the node's kernel gives, on ghosts."""
        unread = self.unread
        reads = [a for i, a in enumerate(args) if a is not None and i not in unread]
        if not any(map(is_ghost, reads)) and self._is_small(args, reads):
            return self._computed(args, out, grown)
        if self.views is not None and (seen := self.views(args)) is not None:
            return seen
        if out is not None and self.single:
            forget(out)
            return out
        made = [None if layout is None else ghost(*layout) for layout in self._layouts(args)]
        if out is not None:
            forget(out)
            made[0] = out
        for grow, present in zip(self.planned.grows, grown or ()):
            if present is not None:
                forget(present)
                made[grow.output] = present
        if self.presents is not None:
            for output, present in enumerate(self.presents(args, self.planned.attributes), 1):
                if output < len(made) and self.planned.outputs[output]:
                    made[output] = present
        return made[0] if self.single else tuple(made)

    def _computed(self, args: Sequence[Any], out: Any, grown: Any) -> Any:
        how = {name: value for name, value in (("out", out), ("grown", grown)) if value is not None}
        return self.compute(*args, **how)

    def _layouts(self, args: Sequence[Any]) -> list[Layout | None]:
        try:
            return self.rule(args)
        except UnknownValueError as error:
            node, advice = self.planned.node, "run the model with numbers"
            if isinstance(error, UnknownLengthError):
                advice = f"state how many elements it gives: counts={{{node.name!r}: n}}"
            raise UnknownValueError(
                f"node {node.name!r} ({node.qualified_op}): {error}, which a dry run does not know; {advice}"
            ) from None

    def _is_small(self, args: Sequence[Any], reads: Sequence[Any]) -> bool:
        """Whether what is known gives no more than `MOST_KNOWN` elements."""
        sizes = [a.size for a in reads if isinstance(a, np.ndarray)]
        if self.bounded and all(size <= _FEW for size in sizes):
            return True
        if any(size > MOST_KNOWN for size in sizes):
            return False
        try:
            return sum(map(size_of, self.rule(args))) <= MOST_KNOWN
        except UnknownValueError:
            return True


def _view_rule(planned: PlannedNode) -> Callable[[Sequence[Any]], Any] | None:
    """``rule(args)`` gives what an op returns as a view, or None where it makes something new."""
    op, call = planned.node.op_type, planned.call
    if planned.node.domain or planned.spec is None:
        return None
    if op in ("Reshape", "Flatten"):
        return lambda args: _reshaped(planned, call, args)
    if op in ("Cast", "CastLike"):
        dtype = DTYPES.get(planned.attributes.get("to"))
        return lambda args: args[0] if args[0].dtype == (args[1].dtype if dtype is None else dtype) else None
    if op == "Tile":
        return lambda args: None if is_ghost(args[1]) or (args[1] != 1).any() else call(*args)
    if op == "Dropout":
        return lambda args: _kept(planned, args)
    if op in _VIEWS:
        return lambda args: _viewed(planned, call, args)
    return None


def _viewed(planned: PlannedNode, call: Callable[..., Any], args: Sequence[Any]) -> Any:
    for position, value in enumerate(args[1:], 1):
        if isinstance(value, np.ndarray) and value.ndim < 2 and planned.node.op_type not in _LISTS:
            check_known(planned, position, value)
    return call(*args)


def _kept(planned: PlannedNode, args: Sequence[Any]) -> Any:
    """What Dropout gives where it drops nothing, as in inference."""
    for position, value in enumerate(args[1:], 1):
        check_known(planned, position, value)
    _, ratio, training = (*args, None, None)[:3]
    if training is not None and bool(training) and (ratio is None or float(ratio)):
        return None
    x = args[0]
    return (x, ghost(x.shape, np.bool_)) if len(planned.outputs) > 1 else x


def _reshaped(planned: PlannedNode, call: Callable[..., np.ndarray], args: Sequence[Any]) -> np.ndarray | None:
    """A view where the strides allow one; the kernel says the shape, of an array that takes no memory."""
    x = args[0]
    for position, value in enumerate(args[1:], 1):
        check_known(planned, position, value)
    shape = call(np.broadcast_to(np.empty((), x.dtype), x.shape), *args[1:]).shape
    try:
        return np.reshape(x, shape, copy=False)
    except ValueError:
        return None


def _attention_presents(args: Sequence[Any], attributes: Mapping[str, Any]) -> list[np.ndarray]:
    """Attention without pasts returns its keys and values by head."""
    heads = attributes["kv_num_heads"]
    return [part if part.ndim == 4 else to_heads(part, heads, "") for part in args[1:3]]


def _multi_head_presents(args: Sequence[Any], attributes: Mapping[str, Any]) -> list[np.ndarray]:
    query, key, value, bias = (*args, None, None, None)[:4]
    parts = projected(query, key, value, None, attributes["num_heads"])[1:]
    if bias is None or (key is not None and key.ndim == 4):
        return list(parts)
    return [ghost(part.shape, part.dtype) for part in parts]


# The position of the past without which an operator returns its own keys and values, and what these are.
_PRESENTS: dict[tuple[str, str], tuple[int, Callable[..., list[np.ndarray]]]] = {
    ("", "Attention"): (4, _attention_presents),
    ("com.microsoft", "MultiHeadAttention"): (6, _multi_head_presents),
}
