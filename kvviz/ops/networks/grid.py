"""Sampling at places that a tensor names: GridSample, and AffineGrid, which makes such places."""

from __future__ import annotations

from itertools import product

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.networks.resize import cubic
from kvviz.ops.numeric import FLOAT32, check_size, rounded_once
from kvviz.ops.registry import op

_MODES = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest"}


@op("GridSample", since=16)
@rounded_once
def grid_sample(x, grid, *, mode="linear", padding_mode="zeros", align_corners=0):
    """Samples of x (N, C, D1 … Dr) at places (N, d1 … dr, r) in [-1, 1], named from the last axis to the first."""
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
        taps.append(list(_taps(at, length, how, padding_mode, bool(align_corners))))
    flat = x.reshape(*x.shape[:2], -1)
    y = np.zeros((*x.shape[:2], places.shape[1]), x.dtype)
    for corner in product(*taps):
        index, weight = np.zeros(places.shape[:2], np.int64), np.ones(places.shape[:2], x.dtype)
        for (where, share), length in zip(corner, x.shape[2:]):
            index = index * length + where
            weight = weight * share
        y += np.take_along_axis(flat, index[:, None], 2) * weight[:, None].astype(x.dtype)
    return y.reshape(*x.shape[:2], *grid.shape[1:-1])


def _taps(at, length, how, padding, corners):
    """Along one axis: the elements that a sample is made of, and the share of each; an element outside has none."""
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
    """Places thrown back at both ends, as often as it takes."""
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
