"""TensorScatter: rows written into a cache of fixed capacity."""

from __future__ import annotations

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.arguments import same_batch
from kvviz.ops.registry import op
from kvviz.ops.scatter import always_fits


def _update_cost(args: list, outs: object, in_place: bool, attributes: dict) -> tuple[int, int]:
    cache, update = args[0].nbytes, args[1].nbytes
    return (update, 0) if in_place else (cache + update, cache)


@op("TensorScatter", since=24, overwrites=(0,), fits=always_fits, cost=_update_cost)
def tensor_scatter(past, update, write_indices=None, *, axis=-2, mode="linear", out=None):
    """Write ``update`` into a cache of fixed capacity, from one row a batch entry on (TensorScatter-24).

    ``out`` is the cache itself, when it may be overwritten. Nothing is written where onnxruntime 1.31 refuses: axis 0,
    shapes that differ off the axis, an update longer than the cache, one index too many or too few, a negative index,
    and in linear mode an overrun. The text leaves open what a circular write does whose first row lies beyond the
    capacity; as in onnxruntime, that row number is taken modulo the capacity too.
    """
    if mode not in ("linear", "circular"):
        raise OpError(f"mode {mode!r} is neither linear nor circular")
    rank, place = past.ndim, axis + past.ndim if axis < 0 else axis
    if rank < 2:
        raise OpError(f"a cache of shape {past.shape} has no dimension after the batch to write along")
    if not 0 < place < rank:
        raise OpError(f"axis {axis} must name a dimension after the batch of a cache of shape {past.shape}")
    shape, new = past.shape, update.shape
    if len(new) != rank or new[:place] != shape[:place] or new[place + 1 :] != shape[place + 1 :]:
        raise OpError(
            f"update of shape {new} and cache of shape {shape} differ off axis {place}, where they must be the same"
        )
    if update.dtype != past.dtype:
        raise OpError(f"update has dtype {update.dtype} and the cache {past.dtype}")
    if write_indices is not None and write_indices.ndim != 1:
        raise OpError(f"write_indices must have one dimension, but has shape {write_indices.shape}")
    capacity, rows = shape[place], new[place]
    if rows > capacity:
        raise OpError(f"an update of {rows} rows is longer than the cache's capacity of {capacity}: write it in parts")
    starts = [0] * shape[0] if write_indices is None else same_batch(write_indices, shape[0], "write_indices")
    for b, start in enumerate(starts):
        if start < 0:
            raise OpError(f"write index {start} of batch entry {b} is negative: rows count from 0")
        if mode == "linear" and start + rows > capacity:
            raise OpError(
                f"batch entry {b} would write rows {start} to {start + rows - 1} of a cache with capacity {capacity}: "
                f"start at row {capacity - rows} or before, make the cache longer, or use mode 'circular'"
            )
    if mode == "circular":
        starts = [start % capacity for start in starts] if capacity else starts
    y = past.copy() if out is None else out
    if len(set(starts)) == 1:
        _write_rows(y, update, starts[0], place)
    else:
        for b, start in enumerate(starts):
            _write_rows(y[b], update[b], start, place - 1)
    return y


def _write_rows(cache: np.ndarray, update: np.ndarray, start: int, axis: int) -> None:
    """Write along an axis from ``start`` on, and what does not fit from row 0 on."""
    if axis:
        cache, update = cache.swapaxes(0, axis), update.swapaxes(0, axis)
    capacity, rows = len(cache), len(update)
    fitting = min(rows, capacity - start)
    if fitting == rows:
        cache[start : start + rows] = update
    else:
        cache[start:] = update[:fitting]
        cache[: rows - fitting] = update[fitting:]
