"""Normalisation over trailing axes: layer and RMS norm, alone or with the residual sum before them.

They run millions of times on one row of some hundred numbers, so each is a handful of NumPy calls.
"""

from __future__ import annotations

import math

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.arguments import counted
from kvviz.ops.numeric import FLOAT32, FLOAT64, blank, contiguous, keeps, rounded, spreads
from kvviz.ops.registry import op

MICROSOFT = "com.microsoft"

_sum = np.add.reduce


def _like_scale(args, position, attributes):
    """The output has the shape of the input, and the dtype of the scale."""
    return "" if args[0].dtype == args[1].dtype else "dtype"


def deviation(x, axes, epsilon):
    """√(mean x² + ε) over -1 or a tuple of axes, which stay as 1."""
    if axes == -1:
        total = np.vecdot(x, x, keepdims=True)
        if total.size == 1 and x.size:
            # One row, as in every decode step: Python does the rest faster than three calls of NumPy.
            total.fill(math.sqrt(total.item() / x.size + epsilon))
            return total
    else:
        total = _sum(np.multiply(x, x), axes, None, None, True)
    np.multiply(total, total.size / max(x.size, 1), total)
    np.add(total, epsilon, total)
    return np.sqrt(total, total)


def mean(x, axes):
    """Mean over -1 or a tuple of axes, which stay as 1."""
    total = _sum(x, axes, None, None, True)
    if total.size == 1 and x.size:
        total.fill(total.item() / x.size)
        return total
    return np.multiply(total, total.size / max(x.size, 1), total)


def _trailing(x, axis):
    """-1 for the last axis, else the tuple of all from ``axis`` on."""
    if axis == -1 or axis == x.ndim - 1:
        return -1
    return tuple(range(counted(axis, x.ndim), x.ndim))


def _checked(scale, x):
    if scale.ndim > x.ndim:
        raise OpError(f"a scale of shape {scale.shape} does not broadcast to {x.shape}")
    return scale


@op("RMSNormalization", since=23, overwrites=(0,), fits=_like_scale)
@op("SimplifiedLayerNormalization", overwrites=(0,), fits=_like_scale)
@op("SimplifiedLayerNormalization", domain=MICROSOFT, overwrites=(0,), fits=_like_scale)
def rms_norm(x, scale, *, axis=-1, epsilon=1e-5, stash_type=1, n_outputs=1, out=None):
    """x / √(mean x² + ε) times the scale, in the scale's dtype; the second output is 1 / √(…) in float32. onnxruntime
    knows it as SimplifiedLayerNormalization, which it registers in the default domain."""
    if x.dtype.char not in "fd" or scale.dtype != x.dtype:
        y, inverse = rms_norm(_wide(x, scale), _wide(scale, x), axis=axis, epsilon=epsilon, n_outputs=2)
        y = rounded(y, scale.dtype, out)
        return y if n_outputs == 1 else (y, inverse)
    root = deviation(x, _trailing(x, axis), epsilon)
    y = np.divide(x, root, blank(x) if out is None else out)
    np.multiply(y, _checked(scale, x), y)
    return y if n_outputs == 1 else (y, np.reciprocal(root, order="C"))


@op("SkipSimplifiedLayerNormalization", domain=MICROSOFT, overwrites=(0, 1), fits=spreads)
def skip_rms_norm(x, skip, gamma, bias=None, *, epsilon=1e-12, n_outputs=1, out=None):
    """RMS norm of ``x + skip + bias``; output 3 is that sum, which feeds the next residual, and output 1, a mean
    that is not taken, holds zeros (onnxruntime 1.31)."""
    if x.dtype.char not in "fd":
        return _in_float32(skip_rms_norm, (x, skip, gamma, bias), epsilon, n_outputs, out)
    total, target = _residual(x, skip, bias, n_outputs, out)
    root = deviation(total, -1, epsilon)
    y = np.divide(total, root, target)
    np.multiply(y, gamma, y)
    return y if n_outputs == 1 else (y, np.zeros_like(root), np.reciprocal(root), total)[:n_outputs]


@op("LayerNormalization", since=17, overwrites=(0,), fits=keeps)
def layer_norm(x, scale, bias=None, *, axis=-1, epsilon=1e-5, stash_type=1, n_outputs=1, out=None):
    """Mean 0 and variance 1 over trailing axes, then scale and bias; also the mean and 1 / deviation in float32."""
    if x.dtype.char not in "fd":
        wide = (_wide(x), _wide(scale), None if bias is None else _wide(bias))
        y, *rest = layer_norm(*wide, axis=axis, epsilon=epsilon, n_outputs=3)
        y = rounded(y, x.dtype, out)
        return y if n_outputs == 1 else (y, *rest)[:n_outputs]
    y, centre, root = _standard(x, _trailing(x, axis), epsilon, blank(x) if out is None else out)
    np.multiply(y, _checked(scale, x), y)
    if bias is not None:
        np.add(y, _checked(bias, x), y)
    return y if n_outputs == 1 else (y, contiguous(centre), np.reciprocal(root, order="C"))[:n_outputs]


@op("SkipLayerNormalization", domain=MICROSOFT, overwrites=(0, 1), fits=spreads)
def skip_layer_norm(x, skip, gamma, beta=None, bias=None, *, epsilon=1e-12, n_outputs=1, out=None):
    """Layer norm of ``x + skip + bias``; output 3 is that sum."""
    if x.dtype.char not in "fd":
        return _in_float32(skip_layer_norm, (x, skip, gamma, beta, bias), epsilon, n_outputs, out)
    total, target = _residual(x, skip, bias, n_outputs, out)
    y, centre, root = _standard(total, -1, epsilon, target)
    np.multiply(y, gamma, y)
    if beta is not None:
        np.add(y, beta, y)
    return y if n_outputs == 1 else (y, centre, np.reciprocal(root), total)[:n_outputs]


def _standard(x, axes, epsilon, y):
    """Centre and scale ``x`` into ``y`` (which may be ``x``); with the mean and the deviation."""
    centre = mean(x, axes)
    np.subtract(x, centre, y)
    root = deviation(y, axes, epsilon)
    return np.divide(y, root, y), centre, root


def _residual(x, skip, bias, n_outputs, out):
    """``x + skip + bias`` and the array for the norm: the same one, unless the sum is an output too."""
    if skip.shape[-1:] != x.shape[-1:] or skip.ndim > x.ndim:
        raise OpError(f"a skip of shape {skip.shape} does not fit an input of shape {x.shape}")
    apart = n_outputs > 3
    total = np.add(x, skip, blank(x) if apart or out is None else out)
    if bias is not None:
        np.add(total, bias, total)
    if not apart:
        return total, total
    return total, blank(x) if out is None else out


def _wide(x, beside=None):
    """float32, or float64 where one of the two has that."""
    double = x.dtype == FLOAT64 or (beside is not None and beside.dtype == FLOAT64)
    return x.astype(FLOAT64 if double else FLOAT32, copy=False)


def _in_float32(kernel, args, epsilon, n_outputs, out):
    """Run on float32 copies; the statistics stay float32, the outputs that hold tokens are rounded."""
    dtype = args[0].dtype
    wide = [None if a is None else _wide(a) for a in args]
    results = kernel(*wide, epsilon=epsilon, n_outputs=4)
    y = rounded(results[0], dtype, out)
    if n_outputs == 1:
        return y
    return (y, results[1], results[2], rounded(results[3], dtype, None))[:n_outputs]
