"""Normalisation: layer and RMS norm, alone or with the residual sum before them, and norms by channel."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.numeric import (
    FLOAT32,
    FLOAT64,
    FromWeights,
    blank,
    contiguous,
    counted,
    in_float32,
    is_narrow,
    keeps,
    rounded,
    rounded_once,
    spreads,
)
from kvviz.ops.registry import MICROSOFT, by_reference, op

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
        return _in_float32(skip_rms_norm, (x, skip, gamma, bias), n_outputs, out, epsilon=epsilon)
    total, target = _residual(x, skip, bias, n_outputs, out)
    root = deviation(total, -1, epsilon)
    y = np.divide(total, root, target)
    np.multiply(y, gamma, y)
    return y if n_outputs == 1 else (y, np.zeros_like(root), np.reciprocal(root), total)[:n_outputs]


@op("LayerNormalization", since=17, overwrites=(0,), fits=keeps)
def layer_norm(x, scale, bias=None, *, axis=-1, epsilon=1e-5, stash_type=1, n_outputs=1, out=None):
    """Mean 0 and variance 1 over trailing axes, then scale and bias; also the mean and 1 / deviation in float32."""
    if x.dtype.char not in "fd":
        return _in_float32(layer_norm, (x, scale, bias), n_outputs, out, axis=axis, epsilon=epsilon)
    y, centre, root = _standard(x, _trailing(x, axis), epsilon, blank(x) if out is None else out)
    np.multiply(y, _checked(scale, x), y)
    if bias is not None:
        np.add(y, _checked(bias, x), y)
    return y if n_outputs == 1 else (y, contiguous(centre), np.reciprocal(root, order="C"))[:n_outputs]


@op("SkipLayerNormalization", domain=MICROSOFT, overwrites=(0, 1), fits=spreads)
def skip_layer_norm(x, skip, gamma, beta=None, bias=None, *, epsilon=1e-12, n_outputs=1, out=None):
    """Layer norm of ``x + skip + bias``; output 3 is that sum."""
    if x.dtype.char not in "fd":
        return _in_float32(skip_layer_norm, (x, skip, gamma, beta, bias), n_outputs, out, epsilon=epsilon)
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


def _in_float32(kernel, args, n_outputs, out, **how):
    """Run on float32 copies; the statistics stay float32, the outputs that hold tokens are rounded."""
    dtype = args[0].dtype
    wide = [None if a is None else _wide(a) for a in args]
    y, centre, inverse, *total = kernel(*wide, n_outputs=4, **how)
    y = rounded(y, dtype, out)
    return y if n_outputs == 1 else (y, centre, inverse, *(rounded(x, dtype, None) for x in total))[:n_outputs]


def _by_channel(vector, x):
    """A vector of one number a channel, shaped to broadcast along axis 1."""
    return vector.reshape(-1, *(1,) * (x.ndim - 2)) if x.ndim > 2 else vector


@op("BatchNormalization", overwrites=(0,), fits=keeps)
def batch_norm(x, scale, bias, mean, var, *, epsilon=1e-5, momentum=0.9, n_outputs=1, opset=15, out=None, **version):
    """Per channel (axis 1), by the running statistics or, in training, by the batch's own. ``training_mode`` says which
    since opset 14, before that whether the node has outputs for new ones, and up to opset 6 ``is_test``. With
    ``spatial=0`` each position has statistics of its own."""
    if not version.get("spatial", 1):
        factor = scale / np.sqrt(var + np.asarray(epsilon, var.dtype))
        y = np.multiply(x, factor, blank(x) if out is None else out)
        return np.add(y, bias - mean * factor, y)
    trains = (
        version.get("training_mode") if opset >= 14 else n_outputs > 1 if opset >= 7 else not version.get("is_test")
    )
    if not trains:
        return _normalised(x, scale, bias, mean, var, epsilon, out)
    axes = (0, *range(2, x.ndim))
    own = x.mean(axes), x.var(axes)
    y = _normalised(x, scale, bias, *own, epsilon, out)
    if n_outputs == 1:
        return y
    running = [
        (old * momentum + new * (1 - momentum)).astype(old.dtype, copy=False) for old, new in zip((mean, var), own)
    ]
    return (y, *running, *own)[:n_outputs]


@lru_cache(maxsize=32)
def _folded(epsilon, dtype):
    """Factors and shifts of channels, by the statistics among the weights that they follow from."""
    return FromWeights(budget=1 << 24)


def _normalised(x, scale, bias, mean, var, epsilon, out):
    """Folded to one product and one sum. The statistics may be of another float dtype than ``x`` (opset 15)."""
    if is_narrow(x):
        return in_float32(_normalised, x, scale, bias, mean, var, epsilon, None, out=out)

    def folded():
        factor = (scale / np.sqrt(var + np.asarray(epsilon, var.dtype))).astype(x.dtype, copy=False)
        return np.stack([factor, np.subtract(bias, mean * factor, dtype=x.dtype, casting="unsafe")])

    factor, shift = _folded(epsilon, x.dtype).of((scale, bias, mean, var), folded)
    y = np.multiply(x, _by_channel(factor, x), blank(x) if out is None else out)
    return np.add(y, _by_channel(shift, x), y)


@op("LpNormalization", overwrites=(0,))
@rounded_once
def lp_norm(x, *, axis=-1, p=2, out=None):
    """Divide by the sum of absolute values, or the root of that of squares, along an axis; zeros stay zero."""
    size = np.absolute(x) if p == 1 else np.multiply(x, x)
    norm = np.add.reduce(size, axis, None, None, True)
    if p == 2:
        np.sqrt(norm, norm)
    norm[norm == 0] = 1
    return np.divide(x, norm, blank(x) if out is None else out)


@op("LRN", overwrites=(0,))
@rounded_once
def local_response_norm(x, *, size, alpha=1e-4, beta=0.75, bias=1.0, out=None):
    squares = np.multiply(x, x)
    total = np.zeros(x.shape, x.dtype)
    channels, before = x.shape[1], (size - 1) // 2
    for shift in range(-before, size - before):
        low, high = max(0, -shift), min(channels, channels - shift)
        if low < high:
            total[:, low:high] += squares[:, low + shift : high + shift]
    total *= alpha / size
    total += bias
    return np.divide(x, np.power(total, beta, total), blank(x) if out is None else out)


by_reference("InstanceNormalization", overwrites=(0,), fits=keeps)
by_reference("GroupNormalization", since=18, overwrites=(0,), fits=keeps)
by_reference("MeanVarianceNormalization", since=9, overwrites=(0,))
