"""Which inputs onnxruntime's CPU kernels must share or may overwrite (version 1.31.1), and its planner's refusals, as
bits."""

from __future__ import annotations

import numpy as np

from kvviz.graph.model import Dim, Node, Value
from kvviz.trace import blockers as b

Pairs = tuple[tuple[int, int], ...]

_FIRST: Pairs = ((0, 0),)
# Operators whose output is their input under another shape or type, whatever else reads it.
ALIAS: dict[tuple[str, str], Pairs] = {
    ("", "BatchNormalization"): ((3, 1), (4, 2)),
    ("", "Flatten"): _FIRST,
    ("", "Identity"): _FIRST,
    ("", "Optional"): _FIRST,
    ("", "OptionalGetElement"): _FIRST,
    ("", "Reshape"): _FIRST,
    ("", "Squeeze"): _FIRST,
    ("", "Unsqueeze"): _FIRST,
    ("com.microsoft", "ExpandDims"): _FIRST,
}
_OVERWRITING = (
    "BitCast Cast Celu Clip Elu HardSigmoid LeakyRelu LogSoftmax Relu Scatter ScatterElements Selu Shrink Sigmoid"
    " Softmax Softplus Softsign Tanh TensorScatter ThresholdedRelu Trilu"
)
MAY_INPLACE: dict[tuple[str, str], Pairs] = {("", op): _FIRST for op in _OVERWRITING.split()}
MAY_INPLACE["com.microsoft", "Trilu"] = _FIRST
# The addend of the product may become the result.
MAY_INPLACE["com.microsoft", "FusedConv"] = MAY_INPLACE["com.microsoft.nchwc", "Conv"] = ((3, 0),)
# These have two registered kernels; the one for doubles does not declare that it may run in place.
_NOT_FOR_DOUBLES = {("", "Softmax"), ("", "LogSoftmax")}
# Kernels that find out at run time whether a past and a present are one buffer, and then only write the new rows.
BY_ADDRESS: dict[tuple[str, str], Pairs] = {("com.microsoft", "GroupQueryAttention"): ((3, 1), (4, 2))}


def by_address(node: Node) -> Pairs:
    """Pairs (past, present) whose buffers the kernel compares."""
    return BY_ADDRESS.get((node.domain, node.op_type), ())


def alias(node: Node) -> Pairs:
    """Pairs (input, output) that share one buffer whatever else reads it."""
    return ALIAS.get((node.domain, node.op_type), ())


def may_inplace(node: Node, dtype: np.dtype | None = None) -> Pairs:
    """Pairs (input, output) where the output may overwrite the input after its last read. ``dtype``: of the first
    input."""
    key = node.domain, node.op_type
    if key in _NOT_FOR_DOUBLES and dtype == np.float64:
        return ()
    return MAY_INPLACE.get(key, ())


RULES = (
    "{op} cannot overwrite {input}: what it makes is an output of the graph, and {policy} gives those their own memory",
    "{op} cannot overwrite {input}: {policy} plans before it runs, and does not know then that both have one size, "
    "because a dimension has neither a number nor a name",
    "{op} cannot overwrite {input}: {policy} compares lengths by name before it runs, and here the names differ",
    "{op} cannot overwrite {input}: {policy} never uses memory of strings again",
)
Size = tuple[int, tuple[Dim, ...]]
OUTPUT, UNKNOWN, NAMES, TEXT = (b.rule(number) for number in range(len(RULES)))


def size(one: Value | None, other: Value | None) -> int:
    """Why two values do not count as being of one size; 0 if they do. Element sizes and dimensions must be equal, each
    by number or by name. The number of bytes is not compared: 4 by 8 is not 8 by 4."""
    if one is None or other is None or one.kind != "tensor" or other.kind != "tensor":
        return UNKNOWN
    if one.dtype is None or other.dtype is None or one.shape is None or other.shape is None:
        return UNKNOWN
    mask = TEXT if "O" in (one.dtype.kind, other.dtype.kind) else 0
    if one.dtype.itemsize != other.dtype.itemsize:
        mask |= b.DTYPE_DIFFERS
    if len(one.shape) != len(other.shape):
        return mask | b.SHAPE_DIFFERS
    for a, c in zip(one.shape, other.shape):
        mask |= _dim(a, c)
    return mask


def size_of(value: Value | None) -> Size | None:
    """A key, equal for values for which `size` has no reason; None if it has one for any other value."""
    if value is None or value.kind != "tensor" or value.dtype is None or value.shape is None:
        return None
    if value.dtype.kind == "O" or None in value.shape:
        return None
    return value.dtype.itemsize, value.shape


def _dim(a: Dim, c: Dim) -> int:
    if a is None or c is None:
        return UNKNOWN
    if a == c:
        return 0
    return b.SHAPE_DIFFERS if isinstance(a, int) and isinstance(c, int) else NAMES


_WORDS = {
    b.NOT_LAST_USE: "it is read again later",
    b.REQUESTED_OUTPUT: "it is an output of the graph",
    b.BORROWED_INPUT: "it belongs to the caller",
    b.CONSTANT: "it is a weight",
    b.CAPTURED_BY_REFERENCE: "it is borrowed from outside this body",
    b.ALIASED: "another value lives in its buffer",
    b.SAME_OP_TWICE: "the op reads it twice",
    b.SHAPE_DIFFERS: "the shapes differ",
    b.DTYPE_DIFFERS: "the elements are of another size",
    OUTPUT: "the result is an output of the graph",
    UNKNOWN: "a dimension has neither a number nor a name",
    NAMES: "the dimensions have different names",
    TEXT: "it holds strings",
}


def words(mask: int) -> list[str]:
    return [text for bit, text in _WORDS.items() if mask & bit]
