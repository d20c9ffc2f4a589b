"""Convolutions as matrix products over gathered windows, and these windows over the spatial axes, which pools share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import product
from typing import Any

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.numeric import FromWeights, contiguous, is_narrow, rounded_once, whole_limits
from kvviz.ops.registry import op


def spatial(slices: Iterable[slice]) -> tuple[slice, ...]:
    return (slice(None), slice(None), *slices)


@dataclass(frozen=True)
class Window:
    """One geometry: a kernel moved over padded spatial axes, with one number per axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]  # padding before
    ends: tuple[int, ...]  # padding after, with what rounding up adds
    output: tuple[int, ...]  # positions

    @cached_property
    def pads(self) -> bool:
        return any(self.begins) or any(self.ends)

    def few(self, most: int) -> bool:
        """Whether a kernel of several elements is moved over few positions."""
        return math.prod(self.output) <= most and math.prod(self.kernel) > 1

    def padded(self, x: np.ndarray, fill: float) -> np.ndarray:
        if not self.pads:
            return x
        sizes, inner, outer = _room(self.begins, self.ends, x.shape[2:])
        y = np.empty((*x.shape[:2], *sizes), x.dtype)
        y.fill(fill)
        y[inner] = x[outer]
        return y

    def taps(self, padded: np.ndarray):
        """For each kernel element, in order: the view of the input elements that it meets."""
        for place in product(*map(range, self.kernel)):
            met = zip(place, self.dilations, self.output, self.strides)
            yield padded[spatial(slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, n, s in met)]

    def columns(self, padded: np.ndarray) -> np.ndarray:
        """A read-only view (batch, channel, kernel…, position…) of the padded tensor; its elements overlap."""
        padded = np.ascontiguousarray(padded)
        batches, channels, *steps = padded.strides
        apart = [step * d for step, d in zip(steps, self.dilations)]
        along = [step * s for step, s in zip(steps, self.strides)]
        shape = (*padded.shape[:2], *self.kernel, *self.output)
        return np.ndarray(shape, padded.dtype, padded, 0, (batches, channels, *apart, *along))


@lru_cache(maxsize=1024)
def _room(begins, ends, lengths):
    """Padded lengths, the input's place in them, and the part of the input: negative padding crops."""
    around = list(zip(begins, lengths, ends))
    inner = spatial(slice(max(b, 0), max(b, 0) + n + min(b, 0) + min(e, 0)) for b, n, e in around)
    outer = spatial(slice(max(-b, 0), n - max(-e, 0)) for b, n, e in around)
    return [sum(parts) for parts in around], inner, outer


@lru_cache(maxsize=1024)
def window(
    shape, kernel_shape, strides=None, dilations=None, pads=None, auto_pad="NOTSET", ceil_mode=0, spare=0
) -> Window:
    """The geometry over a tensor of this shape. ``spare``: how many of the elements stay that ``auto_pad`` crops where
    windows leave gaps (none in pools, one in convolutions, as in onnxruntime 1.31)."""
    rank = len(shape) - 2
    if len(kernel_shape) != rank:
        raise OpError(f"a kernel of shape {kernel_shape} does not fit a tensor of shape {shape}")
    strides = strides or (1,) * rank
    dilations = dilations or (1,) * rank
    reach = [(k - 1) * d + 1 for k, d in zip(kernel_shape, dilations)]
    sizes = shape[2:]
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        output = tuple(-(-n // s) for n, s in zip(sizes, strides))
        # Windows that leave gaps make it negative: elements that no window meets are cropped on both sides.
        total = [(o - 1) * s + r - n for o, s, r, n in zip(output, strides, reach, sizes)]
        half = [int((t + (auto_pad == "SAME_LOWER") + (spare if t < 0 else 0)) / 2) for t in total]
        return Window(kernel_shape, strides, dilations, tuple(half), tuple(t - h for t, h in zip(total, half)), output)
    pads = pads or (0,) * (2 * rank) if auto_pad in ("NOTSET", "") else (0,) * (2 * rank)
    begins, ends = pads[:rank], list(pads[rank:])
    output_sizes = []
    for i, (n, s, r) in enumerate(zip(sizes, strides, reach)):
        room = n + begins[i] + ends[i] - r
        if room < 0 and not ceil_mode:
            raise OpError(f"a window of {r} does not fit spatial axis {i} of {shape} with pads {pads}")
        count = (-(-room // s) if ceil_mode else room // s) + 1
        # Rounded up, the last window must still start inside the input or the padding before it.
        if ceil_mode and (count - 1) * s >= n + begins[i]:
            count -= 1
        output_sizes.append(count)
        ends[i] = max(ends[i], (count - 1) * s + r - n - begins[i])
    return Window(kernel_shape, strides, dilations, begins, tuple(ends), tuple(output_sizes))


def _way(x: np.ndarray, w: np.ndarray, group: int = 1, kernel_shape: Any = None, **how: Any) -> Callable[..., Any]:
    """What convolves such tensors: a function of input, weights and bias."""
    if w.ndim != x.ndim or w.shape[1] * group != x.shape[1]:
        raise OpError(f"Conv: weights {w.shape} in {group} groups do not fit an input of shape {x.shape}")
    place = window(x.shape, w.shape[2:], **how, spare=1)
    alone = w.shape[1] == 1 and len(w) == group > 1
    most = _OF_EACH * group if alone else _FEW if group == 1 and w.shape[1] >= _DEEP else 0
    if x.size and w.size and place.few(most):
        return _gathered(x.shape, len(w), x.dtype, place, alone)
    return partial(_channel_by_channel, group, place)


def _steady_conv(args: Sequence[Any], attributes: dict) -> Callable[..., Any] | None:
    return None if is_narrow(args[0]) else _way(args[0], args[1], **attributes)


@op("Conv", steady=_steady_conv)
@rounded_once
def conv(x, w, bias=None, *, group=1, **geometry):
    """Convolution over any number of spatial axes; weights are (out, in / group, kernel…)."""
    return _way(x, w, group, **geometry)(x, w, bias)


def _channel_by_channel(group, place, x, w, bias=None):
    if not x.size:
        y = np.zeros((len(x), w.shape[0], *place.output), x.dtype)
    elif w.shape[1] == 1 and w.shape[0] == group and group > 1:
        y = _depthwise(place.padded(x, 0), w, place)
    else:
        y = _by_product(place.padded(x, 0), w, group, place)
    return y if bias is None else np.add(y, bias.reshape(-1, *(1,) * (x.ndim - 2)), y)


# From that many channels on, windows at up to that many positions are gathered with the channels innermost: their
# elements are then runs of many channels, not of a few positions (measured: half the time of a whole convolution of 64
# channels at 8 x 8 positions, as long at 32 x 32). Where each channel has a filter of its own, this pays up to so many
# positions a channel (a third of the time for 960 channels at 7 x 7 positions, as long for 200 at 6 x 96).
_DEEP, _FEW, _OF_EACH = 4, 640, 4
_turned = FromWeights(budget=1 << 28)
"""Filters as (kernel… · in, out), one matrix for each, or (kernel…, channel) if each channel has one."""


@lru_cache(maxsize=1024)
def _gathered(shape, outs, dtype, geometry, alone) -> Callable[..., np.ndarray]:
    """A convolution whose windows are gathered so, for one shape of the input. ``alone``: each channel has a filter of
    its own."""
    batch, channels, *_ = shape
    sizes, inner, outer = _room(geometry.begins, geometry.ends, shape[2:])
    room, into, order = (batch, *sizes, channels), inner[:1] + inner[2:], (0, *range(2, len(shape)), 1)
    whole, *steps, _ = np.empty(room, dtype).strides
    along = [step * s for step, s in zip(steps, geometry.strides)]
    apart = [step * d for step, d in zip(steps, geometry.dilations)]
    windows = (batch, *geometry.output, *geometry.kernel, channels)
    strides = (whole, *along, *apart, dtype.itemsize)
    positions = math.prod(geometry.output)
    columns, made = (batch, positions, -1), (batch, outs, *geometry.output)
    axes, rank = range(len(windows)), len(geometry.output)
    taps, kept = axes[1 + rank :], [*axes[: 1 + rank], axes[-1]]

    def turned(w):
        filters = np.array(w.transpose(*range(2, w.ndim), 1, 0), order="C")
        return filters.reshape(*geometry.kernel, outs) if alone else filters.reshape(-1, outs)

    def convolve(x, w, bias=None):
        filters = _turned.of((w,), lambda: turned(w))
        rows = np.zeros(room, dtype)
        rows[into] = x[outer].transpose(order)
        gathered = np.ndarray(windows, dtype, rows, 0, strides)
        if alone:
            sums = np.einsum(gathered, axes, filters, taps, kept)
        else:
            sums = np.matmul(gathered.reshape(columns), filters)
        products = sums.reshape(batch, positions, outs).swapaxes(1, 2)
        y = np.empty(made, dtype)
        into_y = y.reshape(products.shape)
        if bias is None:
            into_y[...] = products
        else:
            np.add(products, bias.reshape(-1, 1), into_y)
        return y

    return convolve


# Convolutions process columns, and depthwise ones channels, in parts of about so many bytes: they stay in a cache of
# the processor, and need no memory of many times the input.
_COLUMNS, _CHANNELS = 1 << 21, 1 << 18


def _by_product(x, w, group, geometry):
    batch, output = x.shape[0], geometry.output
    length, taps = math.prod(output), math.prod(w.shape[1:])
    weights = w.reshape(group, w.shape[0] // group, taps)
    if length == math.prod(x.shape[2:]) and max(geometry.kernel, default=1) == 1:
        y = np.matmul(weights, x.reshape(batch, group, taps, length))
        return y.reshape(batch, w.shape[0], *output)
    y = np.empty((batch, group, w.shape[0] // group, length), x.dtype)
    windows, row, beside = geometry.columns(x), math.prod(output[1:]), (slice(None),) * (len(output) - 1)
    rows = min(max(_COLUMNS // (group * taps * row * x.itemsize), 1), output[0])
    for first in range(0, output[0], rows):
        rows_here = (..., slice(first, first + rows), *beside)
        part = windows[rows_here]
        place = slice(first * row, (first + rows) * row)
        for one, made in zip(part, y):
            np.matmul(weights, one.reshape(group, taps, -1), made[..., place])
    return y.reshape(batch, w.shape[0], *output)


def _depthwise(x, w, geometry):
    """One filter per channel: there is no matrix product, so the taps are added up. Without strides, the input elements
    of a tap are one run of the padded tensor, with some unwanted elements between rows; taps of one place along the
    last axis are added in one pass."""
    shape, sizes, last = geometry.output, x.shape[2:], geometry.kernel[-1]
    if max(geometry.strides) == 1 and math.prod(sizes[1:]) <= 2 * math.prod(shape[1:]):
        x = np.ascontiguousarray(x)
        steps = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
        length = sum((n - 1) * step for n, step in zip(shape, steps)) + 1
        *apart, beside = [step * d * x.itemsize for step, d in zip(steps, geometry.dilations)]
        runs, strides = (*x.shape[:2], *geometry.kernel[:-1], length), (*x.strides[:2], *apart, x.itemsize)
        taps = [np.ndarray(runs, x.dtype, x, k * beside, strides) for k in range(last)]
        filters = np.moveaxis(w[:, 0], -1, 0)
        room = np.empty((*x.shape[:2], shape[0], *sizes[1:]), x.dtype)
        total = room.reshape(*x.shape[:2], -1)[..., :length]
        y = room[spatial(map(slice, shape))]
    else:
        taps, filters = list(geometry.taps(x)), w.reshape(len(w), -1).T
        y = total = np.empty((*x.shape[:2], *shape), x.dtype)
    several = max(_CHANNELS // (total[:, 0].size * x.itemsize), 1)
    for first in range(0, len(w), several):
        some = slice(first, first + several)
        made, part = total[:, some], np.empty_like(total[:, some])
        for i, (tap, weights) in enumerate(zip(taps, filters)):
            into = part if i else made
            if math.prod(weights.shape[1:]) > 1:
                kernel = range(2, tap.ndim - 1)
                np.einsum(weights[some], [1, *kernel], tap[:, some], range(tap.ndim), [0, 1, tap.ndim - 1], out=into)
            else:
                one = weights[some].reshape(-1, *(1,) * (made.ndim - 2))
                np.multiply(tap[:, some].reshape(made.shape), one, into)
            if i:
                np.add(made, part, made)
    return contiguous(y)


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
    """Transposed Conv: each element adds its multiple of the kernel; weights are (in, out / group, kernel…)."""
    rank = x.ndim - 2
    kernel, sizes = w.shape[2:], x.shape[2:]
    strides = tuple(strides or (1,) * rank)
    dilations = tuple(dilations or (1,) * rank)
    extra = tuple(output_padding or (0,) * rank)
    full = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(sizes, strides, kernel, dilations)]
    if output_shape or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        whole = [min(n * s, f + e) for n, s, f, e in zip(sizes, strides, full, extra)]
        shape = tuple(output_shape or whole)[-rank:]
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


# Pools: the largest, the mean or the norm of each window or of each channel.


@op("MaxPool")
def max_pool(x, *, storage_order=0, n_outputs=1, **how):
    geometry = window(x.shape, **how)
    padded = geometry.padded(x, (whole_limits(x.dtype) or (-np.inf,))[0])
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
def average_pool(x, *, count_include_pad=0, **how):
    """Mean of each window, counting the padding or not; what rounding up adds beyond it never counts."""
    geometry = window(x.shape, **how)
    y = _folded(np.add, geometry.padded(x, 0), geometry)
    if not geometry.pads:
        return np.divide(y, math.prod(geometry.kernel), y)
    return np.divide(y, _counts(x, geometry, count_include_pad, **how), y)


def _counts(x, geometry, include, pads=None, auto_pad="NOTSET", **others):
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
    """One axis after the other: a large window then takes as many steps as the sum of its sides."""
    y = padded
    for axis, (k, s, d, n) in enumerate(zip(geometry.kernel, geometry.strides, geometry.dilations, geometry.output)):
        ahead = (slice(None),) * (axis + 2)
        places = [(*ahead, slice(i * d, i * d + (n - 1) * s + 1, s)) for i in range(k)]
        parts = [y[place] for place in places]
        y = ufunc(parts[0], parts[1]) if k > 1 else parts[0]
        for part in parts[2:]:
            ufunc(y, part, out=y)
    return y.copy() if y.base is not None or y is padded or not y.flags.c_contiguous else y


@op("LpPool", since=2)
@rounded_once
def lp_pool(x, *, p=2, **how):
    geometry = window(x.shape, **how)
    y = _folded(np.add, geometry.padded(np.absolute(x) ** p, 0), geometry)
    return np.power(y, 1.0 / p, y)


@op("GlobalAveragePool")
@rounded_once
def global_average_pool(x):
    total = np.add.reduce(x, tuple(range(2, x.ndim)), None, None, True)
    return contiguous(np.divide(total, math.prod(x.shape[2:]), total))


@op("GlobalMaxPool")
def global_max_pool(x):
    return contiguous(np.maximum.reduce(x, tuple(range(2, x.ndim)), None, None, True))


@op("GlobalLpPool", since=2)
@rounded_once
def global_lp_pool(x, *, p=2):
    total = np.add.reduce(np.absolute(x) ** p, tuple(range(2, x.ndim)), None, None, True)
    return np.power(total, 1.0 / p, total)
