"""Convolutions as matrix products over gathered windows."""

from __future__ import annotations

import math

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.numeric import rounded_once
from kvviz.ops.registry import op
from kvviz.ops.window import Window, spatial, window


@op("Conv")
@rounded_once
def conv(x, w, bias=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None):
    """Convolution over any number of spatial axes; weights are (out, in / group, kernel…)."""
    if w.ndim != x.ndim or w.shape[1] * group != x.shape[1]:
        raise OpError(f"Conv: weights {w.shape} in {group} groups do not fit an input of shape {x.shape}")
    geometry = window(x, w.shape[2:], strides, dilations, pads, auto_pad)
    padded = geometry.padded(x, 0)
    if w.shape[1] == 1 and w.shape[0] == group and group > 1:
        y = _depthwise(padded, w, geometry)
    else:
        y = _by_product(padded, w, group, geometry)
    if bias is not None:
        np.add(y, bias.reshape(-1, *(1,) * (x.ndim - 2)), y)
    return y


def _by_product(x, w, group, geometry):
    batch, length = x.shape[0], math.prod(geometry.output)
    taps = math.prod(w.shape[1:])
    if length == math.prod(x.shape[2:]) and max(geometry.kernel, default=1) == 1:
        columns = x.reshape(batch, group, taps, length)
    else:
        columns = geometry.columns(x).reshape(batch, group, taps, length)
    if group == 1:
        y = np.matmul(w.reshape(w.shape[0], taps), columns.reshape(batch, taps, length))
    else:
        y = np.matmul(w.reshape(group, w.shape[0] // group, taps), columns)
    return y.reshape(batch, w.shape[0], *geometry.output)


def _depthwise(x, w, geometry):
    """One filter a channel: there is nothing to multiply as matrices, so the taps are added up."""
    weights = w.reshape(w.shape[0], -1, *(1,) * (x.ndim - 2))
    y = np.zeros((*x.shape[:2], *geometry.output), x.dtype)
    part = np.empty_like(y)
    for i, tap in enumerate(geometry.taps(x)):
        np.add(y, np.multiply(tap, weights[:, i], part), y)
    return y


@op("ConvTranspose")
@rounded_once
def conv_transpose(
    x,
    w,
    bias=None,
    *,
    auto_pad="NOTSET",
    dilations=None,
    group=1,
    kernel_shape=None,
    output_padding=None,
    output_shape=None,
    pads=None,
    strides=None,
):
    """Conv backwards: each element adds its multiple of the kernel; weights are (in, out / group, kernel…)."""
    rank = x.ndim - 2
    kernel, sizes = w.shape[2:], x.shape[2:]
    strides = tuple(strides or (1,) * rank)
    dilations = tuple(dilations or (1,) * rank)
    extra = tuple(output_padding or (0,) * rank)
    full = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(sizes, strides, kernel, dilations)]
    if output_shape or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        shape = tuple(output_shape)[-rank:] if output_shape else tuple(n * s for n, s in zip(sizes, strides))
        total = [max(f + e - o, 0) for f, e, o in zip(full, extra, shape)]
        begins = tuple(t // 2 if auto_pad == "SAME_UPPER" else t - t // 2 for t in total)
    else:
        pads = tuple(pads or (0,) * (2 * rank)) if auto_pad in ("NOTSET", "") else (0,) * (2 * rank)
        begins = pads[:rank]
        shape = tuple(f + e - b - z for f, e, b, z in zip(full, extra, begins, pads[rank:]))
    batch, outs = x.shape[0], w.shape[1]
    weights = w.reshape(group, w.shape[0] // group, -1).swapaxes(1, 2)
    parts = np.matmul(weights, x.reshape(batch, group, w.shape[0] // group, -1))
    parts = parts.reshape(batch, group * outs, math.prod(kernel), *sizes)
    room = [max(f, b + o) for f, b, o in zip(full, begins, shape)]
    spread = np.zeros((batch, group * outs, *room), x.dtype)
    geometry = Window(tuple(kernel), strides, dilations, (0,) * rank, (0,) * rank, tuple(sizes))
    for i, tap in enumerate(geometry.taps(spread)):
        np.add(tap, parts[:, :, i], tap)
    y = spread[spatial(slice(b, b + o) for b, o in zip(begins, shape))]
    if bias is not None:
        return np.ascontiguousarray(y + bias.reshape(-1, *(1,) * rank))
    return np.ascontiguousarray(y)
