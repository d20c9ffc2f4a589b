"""Normalisation by channel: batch, instance, group, Lp, local response and mean-variance."""

from __future__ import annotations

import numpy as np

from kvviz.ops.numeric import blank, in_float32, is_narrow, keeps, rounded_once
from kvviz.ops.registry import by_reference, op


def _by_channel(vector, x):
    """A vector of one number a channel, shaped to broadcast along axis 1."""
    return vector.reshape(-1, *(1,) * (x.ndim - 2)) if x.ndim > 2 else vector


@op("BatchNormalization", since=14, overwrites=(0,), fits=keeps)
def batch_norm(x, scale, bias, mean, var, *, epsilon=1e-5, momentum=0.9, training_mode=0, n_outputs=1, out=None):
    """Per channel (axis 1); in training mode by the batch's own statistics, with the running ones as outputs."""
    if not training_mode:
        return _normalised(x, scale, bias, mean, var, epsilon, out)
    batch_mean, batch_var = _statistics(x)
    y = _normalised(x, scale, bias, batch_mean, batch_var, epsilon, out)
    if n_outputs == 1:
        return y
    running = [old * momentum + new * (1 - momentum) for old, new in ((mean, batch_mean), (var, batch_var))]
    return (y, running[0].astype(mean.dtype, copy=False), running[1].astype(var.dtype, copy=False))[:n_outputs]


@op("BatchNormalization", since=9, overwrites=(0,), fits=keeps)
def batch_norm_9(x, scale, bias, mean, var, *, epsilon=1e-5, momentum=0.9, n_outputs=1, out=None):
    """Opset 9: the running statistics are used unless the node has outputs for new ones."""
    if n_outputs == 1:
        return _normalised(x, scale, bias, mean, var, epsilon, out)
    batch_mean, batch_var = _statistics(x)
    y = _normalised(x, scale, bias, batch_mean, batch_var, epsilon, out)
    running_mean = (mean * momentum + batch_mean * (1 - momentum)).astype(mean.dtype, copy=False)
    running_var = (var * momentum + batch_var * (1 - momentum)).astype(var.dtype, copy=False)
    return (y, running_mean, running_var, batch_mean, batch_var)[:n_outputs]


@op("BatchNormalization", since=7, overwrites=(0,), fits=keeps)
def batch_norm_7(x, scale, bias, mean, var, *, epsilon=1e-5, momentum=0.9, spatial=1, n_outputs=1, out=None):
    """Opset 7: with ``spatial=0`` each position has statistics of its own."""
    if spatial:
        return batch_norm_9(x, scale, bias, mean, var, epsilon=epsilon, momentum=momentum, n_outputs=n_outputs, out=out)
    factor = scale / np.sqrt(var + np.asarray(epsilon, var.dtype))
    y = np.multiply(x, factor, blank(x) if out is None else out)
    return np.add(y, bias - mean * factor, y)


@op("BatchNormalization", overwrites=(0,), fits=keeps)
def batch_norm_6(x, scale, bias, mean, var, *, epsilon=1e-5, momentum=0.9, is_test=0, spatial=1, n_outputs=1, out=None):
    """Up to opset 6: ``is_test`` says which statistics."""
    outputs = 1 if is_test else max(n_outputs, 5)
    result = batch_norm_7(
        x, scale, bias, mean, var, epsilon=epsilon, momentum=momentum, spatial=spatial, n_outputs=outputs, out=out
    )
    return result[0] if n_outputs == 1 and isinstance(result, tuple) else result


def _statistics(x):
    axes = (0, *range(2, x.ndim))
    return x.mean(axes), x.var(axes)


def _normalised(x, scale, bias, mean, var, epsilon, out):
    """Folded to one product and one sum. The statistics may be of another float dtype than ``x`` (opset 15)."""
    if is_narrow(x):
        return in_float32(_normalised, x, scale, bias, mean, var, epsilon, None, out=out)
    factor = (scale / np.sqrt(var + np.asarray(epsilon, var.dtype))).astype(x.dtype, copy=False)
    shift = np.subtract(bias, mean * factor, dtype=x.dtype, casting="unsafe")
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
