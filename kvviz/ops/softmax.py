"""Softmax, LogSoftmax and Hardmax, in both meanings of ``axis``."""

from __future__ import annotations

import math

import numpy as np

from kvviz.ops.arguments import counted
from kvviz.ops.numeric import blank, in_float32
from kvviz.ops.registry import op

_largest = np.maximum.reduce
_sum = np.add.reduce


def _flattened(kernel):
    """The meaning up to opset 12: the tensor counts as a matrix, split before ``axis`` (1 by default)."""

    def flat(x, *, axis=1, out=None):
        axis = counted(axis, x.ndim) if x.ndim else 0
        matrix = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
        y = kernel(x.reshape(matrix), axis=1, out=None if out is None else out.reshape(matrix))
        return y.reshape(x.shape) if out is None else out

    flat.__name__ = f"flat_{kernel.__name__}"
    return flat


@op("Softmax", since=13, overwrites=(0,))
def softmax(x, *, axis=-1, out=None):
    """Exponentials along one axis, scaled to the sum 1. A row of -inf gives NaN, as ONNX has it. float16 is computed in
    float16, as the node tests of ONNX expect it."""
    if x.dtype.char not in "efd":
        return in_float32(softmax, x, axis=axis, out=out)
    y = blank(x) if out is None else out
    if not x.size:
        return y
    np.subtract(x, _largest(x, axis, None, None, True), y)
    np.exp(y, y)
    return np.divide(y, _sum(y, axis, None, None, True), y)


@op("LogSoftmax", since=13, overwrites=(0,))
def log_softmax(x, *, axis=-1, out=None):
    """Logarithm of softmax, without the detour over numbers that underflow."""
    if x.dtype.char not in "fd":
        return in_float32(log_softmax, x, axis=axis, out=out)
    y = blank(x) if out is None else out
    if not x.size:
        return y
    np.subtract(x, _largest(x, axis, None, None, True), y)
    return np.subtract(y, np.log(_sum(np.exp(y), axis, None, None, True)), y)


@op("Hardmax", since=13, overwrites=(0,))
def hardmax(x, *, axis=-1, out=None):
    """1 at the first of the largest elements along one axis, else 0."""
    y = blank(x) if out is None else out
    if not x.size:
        return y
    first = np.expand_dims(x.argmax(axis), axis)
    y[...] = 0
    np.put_along_axis(y, first, np.ones((), x.dtype), axis)
    return y


op("Softmax", since=1, overwrites=(0,))(_flattened(softmax))
op("LogSoftmax", since=1, overwrites=(0,))(_flattened(log_softmax))
op("Hardmax", since=1, overwrites=(0,))(_flattened(hardmax))
