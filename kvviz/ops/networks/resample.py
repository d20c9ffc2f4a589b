"""Resampling: Resize and Upsample, one axis after the other; GridSample, and AffineGrid, which makes its places."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.numeric import FLOAT32, FLOAT64, check_size, counted, distinct, rounded_once, whole_limits
from kvviz.ops.registry import op


@dataclass(frozen=True, slots=True)
class _Way:
    """What Resize has attributes for."""

    mode: str = "nearest"
    coordinate_transformation_mode: str = "half_pixel"
    nearest_mode: str = "round_prefer_floor"
    cubic_coeff_a: float = -0.75
    exclude_outside: int = 0
    antialias: int = 0
    extrapolation_value: float = 0.0


@op("Resize", since=11, moves=True)
def resize(x, roi=None, scales=None, sizes=None, *, axes=None, keep_aspect_ratio_policy="stretch", **how):
    """Resize-11 to 19, in any mode, over any axes, by scales or to sizes. An axis that keeps its length is cropped like
    the others; onnxruntime leaves it alone."""
    places = list(range(x.ndim)) if axes is None else distinct(axes, x.ndim)
    by_scale = scales is not None and scales.size > 0
    if by_scale == (sizes is not None and sizes.size > 0):
        raise OpError("one of scales and sizes must be given, and not both")
    given = scales if by_scale else sizes
    if given.shape != (len(places),):
        raise OpError(f"{'scales' if by_scale else 'sizes'} {given.tolist()} are not one number for each axis {places}")
    lengths = [x.shape[axis] for axis in places]
    if by_scale:
        factors = given.astype(FLOAT32)
        made = [int(factor * np.float32(n)) for factor, n in zip(factors, lengths)]
    else:
        factors, made = _fitted(given, lengths, keep_aspect_ratio_policy)
    way = _Way(**how)
    cropped = way.coordinate_transformation_mode == "tf_crop_and_resize"
    if cropped and (roi is None or roi.size != 2 * len(places)):
        raise OpError(f"tf_crop_and_resize needs a roi of {2 * len(places)} numbers: a start and an end for each axis")
    starts = np.zeros(len(places), FLOAT32) if not cropped else roi.reshape(2, -1)[0].astype(FLOAT32)
    ends = np.ones(len(places), FLOAT32) if not cropped else roi.reshape(2, -1)[1].astype(FLOAT32)
    return _resized(x, places, factors, made, list(zip(starts, ends)), way)


@op("Resize", since=10, moves=True)
@op("Upsample", since=9, moves=True)
def upsample(x, scales, *, mode="nearest"):
    """Resize-10 and Upsample-9: coordinates are divided by the scale, and the nearest element is the one before."""
    if scales.shape != (x.ndim,):
        raise OpError(f"scales {scales.tolist()} are not one number for each of {x.ndim} axes")
    factors = scales.astype(FLOAT32)
    made = [int(factor * np.float32(n)) for factor, n in zip(factors, x.shape)]
    way = _Way(mode, "asymmetric", "simple")
    return _resized(x, list(range(x.ndim)), factors, made, [(0.0, 1.0)] * x.ndim, way)


@op("Upsample", since=7, moves=True)
def upsample_by_attribute(x, *, scales, mode="nearest"):
    return upsample(x, np.array(scales, FLOAT32), mode=mode)


def _fitted(sizes, lengths, policy):
    """Scales for sizes, which keep the aspect ratio if the policy says so."""
    wanted = sizes.tolist()
    if min(wanted, default=1) < 0 or 0 in lengths:
        raise OpError(f"lengths {lengths} cannot be resized to {wanted}")
    factors = np.array(wanted, FLOAT32) / np.array(lengths, FLOAT32)
    if policy == "stretch":
        return factors, wanted
    if policy not in ("not_larger", "not_smaller"):
        raise OpError(f"keep_aspect_ratio_policy {policy!r} is none of stretch, not_larger, not_smaller")
    factor = factors.min() if policy == "not_larger" else factors.max()
    # Halves are rounded up.
    return np.full_like(factors, factor), [int(np.floor(factor * np.float32(n) + np.float32(0.5))) for n in lengths]


def _resized(x, places, factors, made, regions, way):
    if way.mode not in ("nearest", "linear", "cubic"):
        raise OpError(f"mode {way.mode!r} is none of nearest, linear, cubic")
    if not (factors > 0).all():
        raise OpError(f"scales {factors.tolist()} must be greater than 0")
    shape = list(x.shape)
    for axis, length in zip(places, made):
        shape[axis] = length
    check_size(shape, x.dtype)
    if 0 in shape or 0 in x.shape:
        if 0 not in shape:
            raise OpError(f"nothing of shape {x.shape} can be resized to {tuple(shape)}")
        return np.empty(shape, x.dtype)
    coordinates = way.coordinate_transformation_mode
    work = x.dtype if way.mode == "nearest" or x.dtype == FLOAT64 else FLOAT32
    y, outside = x.astype(work, copy=False), []
    # The axes that shrink most come first, which leaves less work for the others.
    for i in sorted(range(len(places)), key=lambda i: made[i] / x.shape[places[i]]):
        axis = counted(places[i], x.ndim)
        length = x.shape[axis]
        if made[i] == length and factors[i] == 1 and coordinates != "tf_crop_and_resize":
            continue
        at = _coordinates(length, made[i], factors[i], regions[i], coordinates)
        if coordinates == "tf_crop_and_resize":
            beyond = (at < 0) | (at > length - 1)
            if beyond.any():
                outside.append((slice(None),) * axis + (np.flatnonzero(beyond),))
        y = _along(y, axis, *_taps(at, length, factors[i], way))
    if y.dtype != x.dtype:
        if way.antialias and x.dtype.kind in "iu":
            y = np.clip(np.rint(y), *whole_limits(x.dtype))
        # Integers are otherwise truncated, as in a C conversion.
        y = y.astype(x.dtype)
    if y is x or not y.flags.c_contiguous or y.base is not None:
        y = y.copy()
    for index in outside:
        y[index] = way.extrapolation_value
    return y


def _coordinates(length, made, factor, region, how):
    """The place of each output element in the input, in float32 as in onnxruntime."""
    one, half = np.float32(1), np.float32(0.5)
    at = np.arange(made, dtype=FLOAT32)
    if how == "asymmetric":
        return at / factor
    if how == "align_corners":
        # ONNX's own cases use the length before it is rounded down; onnxruntime uses it afterwards.
        resized = np.float32(length * float(factor))
        return at * np.float32(length - 1) / (resized - one) if resized != 1 else np.zeros(made, FLOAT32)
    if how == "tf_crop_and_resize":
        start, end = region
        if made == 1:
            return np.full(1, half * (start + end) * np.float32(length - 1), FLOAT32)
        step = (end - start) * np.float32(length - 1) / np.float32(made - 1)
        return (start * np.float32(length - 1) + at * step).astype(FLOAT32)
    if how == "pytorch_half_pixel" and made == 1:
        return np.zeros(1, FLOAT32)
    if how not in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
        raise OpError(f"onnx knows no coordinate_transformation_mode {how!r}")
    if how == "half_pixel_symmetric":
        adjustment = np.float32(made) / (factor * np.float32(length))
        return np.float32(length) / np.float32(2) * (one - adjustment) + (at + half) / factor - half
    return (at + half) / factor - half


def _taps(at, length, factor, way):
    """For each output element its input elements, (made, taps), and their weights; None if all are 1."""
    if way.mode == "nearest":
        if way.nearest_mode not in _NEAREST:
            known = "round_prefer_floor, round_prefer_ceil, floor, ceil"
            raise OpError(f"nearest_mode {way.nearest_mode!r} is none of {known}")
        return _NEAREST[way.nearest_mode](at, factor).astype(np.int64).clip(0, length - 1)[:, None], None
    spread = 1 if way.mode == "linear" else 2
    shrinks = way.antialias and factor < 1
    stretch = np.float32(factor) if shrinks else np.float32(1)
    if shrinks:
        reach = np.float32(spread) / stretch
        first = np.floor(at + np.float32(0.5) - reach + np.float32(0.5))
        count = 2 * int(np.ceil(reach)) + 1
    else:
        first, count = np.floor(at) - (spread - 1), 2 * spread
    index = first.astype(np.int64)[:, None] + np.arange(count)
    far = np.abs(index.astype(FLOAT32) - at[:, None]) * stretch
    weights = np.maximum(1 - far, 0) if way.mode == "linear" else cubic(far, np.float32(way.cubic_coeff_a))
    if way.exclude_outside:
        weights = np.where((index < 0) | (index >= length), np.float32(0), weights)
    if way.exclude_outside or shrinks:
        weights = weights / weights.sum(1, keepdims=True)
    # Places outside count as the element at the edge.
    return index.clip(0, length - 1), weights


_NEAREST: dict[str, Callable] = {
    "round_prefer_floor": lambda at, factor: np.ceil(at - np.float32(0.5)),
    "round_prefer_ceil": lambda at, factor: np.floor(at + np.float32(0.5)),
    "floor": lambda at, factor: np.floor(at),
    "ceil": lambda at, factor: np.ceil(at),
    "simple": lambda at, factor: np.ceil(at) if factor < 1 else np.trunc(at),
}


def cubic(far, a):
    near = ((a + 2) * far - (a + 3)) * far * far + 1
    tail = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a
    return np.where(far <= 1, near, np.where(far < 2, tail, np.float32(0)))


def _along(x, axis, index, weights):
    if weights is None:
        return x.take(index[:, 0], axis)
    if index.shape[1] > 4:
        matrix = np.zeros((len(index), x.shape[axis]), x.dtype)
        np.add.at(matrix, (np.arange(len(index))[:, None], index), weights)
        rows = x.reshape(math.prod(x.shape[:axis]), x.shape[axis], -1)
        return np.matmul(matrix, rows).reshape(*x.shape[:axis], len(index), *x.shape[axis + 1 :])
    column = (-1, *(1,) * (x.ndim - axis - 1))
    y = x.take(index[:, 0], axis)
    y *= weights[:, 0].astype(x.dtype).reshape(column)
    for tap in range(1, index.shape[1]):
        part = x.take(index[:, tap], axis)
        part *= weights[:, tap].astype(x.dtype).reshape(column)
        y += part
    return y


_MODES = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest"}


@op("GridSample", since=16)
@rounded_once
def grid_sample(x, grid, *, mode="linear", padding_mode="zeros", align_corners=0):
    """Samples of x (N, C, D1 … Dr) at places (N, d1 … dr, r) in [-1, 1], from the last axis to the first."""
    rank, how = x.ndim - 2, _MODES.get(mode)
    if grid.ndim != x.ndim or grid.shape[-1] != rank or len(grid) != len(x):
        raise OpError(f"a grid of shape {grid.shape} does not name places in a tensor of shape {x.shape}")
    if how is None or padding_mode not in ("zeros", "border", "reflection"):
        raise OpError(f"mode {mode!r} with padding_mode {padding_mode!r} is unknown")
    work = grid.dtype if grid.dtype == x.dtype else FLOAT32
    places = grid.reshape(len(x), -1, rank).astype(work, copy=False)
    taps = []
    for i, length in enumerate(x.shape[2:]):
        at = places[..., rank - 1 - i]
        at = (at + 1) / 2 * (length - 1) if align_corners else ((at + 1) * length - 1) / 2
        taps.append(list(_grid_taps(at, length, how, padding_mode, bool(align_corners))))
    flat = x.reshape(*x.shape[:2], -1)
    y = np.zeros((*x.shape[:2], places.shape[1]), x.dtype)
    for corner in product(*taps):
        index, weight = np.zeros(places.shape[:2], np.int64), np.ones(places.shape[:2], x.dtype)
        for (where, share), length in zip(corner, x.shape[2:]):
            index = index * length + where
            weight = weight * share
        y += np.take_along_axis(flat, index[:, None], 2) * weight[:, None].astype(x.dtype)
    return y.reshape(*x.shape[:2], *grid.shape[1:-1])


def _grid_taps(at, length, how, padding, corners):
    """Along one axis: the input elements of a sample, and the share of each; an element outside has none."""
    low, high = (0.0, length - 1.0) if corners else (-0.5, length - 0.5)
    if how == "nearest":
        at = np.rint(at)
    if padding == "border" and how != "cubic":
        at = at.clip(0, length - 1)
    elif padding == "reflection" and how != "cubic":
        at = np.where((at < low) | (at > high), _reflected(at, low, high), at)
    if how == "nearest":
        bases = [(at, np.ones_like(at))]
    elif how == "linear":
        first = np.floor(at)
        bases = [(first, 1 - (at - first)), (first + 1, at - first)]
    else:
        first = np.floor(at) - 1
        bases = [(first + k, cubic(np.abs(first + k - at), -0.75)) for k in range(4)]
    for index, share in bases:
        inside = (index >= 0) & (index <= length - 1)
        if padding == "zeros":
            share = np.where(inside, share, 0)
        elif padding == "reflection":
            index = np.where(inside, index, _reflected(index, low, high))
        yield np.trunc(index.clip(0, length - 1)).astype(np.int64), share


def _reflected(at, low, high):
    """Places reflected at both ends, as often as necessary."""
    span = high - low
    if span == 0:
        return np.full_like(at, low)
    beyond = np.where(at < low, low - at, at - high)
    times = np.floor(beyond / span)
    rest = beyond - times * span
    from_low = (at < low) == (times % 2 == 0)
    return np.where(from_low, low + rest, high - rest).astype(at.dtype)


@op("AffineGrid", since=20)
@rounded_once
def affine_grid(theta, size, *, align_corners=0):
    """The places (N, d1 … dr, r) of a grid of ``size`` (N, C, d1 … dr) after an affine map theta (N, r, r + 1)."""
    lengths = size.tolist()[2:]
    rank = len(lengths)
    if rank not in (2, 3) or theta.shape != (size[0], rank, rank + 1) or min(lengths) < 1:
        raise OpError(f"theta of shape {theta.shape} does not map a grid of size {size.tolist()}")
    check_size((*theta.shape[:1], *lengths, rank), theta.dtype)
    axes = []
    for n in reversed(lengths):
        count = np.arange(n, dtype=theta.dtype)
        if align_corners:
            # A single place is the last one, as in onnxruntime.
            axes.append(count * (2 / (n - 1)) - 1 if n > 1 else count + 1)
        else:
            axes.append((2 * count + 1) / n - 1)
    places = np.meshgrid(*reversed(axes), indexing="ij")[::-1]
    base = np.stack([*places, np.ones_like(places[0])], -1).astype(theta.dtype)
    y = np.matmul(base.reshape(1, -1, rank + 1), theta.swapaxes(1, 2))
    return y.reshape(len(theta), *lengths, rank)
