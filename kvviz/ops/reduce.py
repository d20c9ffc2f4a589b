"""Reductions over axes: sums, means, norms, products, extremes, and the logarithms of sums.

Opset 18 (13 for ReduceSum) moved the axes from an attribute to an input; the kernels take either.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kvviz.ops.arguments import counted, ints
from kvviz.ops.numeric import FLOAT32, FLOAT64
from kvviz.ops.registry import op

_sum = np.add.reduce


def _reducing(*names: str) -> Callable[[Callable], Callable]:
    """Register ``body(x, axes, keep)``: ``axes`` is None for all, or a tuple; an empty one reduces over nothing."""

    def register(body: Callable) -> Callable:
        def kernel(x, where=None, *, axes=None, keepdims=1, noop_with_empty_axes=0):
            if where is not None or axes is not None:
                axes = tuple(ints(where, axes) or ())
            if not axes:
                axes = () if noop_with_empty_axes else None
            try:
                y = body(x, axes, keepdims != 0)
            except ValueError:
                # An axis that is out of range, or named twice, which runtimes take.
                y = body(x, axes and tuple({counted(axis, x.ndim): 0 for axis in axes}), keepdims != 0)
            return y if y.flags.c_contiguous else y.copy()

        kernel.__name__ = names[0]
        op(*names)(kernel)
        return body

    return register


def _room(dtype: np.dtype) -> np.dtype:
    """The dtype to add up in: narrow floats would lose small addends, all others keep their own."""
    return FLOAT32 if dtype.itemsize < 4 and dtype.kind not in "iub" else dtype


@_reducing("ReduceSum")
def reduce_sum(x, axes, keep):
    """Sum; integers wrap around in their own width."""
    dtype = x.dtype
    if dtype.char in "fd":
        return _sum(x, axes, None, None, keep)
    return _sum(x, axes, _room(dtype), None, keep).astype(dtype, copy=False)


@_reducing("ReduceMean")
def reduce_mean(x, axes, keep):
    """Mean; that of integers is cut towards zero."""
    dtype = x.dtype
    if dtype.char in "fd":
        total = _sum(x, axes, None, None, keep)
        return np.divide(total, x.size / total.size) if total.size else total
    total = _sum(x, axes, _room(dtype) if dtype.kind not in "iu" else None, None, keep)
    if not total.size:
        return total.astype(dtype)
    count = x.size // total.size
    return (total / count if dtype.kind not in "iu" else np.trunc(total / count)).astype(dtype)


@_reducing("ReduceMax")
def reduce_max(x, axes, keep):
    """Largest element; of an empty set the lowest number of the dtype."""
    if x.size:
        return np.maximum.reduce(x, axes, None, None, keep)
    return np.maximum.reduce(x, axes, None, None, keep, _edge(x.dtype, -1))


@_reducing("ReduceMin")
def reduce_min(x, axes, keep):
    """Smallest element; of an empty set the highest number of the dtype."""
    if x.size:
        return np.minimum.reduce(x, axes, None, None, keep)
    return np.minimum.reduce(x, axes, None, None, keep, _edge(x.dtype, 1))


def _edge(dtype: np.dtype, sign: int) -> np.ndarray:
    if dtype.kind == "b":
        return np.asarray(sign > 0)
    if dtype.kind in "iu":
        return np.asarray(np.iinfo(dtype).max if sign > 0 else np.iinfo(dtype).min, dtype)
    return np.asarray(sign * np.inf, dtype)


@_reducing("ReduceLogSumExp")
def reduce_log_sum_exp(x, axes, keep):
    """Logarithm of the sum of exponentials; the largest element is taken out first, so that none overflows."""
    x, dtype = _fractional(x), x.dtype
    top = np.maximum.reduce(x, axes, None, None, True, -np.inf)
    top = np.where(np.isfinite(top), top, np.zeros((), x.dtype))
    total = np.log(_sum(np.exp(x - top), axes, None, None, keep))
    return np.add(total, top.reshape(total.shape)).astype(dtype, copy=False)


def _roomy(x: np.ndarray) -> np.ndarray:
    return x.astype(_room(x.dtype), copy=False)


def _fractional(x: np.ndarray) -> np.ndarray:
    """In a float dtype wide enough: integers go to float64, narrow floats to float32."""
    return x.astype(FLOAT64 if x.dtype.kind in "iu" else _room(x.dtype), copy=False)


def _widely(widened: Callable, total: Callable) -> Callable:
    """The body that adds up in a wider dtype and rounds once."""
    return lambda x, axes, keep: total(widened(x), axes, keep).astype(x.dtype, copy=False)


for _name, _widened, _total in (
    ("ReduceProd", _roomy, lambda x, axes, keep: np.multiply.reduce(x, axes, x.dtype, None, keep)),
    ("ReduceL1", _roomy, lambda x, axes, keep: _sum(np.absolute(x), axes, x.dtype, None, keep)),
    ("ReduceSumSquare", _roomy, lambda x, axes, keep: _sum(np.multiply(x, x), axes, x.dtype, None, keep)),
    ("ReduceL2", _fractional, lambda x, axes, keep: np.sqrt(_sum(np.multiply(x, x), axes, None, None, keep))),
    ("ReduceLogSum", _fractional, lambda x, axes, keep: np.log(_sum(x, axes, None, None, keep))),
):
    _reducing(_name)(_widely(_widened, _total))
