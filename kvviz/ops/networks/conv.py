"""Convolutions as matrix products over gathered windows, and these windows over the spatial axes, which pools share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.numeric import contiguous, rounded_once
from kvviz.ops.registry import op


def spatial(slices: Iterable[slice]) -> tuple[slice, ...]:
    """An index of whole batches and channels, and of the slices on the spatial axes."""
    return (slice(None), slice(None), *slices)


@dataclass(frozen=True, slots=True)
class Window:
    """One geometry: a kernel moved over padded spatial axes, with one number an axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]  # padding before
    ends: tuple[int, ...]  # padding after, with what rounding up adds
    output: tuple[int, ...]  # positions

    def padded(self, x: np.ndarray, fill: float) -> np.ndarray:
        """``x`` with the padding of this geometry; ``x`` itself where there is none."""
        if not any(self.begins) and not any(self.ends):
            return x
        sizes = [b + n + e for b, n, e in zip(self.begins, x.shape[2:], self.ends)]
        y = np.full((*x.shape[:2], *sizes), fill, x.dtype)
        # A negative padding crops.
        inner = spatial(slice(max(b, 0), max(b, 0) + n + min(b, 0) + min(e, 0)) for b, n, e in self._with(x))
        outer = spatial(slice(max(-b, 0), n - max(-e, 0)) for b, n, e in self._with(x))
        y[inner] = x[outer]
        return y

    def _with(self, x):
        return zip(self.begins, x.shape[2:], self.ends)

    def taps(self, padded: np.ndarray):
        """For each place in the kernel, in order: the view of what it meets at every position."""
        for place in product(*map(range, self.kernel)):
            met = zip(place, self.dilations, self.output, self.strides)
            yield padded[spatial(slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, n, s in met)]

    def columns(self, padded: np.ndarray) -> np.ndarray:
        """A read-only view (batch, channel, kernel…, position…) of the padded tensor."""
        steps = padded.strides[2:]
        return np.lib.stride_tricks.as_strided(
            padded,
            (*padded.shape[:2], *self.kernel, *self.output),
            (
                *padded.strides[:2],
                *(step * d for step, d in zip(steps, self.dilations)),
                *(step * s for step, s in zip(steps, self.strides)),
            ),
            writeable=False,
        )


def window(x, kernel, strides=None, dilations=None, pads=None, auto_pad="NOTSET", ceil_mode=0) -> Window:
    rank = x.ndim - 2
    if len(kernel) != rank:
        raise OpError(f"a kernel of shape {tuple(kernel)} does not fit a tensor of shape {x.shape}")
    strides = tuple(strides or (1,) * rank)
    dilations = tuple(dilations or (1,) * rank)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    sizes = x.shape[2:]
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        output = tuple(-(-n // s) for n, s in zip(sizes, strides))
        total = [max((o - 1) * s + r - n, 0) for o, s, r, n in zip(output, strides, reach, sizes)]
        half = [t // 2 if auto_pad == "SAME_UPPER" else t - t // 2 for t in total]
        return Window(tuple(kernel), strides, dilations, tuple(half), tuple(t - h for t, h in zip(total, half)), output)
    pads = tuple(pads or (0,) * (2 * rank)) if auto_pad in ("NOTSET", "") else (0,) * (2 * rank)
    begins, ends = pads[:rank], list(pads[rank:])
    output_sizes = []
    for i, (n, s, r) in enumerate(zip(sizes, strides, reach)):
        room = n + begins[i] + ends[i] - r
        if room < 0 and not ceil_mode:
            raise OpError(f"a window of {r} does not fit spatial axis {i} of {x.shape} with pads {pads}")
        count = (-(-room // s) if ceil_mode else room // s) + 1
        # Rounded up, the last window must still start inside the input or the padding before it.
        if ceil_mode and (count - 1) * s >= n + begins[i]:
            count -= 1
        output_sizes.append(count)
        ends[i] = max(ends[i], (count - 1) * s + r - n - begins[i])
    return Window(tuple(kernel), strides, dilations, begins, tuple(ends), tuple(output_sizes))


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


# -- pooling ----------------------------------------------------------------------------------------------------------
# Pools: the largest, the mean or the norm of each window or of each channel.


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
