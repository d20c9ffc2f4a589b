"""Reductions over axes: sums, means, norms, products, extremes, and the logarithms of sums.

Opset 18 (13 for ReduceSum) moved the axes from an attribute to an input; the kernels take either.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.numeric import FLOAT32, FLOAT64, constant, contiguous, counted, ints, is_narrow, scalar, whole_limits
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
                # An axis that is out of range, or named twice, which runtimes accept.
                y = body(x, axes and tuple({counted(axis, x.ndim): 0 for axis in axes}), keepdims != 0)
            return y if y.flags.c_contiguous else y.copy()

        op(*names)(kernel)
        return body

    return register


def _folding(fold: Callable, before: Callable | None = None, after: Callable | None = None) -> Callable:
    """Sums or products of elements. Integers of up to 32 bits end at the limits of their dtype, as in onnxruntime 1.31;
    longer ones wrap around (onnxruntime computes them in float64, which is not exact)."""

    def body(x, axes, keep):
        short = x.dtype.kind in "iu" and x.itemsize < 8
        y = x.astype(FLOAT32 if is_narrow(x) else FLOAT64 if short else x.dtype, copy=False)
        y = fold(y if before is None else before(y), axes, y.dtype, None, keep)
        y = y if after is None else after(y)
        return (np.clip(y, *whole_limits(x.dtype)) if short else y).astype(x.dtype, copy=False)

    return body


_reducing("ReduceSum")(_folding(_sum))
_reducing("ReduceProd")(_folding(np.multiply.reduce))
_reducing("ReduceSumSquare")(_folding(_sum, np.square))
_reducing("ReduceL1")(_folding(_sum, np.absolute))
_reducing("ReduceL2")(_folding(_sum, np.square, np.sqrt))
_reducing("ReduceLogSum")(_folding(_sum, after=np.log))


@_reducing("ReduceLogSumExp")
def reduce_log_sum_exp(x, axes, keep):
    """Logarithm of the sum of exponentials, which cannot overflow without the largest element."""
    wide = x.astype(FLOAT32 if is_narrow(x) else FLOAT64 if x.dtype.kind in "iu" else x.dtype, copy=False)
    top = np.maximum.reduce(wide, axes, None, None, True, -np.inf)
    top = np.where(np.isfinite(top), top, wide.dtype.type(0))
    y = np.log(_sum(np.exp(wide - top), axes, None, None, keep))
    return (y + top.reshape(y.shape)).astype(x.dtype, copy=False)


@_reducing("ReduceMean")
def reduce_mean(x, axes, keep):
    """Mean; that of integers is truncated towards zero."""
    total = _sum(x, axes, FLOAT32 if is_narrow(x) else None, None, keep)
    if total.size:
        total = total / constant(x.size // total.size, total.dtype)
    return (np.trunc(total) if x.dtype.kind in "iu" else total).astype(x.dtype, copy=False)


@_reducing("ReduceMax")
def reduce_max(x, axes, keep):
    """Largest element; of an empty set the lowest number of the dtype."""
    return _most(np.maximum, x, axes, keep)


@_reducing("ReduceMin")
def reduce_min(x, axes, keep):
    """Smallest element; of an empty set the highest number of the dtype."""
    return _most(np.minimum, x, axes, keep)


def _most(ufunc, x, axes, keep):
    if x.size:
        return ufunc.reduce(x, axes, None, None, keep)
    lowest, highest = (False, True) if x.dtype.kind == "b" else whole_limits(x.dtype) or (-np.inf, np.inf)
    return ufunc.reduce(x, axes, None, None, keep, np.asarray(lowest if ufunc is np.maximum else highest, x.dtype))


# Order along an axis: ArgMax, ArgMin, TopK, and the running sums and products.


_PARTIAL = 1024


def _choosing(choose: Callable) -> Callable:
    def kernel(x, *, axis=0, keepdims=1, select_last_index=0):
        if select_last_index:
            return x.shape[axis] - 1 - choose(np.flip(x, axis), axis, keepdims=keepdims != 0)
        return choose(x, axis, keepdims=keepdims != 0)

    return kernel


op("ArgMax")(_choosing(np.ndarray.argmax))
op("ArgMin")(_choosing(np.ndarray.argmin))


@op("TopK", since=11)
def top_k(x, k, *, axis=-1, largest=1, sorted=1):
    """The k largest or smallest elements along an axis and their indices; the lower index comes first among equals.
    ``sorted=0`` allows any order; ours is sorted anyway."""
    axis = counted(axis, x.ndim)
    count = int(scalar(k, "K"))
    length = x.shape[axis]
    if not 0 <= count <= length:
        raise OpError(f"TopK: K is {count}, but axis {axis} of {x.shape} has {length} elements")
    rows = np.moveaxis(x, axis, -1)
    if length >= _PARTIAL and count * 8 < length:
        order = np.empty((*rows.shape[:-1], count), np.int64)
        for place in np.ndindex(rows.shape[:-1]):
            order[place] = _best_of_row(rows[place], count, largest)
    else:
        order = _ranking(rows, largest)[..., :count]
    indices = np.ascontiguousarray(np.moveaxis(order, -1, axis))
    return np.take_along_axis(x, indices, axis), indices


@op("TopK", since=10)
def top_k_largest(x, k, *, axis=-1):
    return top_k(x, k, axis=axis)


@op("TopK", since=1)
def top_k_attribute(x, *, k, axis=-1):
    return top_k(x, np.asarray(k), axis=axis)


def _ranking(x, largest):
    """Indices along the last axis, best first; equals in index order."""
    if not largest:
        return x.argsort(-1, kind="stable")
    # Sorting the reversed row upwards and reading it backwards keeps equals in order, without a negation that may
    # overflow.
    return x.shape[-1] - 1 - x[..., ::-1].argsort(-1, kind="stable")[..., ::-1]


def _best_of_row(row, count, largest):
    """The best of one long row: a partition finds the weakest that counts, and only those are sorted."""
    if not count:
        return np.empty(0, np.int64)
    limit = np.partition(row, row.size - count if largest else count - 1)[row.size - count if largest else count - 1]
    candidates = np.flatnonzero(row >= limit if largest else row <= limit)
    if candidates.size < count:  # NaN compares with nothing
        return _ranking(row, largest)[:count]
    return candidates[_ranking(row[candidates], largest)[:count]]


@op("CumSum", since=11)
def cumulative_sum(x, axis, *, exclusive=0, reverse=0):
    """Running sum along an axis; exclusive ones leave out the element itself."""
    return _running(np.add, 0, x, axis, exclusive, reverse)


@op("CumProd", since=26)
def cumulative_product(x, axis, *, exclusive=0, reverse=0):
    return _running(np.multiply, 1, x, axis, exclusive, reverse)


def _running(ufunc, start, x, axis, exclusive, reverse):
    axis = counted(int(scalar(axis, "axis")), x.ndim)
    dtype = FLOAT32 if is_narrow(x) else x.dtype
    y = ufunc.accumulate(np.flip(x, axis) if reverse else x, axis, dtype)
    if exclusive:
        y = np.roll(y, 1, axis)
        y[(slice(None),) * axis + (slice(1),)] = start
    return contiguous((np.flip(y, axis) if reverse else y).astype(x.dtype, copy=False))
