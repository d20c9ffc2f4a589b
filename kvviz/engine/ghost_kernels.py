"""Kernels that make layouts and no numbers: a plan with these runs a graph on ghosts.

Three cases, in this order. Ops that read only known values are computed, up to `MOST_KNOWN` elements. An op that may
return a view returns the view of the ghost. All others return new ghosts of the shapes that follow from their inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import proxy

import numpy as np

from kvviz.engine.plan import Counts, Plan, PlannedNode
from kvviz.engine.recorded_answers import Answer, Answers, Key, count_of
from kvviz.errors import InputError, OpError, UnknownValueError
from kvviz.graph.model import Graph, Node
from kvviz.memory.ghosts import forget, ghost, is_ghost, why_unknown
from kvviz.ops.movement.cast import DTYPES
from kvviz.ops.output_layouts import Layout, UnknownLengthError, check_use, layout_rule, size_of
from kvviz.ops.transformer.attention_core import to_heads
from kvviz.ops.transformer.multi_head_attention import projected

MOST_KNOWN = 1 << 20
# With so few elements in all, an op of the usual kinds makes no more than `MOST_KNOWN`.
_FEW = 1024
# Ops whose result may be large although their inputs are small.
_BY_VALUE = {"ConstantOfShape", "Expand", "EyeLike", "OneHot", "Pad", "Range", "Resize", "Tile", "Upsample"}
# Their kernels use only the layout of the viewed input; the other inputs have to be known.
_VIEWS = {"BitCast", "Expand", "Identity", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"}
# The bytes that these move follow from the layouts of their inputs.
_COST_BY_LAYOUT = {"Concat", "Scatter", "ScatterElements", "ScatterND", "TensorScatter"}
# These put elements into lists or pick them, in any kernel; by position, the inputs that have to be known.
_LISTS: dict[str, tuple[int, ...]] = {
    "Optional": (),
    "OptionalGetElement": (),
    "OptionalHasElement": (),
    "SequenceAt": (1,),
    "SequenceConstruct": (),
    "SequenceEmpty": (),
    "SequenceErase": (1,),
    "SequenceInsert": (2,),
    "SequenceLength": (),
    "SplitToSequence": (1,),
}


def use_ghosts(graph: Graph, planned: PlannedNode, counts: Counts) -> None:
    """Let a planned node make ghosts instead of numbers; ``counts`` has the counts that depend on data."""
    if planned.control:
        if planned.control not in ("If", "Loop"):
            check_use(planned.node, count_of(counts, graph, planned.node))
        return
    kernel = _GhostKernel(graph, planned, counts)
    # The answers hold the plan that this node belongs to.
    answers: Any = proxy(counts) if isinstance(counts, Answers) else None
    planned.call = (
        kernel.run if answers is None else partial(_run_or_answered, kernel, answers, (graph.path, planned.node.name))
    )
    known = partial(_of_known, planned, answers, (graph.path, planned.node.name))
    planned.grows = tuple(
        replace(grow, rows=known(grow.rows, partial(_grown_rows, grow.input, grow.output))) for grow in planned.grows
    )
    if planned.cost is not None and planned.node.op_type not in _COST_BY_LAYOUT:
        planned.cost = known(planned.cost, lambda answer, args: answer.moved)
    if planned.written is not None:
        planned.written = known(planned.written, lambda answer, args: answer.rows)


def check_known(planned: PlannedNode, position: int, value: Any) -> None:
    """Raise `UnknownValueError` if a node needs a number that a ghost does not have."""
    if value is not None and is_ghost(value):
        node = planned.node
        if why := why_unknown(value):
            raise UnknownValueError(
                f"node {node.name!r} ({node.qualified_op}) needs to know its input {position}: {why}"
            )
        raise UnknownValueError(
            f"node {node.name!r} ({node.qualified_op}) needs the value of {node.inputs[position]!r}, which depends on "
            "data; a dry run knows shapes only: give the input that it is computed from, or run the model with numbers"
        )


def stated(plan: Plan, planned: PlannedNode, position: int, value: Any) -> Any:
    """A number that control flow depends on: the value itself, or the caller's count if it is a ghost."""
    if value is None or plan.dry is None:
        return value
    node = planned.node
    count, known = count_of(plan.dry, plan.graph, node), not is_ghost(value)
    if count is not None and planned.control == "If":
        branch = bool(np.reshape(value, ())) if known else None
        if count not in (0, 1) or branch not in (None, bool(count)):
            why = "it takes 1 or 0" if branch is None else f"its condition is known to be {branch}"
            raise InputError(f"counts says {count} for node {node.name!r} (If), but {why}")
    if known:
        return value
    if count is not None:
        return np.array(count)
    what = "its condition" if planned.control == "If" or position else "its trip count"
    number = "1 or 0" if planned.control == "If" else "the iterations"
    raise UnknownValueError(
        f"node {node.name!r} ({node.qualified_op}): {what} depends on data, which a dry run does not know; "
        f"state it: counts={{{node.name!r}: {number}}}"
    )


def _of_known(
    planned: PlannedNode,
    answers: Answers | None,
    key: Key,
    rule: Callable[..., Any],
    recorded: Callable[..., Any],
) -> Callable[..., Any]:
    """A rule that may read lengths and indices, which have to be known; ``recorded(answer, args)`` returns its recorded
    result."""

    def checked(args: Sequence[Any], *others: Any) -> Any:
        try:
            for position, value in enumerate(args):
                if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size <= _FEW:
                    check_known(planned, position, value)
        except UnknownValueError:
            answer = None if answers is None else answers.of(key, args)
            if answer is None:
                raise
            return recorded(answer, args)
        return rule(args, *others)

    return checked


def _grown_rows(past: int, present: int, answer: Answer, args: Sequence[Any]) -> int:
    old, new = args[past].shape, answer.layouts[present][0]
    return sum(m - n for n, m in zip(old, new))


def _run_or_answered(kernel: _GhostKernel, answers: Answers, key: Key, *args: Any, **how: Any) -> Any:
    """The result of a node's kernel; if that depends on data, its recorded result."""
    answer = answers.next(key, args)
    try:
        if answer is None or not answers.doubts(kernel.planned.node):
            return kernel.run(*args, **how)
    except UnknownValueError:
        if answer is None:
            raise
    assert answer is not None
    if kernel.views is not None and (seen := _seen(kernel, args, answer)) is not None:
        return seen
    return kernel.made(args, layouts=answer.layouts, **how)


def _seen(kernel: _GhostKernel, args: Sequence[Any], answer: Answer) -> Any:
    """The views that an op returned, if its input can be viewed that way."""
    assert kernel.views is not None
    x, node = args[0], kernel.planned.node
    shapes = [None if layout is None else layout[0] for layout in answer.layouts]
    if node.op_type == "Split":
        axis = kernel.planned.attributes.get("axis", 0)
        ends = np.cumsum([0 if shape is None else shape[axis] for shape in shapes])
        return tuple(np.split(x, ends[:-1], axis)) if ends[-1] == x.shape[axis] else None
    try:
        return kernel.views(args)
    except UnknownValueError:
        with suppress(ValueError):
            return _seen_as(x, shapes[0] or ())
    return None


def _seen_as(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A view of an array in a recorded shape: another shape of all elements, or the first along each axis."""
    if math.prod(shape) == x.size:
        return np.reshape(x, shape, copy=False)
    if len(shape) == x.ndim and all(n <= m for n, m in zip(shape, x.shape)):
        return x[tuple(slice(n) for n in shape)]
    return np.broadcast_to(x, shape)


class _GhostKernel:
    def __init__(self, graph: Graph, planned: PlannedNode, counts: Counts) -> None:
        node, spec = planned.node, planned.spec
        self.planned = planned
        self.compute = planned.call
        self.unread = frozenset(spec.unread) if spec is not None else frozenset()
        self.bounded = node.op_type not in _BY_VALUE
        self.views = _view_rule(planned)
        self.presents = _presents_rule(node)
        elsewhere = (1, 2) if self.presents is not None else ()
        count = count_of(counts, graph, node)
        self.rule = layout_rule(graph, node, spec, planned.attributes, count, elsewhere)
        if self.views is not None:
            check_use(node, count)
        self.single = len(node.outputs) == 1

    def run(self, *args: Any, out: Any = None, grown: Any = None) -> Any:
        for position, value in enumerate(args):
            if is_ghost(value) and position not in self.unread:
                break
        else:
            if self._is_small(args):
                how = {name: value for name, value in (("out", out), ("grown", grown)) if value is not None}
                return self.compute(*args, **how)
        if self.views is not None and (seen := self.views(args)) is not None:
            return seen
        return self.made(args, out, grown)

    def made(
        self, args: Sequence[Any], out: Any = None, grown: Any = None, layouts: Sequence[Layout | None] = ()
    ) -> Any:
        """New ghosts, except for outputs that are written in place."""
        if self.single and grown is None:
            if out is None:
                layout = (layouts or self._layouts(args))[0]
                return None if layout is None else ghost(*layout)
            forget(out)
            return out
        made = [None if layout is None else ghost(*layout) for layout in layouts or self._layouts(args)]
        if out is not None:
            forget(out)
            made[0] = out
        for grow, present in zip(self.planned.grows, grown or ()):
            if present is not None:
                forget(present)
                made[grow.output] = present
        if self.presents is not None:
            for output, present in enumerate(self.presents(args, self.planned.attributes), 1):
                if output < len(made) and self.planned.outputs[output] and made[output] is None:
                    made[output] = present
        return made[0] if self.single else tuple(made)

    def _layouts(self, args: Sequence[Any]) -> list[Layout | None]:
        try:
            return self.rule(args)
        except UnknownValueError as error:
            for position, value in enumerate(args):
                if why_unknown(value):
                    check_known(self.planned, position, value)
            node, advice = self.planned.node, "run the model with numbers"
            if isinstance(error, UnknownLengthError):
                advice = f"state how many elements it gives: counts={{{node.name!r}: n}}"
            raise UnknownValueError(
                f"node {node.name!r} ({node.qualified_op}): {error}, which a dry run does not know; {advice}"
            ) from None

    def _is_small(self, args: Sequence[Any]) -> bool:
        """Whether known values yield no more than `MOST_KNOWN` elements."""
        sizes = [a.size for i, a in enumerate(args) if isinstance(a, np.ndarray) and i not in self.unread]
        if self.bounded and all(size <= _FEW for size in sizes):
            return True
        if any(size > MOST_KNOWN for size in sizes):
            return False
        try:
            return sum(map(size_of, self.rule(args))) <= MOST_KNOWN
        except UnknownValueError:
            return True


def _view_rule(planned: PlannedNode) -> Callable[[Sequence[Any]], Any] | None:
    """``rule(args)`` returns the op's result if that is a view, or None if it makes a new value."""
    op, call = planned.node.op_type, planned.call
    if planned.node.domain:
        return None
    if op in _LISTS:
        return lambda args: _viewed(planned, call, args, _LISTS[op])
    if planned.spec is None:
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
        return lambda args: _viewed(planned, call, args, range(1, len(args)))
    return None


def _viewed(planned: PlannedNode, call: Callable[..., Any], args: Sequence[Any], numbers: Sequence[int]) -> Any:
    """The result of a kernel that reads layouts and some numbers."""
    for position in numbers:
        if position < len(args):
            check_known(planned, position, args[position])
    return call(*args)


def _kept(planned: PlannedNode, args: Sequence[Any]) -> Any:
    """The result of Dropout if it drops nothing, as in inference."""
    for position, value in enumerate(args[1:], 1):
        check_known(planned, position, value)
    _, ratio, training = (*args, None, None)[:3]
    if training is not None and bool(training) and (ratio is None or float(ratio)):
        return None
    x = args[0]
    mask = np.bool_ if planned.node.opset >= 10 else x.dtype
    return (x, ghost(x.shape, mask)) if len(planned.outputs) > 1 else x


class _Uncopied(np.ndarray):
    """An array whose reshape raises `ValueError` if it takes a copy."""

    def reshape(self, *sizes: Any) -> np.ndarray:  # type: ignore[override]
        return np.reshape(self.view(np.ndarray), sizes[0] if len(sizes) == 1 else sizes, copy=False)


def _reshaped(planned: PlannedNode, call: Callable[..., np.ndarray], args: Sequence[Any]) -> np.ndarray | None:
    """The kernel's own view if the strides allow one: how a length is written (-1) decides about strides."""
    x = args[0]
    for position, value in enumerate(args[1:], 1):
        check_known(planned, position, value)
    try:
        return call(x.view(_Uncopied), *args[1:])
    except (OpError, ValueError):
        call(np.broadcast_to(np.empty((), x.dtype), x.shape), *args[1:])  # raises for a shape that does not fit
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


def _presents_rule(node: Node) -> Callable[..., list[np.ndarray]] | None:
    """The function for an operator's keys and values unless they are the past with more rows."""
    past, own = _PRESENTS.get((node.domain, node.op_type), (0, None))
    if own is not None and any(node.inputs[past : past + 1]):
        # In caches of fixed size MultiHeadAttention overwrites rows.
        fixed = any(node.inputs[8:9])
        return (lambda args, attributes: [ghost(past.shape, past.dtype) for past in args[6:8]]) if fixed else None
    return own


# The position of the past without which an operator returns its own keys and values, and a function for these.
_PRESENTS: dict[tuple[str, str], tuple[int, Callable[..., list[np.ndarray]]]] = {
    ("", "Attention"): (4, _attention_presents),
    ("com.microsoft", "MultiHeadAttention"): (6, _multi_head_presents),
}
