"""Operators that choose or combine among several tensors: Where, Clip, Min, Max, Sum, Mean."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.numeric import contiguous, in_float32, is_narrow, keeps, spreads
from kvviz.ops.registry import op


@op("Where", since=9, overwrites=(1, 2), fits=spreads, by_element=True)
def where(condition, x, y, *, out=None):
    """``x`` where the condition holds, else ``y``; only what changes is written when one of them is overwritten."""
    if out is None:
        z = np.where(condition, x, y)
        return z if z.flags.c_contiguous else z.copy()
    if out is y:
        np.copyto(out, x, where=condition)
    else:
        np.copyto(out, y, where=np.logical_not(condition))
    return out


@op("Clip", since=11, overwrites=(0,), fits=keeps, by_element=True)
def clip(x, low=None, high=None, *, out=None):
    """Limit to ``[low, high]``; where low is above high, all becomes high."""
    if low is None:
        if high is None:
            return out if out is not None else x.copy()
        return contiguous(np.minimum(x, _number(high), out=out), out)
    y = np.maximum(x, _number(low), out=out)
    if high is not None:
        y = np.minimum(y, _number(high), out=out)
    return contiguous(y, out)


def _number(bound):
    """A bound as a scalar tensor; some exporters write it with shape (1,)."""
    if bound.ndim == 0:
        return bound
    if bound.size != 1:
        raise OpError(f"a bound of Clip must be one number, but has shape {bound.shape}")
    return bound.reshape(())


@op("Clip", overwrites=(0,), fits=keeps, by_element=True)
def clip_by_attributes(x, *, min=-3.4028234663852886e38, max=3.4028234663852886e38, out=None):
    y = np.maximum(x, np.asarray(min, x.dtype), out=out)
    return contiguous(np.minimum(y, np.asarray(max, x.dtype), out=out), out)


def _folding(ufunc: np.ufunc) -> Callable:
    """A kernel that folds any number of tensors from the left. After the first step no input but ``out`` is read."""

    def kernel(first, *others, out=None):
        if not others:
            return out if out is not None else first.copy()
        y = ufunc(first, others[0], out=out)
        for other in others[1:]:
            y = ufunc(y, other, out=out)
        return y if out is not None or y.flags.c_contiguous else y.copy()

    kernel.__name__ = ufunc.__name__
    return kernel


op("Min", overwrites=(0, 1), commutative=True, by_element=True)(_folding(np.minimum))
op("Max", overwrites=(0, 1), commutative=True, by_element=True)(_folding(np.maximum))


@op("Sum", overwrites=(0, 1), commutative=True)
def add_all(first, *others, out=None):
    """Sum of any number of tensors; narrow floats are rounded once, at the end."""
    if is_narrow(first) and len(others) > 1:
        return in_float32(add_all, first, *others, out=out)
    return _add_from_left(first, *others, out=out)


@op("Mean", overwrites=(0, 1), commutative=True)
def mean_of_all(first, *others, out=None):
    if is_narrow(first):
        return in_float32(mean_of_all, first, *others, out=out)
    total = _add_from_left(first, *others, out=out)
    return contiguous(np.divide(total, len(others) + 1, out))


_add_from_left = _folding(np.add)
