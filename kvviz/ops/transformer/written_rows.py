"""The part of an output that an op writes which overwrites rows of a cache, or elements at given indices, in place.

Asked once for every such op of every run, so that what is usual goes first: one row, the same for the whole batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kvviz.trace.schema.regions import Region, blocks

# So few indices are looked at one by one, more of them together.
_FEW = 16
# What lies in an array of texts.
_REFERENCE = np.dtype(np.intp)

Parts = tuple[tuple[int, Region], ...]
"""Outputs by their positions, and the part of each that was written."""


def rows_along(out: np.ndarray, axis: int, starts: Sequence[int], rows: int) -> Region:
    """So many rows of an output along an axis, from one start for each entry of the batch, or one for all."""
    shape, strides, dtype = out.shape, out.strides, out.dtype
    first = starts[0] if starts else 0
    if len(starts) < 2 or starts.count(first) == len(starts):
        shape = (*shape[:axis], rows, *shape[axis + 1 :])
        return Region(first * strides[axis], shape, strides, _REFERENCE if dtype.hasobject else dtype)
    return spans_along(out, axis, [((start, start + rows),) for start in starts])


def spans_along(out: np.ndarray, axis: int, spans: Iterable[Iterable[tuple[int, int]]]) -> Region:
    """Rows of an output along an axis; ``spans`` has half-open ranges of them for each entry of the batch."""
    shape, (between, *_), along = out.shape, out.strides, out.strides[axis]
    starts = [b * between + row * along for b, some in enumerate(spans) for a, z in some for row in range(a, z)]
    one = (1, *shape[1:axis], 1, *shape[axis + 1 :])
    return blocks(starts, one, out.strides, _REFERENCE if out.dtype.hasobject else out.dtype)


def at_tuples(out: np.ndarray, indices: np.ndarray) -> Region:
    """Slices of an output at tuples of leading indices, which are the last axis of ``indices``."""
    depth, shape, strides = indices.shape[-1], out.shape, out.strides
    starts: Any
    if indices.size <= _FEW:
        ahead = tuple(zip(shape, strides))
        tuples = indices.reshape(-1, depth).tolist() if depth else [()] * indices[..., :1].size
        starts = [sum([(i + n if i < 0 else i) * s for i, (n, s) in zip(one, ahead)]) for one in tuples]
    else:
        starts = np.zeros(indices[..., 0].size, np.int64)
        for k in range(depth):
            starts += _from_start(indices[..., k], shape[k]).reshape(-1) * strides[k]
    return blocks(starts, shape[depth:], strides[depth:], _REFERENCE if out.dtype.hasobject else out.dtype)


def at_elements(out: np.ndarray, indices: np.ndarray, axis: int) -> Region:
    """Elements of an output whose place along one axis is given for each of them."""
    starts = _from_start(indices, out.shape[axis]) * out.strides[axis]
    for other, n in enumerate(indices.shape):
        if other != axis:
            starts = starts + (np.arange(n) * out.strides[other]).reshape((n,) + (1,) * (indices.ndim - other - 1))
    return blocks(starts.reshape(-1), (), (), _REFERENCE if out.dtype.hasobject else out.dtype)


def _from_start(indices: np.ndarray, length: int) -> np.ndarray:
    return np.where(indices < 0, indices + length, indices).astype(np.int64)
