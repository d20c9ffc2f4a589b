"""Pools: the largest, the mean or the norm of each window or of each channel."""

from __future__ import annotations

import math

import numpy as np

from kvviz.ops.conv import spatial, window
from kvviz.ops.numeric import contiguous, rounded_once
from kvviz.ops.registry import op


@op("MaxPool")
def max_pool(
    x,
    *,
    kernel_shape,
    auto_pad="NOTSET",
    ceil_mode=0,
    dilations=None,
    pads=None,
    storage_order=0,
    strides=None,
    n_outputs=1,
):
    geometry = window(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    padded = geometry.padded(x, lowest)
    if n_outputs > 1:
        return _with_indices(x, padded, geometry, storage_order)
    return _folded(np.maximum, padded, geometry)


def _with_indices(x, padded, geometry, storage_order):
    rank = x.ndim - 2
    windows = geometry.columns(padded)
    flat = np.moveaxis(windows.reshape(*x.shape[:2], -1, *geometry.output), 2, -1)
    best = flat.argmax(-1)
    y = np.take_along_axis(flat, best[..., None], -1)[..., 0]
    places = np.unravel_index(best, geometry.kernel)
    spatial = [
        place * d - b + s * np.arange(n).reshape(-1, *(1,) * (rank - 1 - i))
        for i, (place, d, b, s, n) in enumerate(
            zip(places, geometry.dilations, geometry.begins, geometry.strides, geometry.output)
        )
    ]
    inside = np.ravel_multi_index(
        [np.clip(p, 0, n - 1) for p, n in zip(spatial, x.shape[2:])], x.shape[2:], order="F" if storage_order else "C"
    )
    planes = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *(1,) * rank) * math.prod(x.shape[2:])
    return np.ascontiguousarray(y), np.ascontiguousarray(inside + planes).astype(np.int64, copy=False)


@op("AveragePool")
@rounded_once
def average_pool(
    x,
    *,
    kernel_shape,
    auto_pad="NOTSET",
    ceil_mode=0,
    count_include_pad=0,
    dilations=None,
    pads=None,
    strides=None,
):
    """Mean of each window, counting the padding or not; what rounding up adds beyond it never counts."""
    geometry = window(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    y = _folded(np.add, geometry.padded(x, 0), geometry)
    if not any(geometry.begins) and not any(geometry.ends):
        return np.divide(y, math.prod(geometry.kernel), y)
    return np.divide(y, _counts(x, geometry, pads, auto_pad, count_include_pad), y)


def _counts(x, geometry, pads, auto_pad, include):
    """How many elements count in each window: a tensor of ones goes through the same windows."""
    rank = x.ndim - 2
    ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
    if include:
        ends = geometry.ends if auto_pad.startswith("SAME") else tuple(pads[rank:]) if pads else (0,) * rank
        room = [b + n + e for b, n, e in zip(geometry.begins, x.shape[2:], geometry.ends)]
        ones = np.zeros((1, 1, *room), x.dtype)
        ones[spatial(slice(b + n + e) for b, n, e in zip(geometry.begins, x.shape[2:], ends))] = 1
        return _folded(np.add, ones, geometry)
    return _folded(np.add, geometry.padded(ones, 0), geometry)


def _folded(ufunc, padded, geometry):
    taps = geometry.taps(padded)
    y = np.array(next(taps), order="C")
    for tap in taps:
        ufunc(y, tap, out=y)
    return y


@op("LpPool", since=2)
@rounded_once
def lp_pool(x, *, kernel_shape, auto_pad="NOTSET", ceil_mode=0, dilations=None, p=2, pads=None, strides=None):
    geometry = window(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    y = _folded(np.add, geometry.padded(np.absolute(x) ** p, 0), geometry)
    return np.power(y, 1.0 / p, y)


@op("GlobalAveragePool")
@rounded_once
def global_average_pool(x):
    return contiguous(x.mean(tuple(range(2, x.ndim)), keepdims=True))


@op("GlobalMaxPool")
def global_max_pool(x):
    return contiguous(np.maximum.reduce(x, tuple(range(2, x.ndim)), None, None, True))


@op("GlobalLpPool", since=2)
@rounded_once
def global_lp_pool(x, *, p=2):
    total = np.add.reduce(np.absolute(x) ** p, tuple(range(2, x.ndim)), None, None, True)
    return np.power(total, 1.0 / p, total)
