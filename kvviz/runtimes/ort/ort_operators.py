"""Which inputs onnxruntime's CPU kernels must share with an output, and which they may overwrite (version 1.31.1).

Kernels say so where they are registered (``Alias``, ``MayInplace``). Measured on the released wheel for every operator
that has a kernel here; `tests/engine/ort/test_tables.py` measures again. What is not listed allocates: so do Add, Mul,
Exp and Gelu, which could be computed in place.
"""

from __future__ import annotations

import numpy as np

from kvviz.graph.model import Node

Pairs = tuple[tuple[int, int], ...]

_FIRST: Pairs = ((0, 0),)
# Operators whose output is their input under another shape or type; nothing is asked about other readers.
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
# What is added to the product may become it.
MAY_INPLACE["com.microsoft", "FusedConv"] = MAY_INPLACE["com.microsoft.nchwc", "Conv"] = ((3, 0),)
# Two kernels are registered for these; the one for doubles does not say that it may run in place.
_NOT_FOR_DOUBLES = {("", "Softmax"), ("", "LogSoftmax")}
# Kernels that find out when they run whether a past and a present are one buffer, and then only write the new rows.
BY_ADDRESS: dict[tuple[str, str], Pairs] = {("com.microsoft", "GroupQueryAttention"): ((3, 1), (4, 2))}


def by_address(node: Node) -> Pairs:
    """Pairs (past, present) whose buffers the kernel compares."""
    return BY_ADDRESS.get((node.domain, node.op_type), ())


def alias(node: Node) -> Pairs:
    """Pairs (input, output) that share one buffer whatever else reads it."""
    return ALIAS.get((node.domain, node.op_type), ())


def may_inplace(node: Node, dtype: np.dtype | None = None) -> Pairs:
    """Pairs (input, output) where the output may overwrite the input if nobody else reads that any more.

    ``dtype``: element type of its first input.
    """
    key = node.domain, node.op_type
    if key in _NOT_FOR_DOUBLES and dtype == np.float64:
        return ()
    return MAY_INPLACE.get(key, ())
