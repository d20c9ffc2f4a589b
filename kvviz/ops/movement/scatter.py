"""Writing by index, or row by row into a cache, into a copy of the data, or, with ``out=``, into the data itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.arguments import counted, same_batch
from kvviz.ops.movement.gather import check_within, element_grid, wrapped
from kvviz.ops.numeric import keeps
from kvviz.ops.registry import op
from kvviz.ops.transformer.written_rows import Parts, at_elements, at_tuples, rows_along, spans_along

_REDUCE: dict[str, Any] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def update_cost(args: list, outs: Any, in_place: bool, attributes: dict, updates: int = 2) -> tuple[int, int]:
    """In place only the updates are written; otherwise the data is copied first."""
    new = args[updates].nbytes
    return (new, 0) if in_place else (args[0].nbytes + new, args[0].nbytes)


def _tuples(args: Sequence[Any], outs: Sequence[Any], attributes: dict) -> Parts:
    return ((0, at_tuples(outs[0], args[1])),)


@op("ScatterND", overwrites=(0,), fits=keeps, cost=update_cost, written=_tuples, by_element=True)
def scatter_nd(data, indices, updates, *, reduction="none", out=None):
    """Write slices at tuples of leading indices (the last axis of ``indices``); of several writers the last wins."""
    if not indices.ndim:
        raise OpError("indices of ScatterND must have at least one dimension: the index tuples")
    depth = indices.shape[-1]
    if depth > data.ndim:
        raise OpError(f"index tuples of {depth} numbers are too long for data of shape {data.shape}")
    expected = indices.shape[:-1] + data.shape[depth:]
    if updates.shape != expected:
        raise OpError(f"updates must have shape {expected}, but have {updates.shape}")
    y = data.copy() if out is None else out
    if depth == 1:
        flat = wrapped(indices.reshape(-1), data.shape[0], 0)
        _write(y, (flat,), updates.reshape((flat.size, *data.shape[1:])), reduction)
        return y
    # One index over the joined leading axes: NumPy then writes in order, and the last of several writers wins.
    inner = data.shape[depth:]
    flat = np.zeros(math.prod(indices.shape[:-1]), np.int64)
    tuples = indices.reshape(flat.size, depth)
    for axis in range(depth):
        flat *= data.shape[axis]
        flat += wrapped(tuples[:, axis], data.shape[axis], axis)
    rows = y.reshape((math.prod(data.shape[:depth]), *inner))
    _write(rows, (flat,), updates.reshape((flat.size, *inner)), reduction)
    if not y.flags.c_contiguous and not np.may_share_memory(rows, y):
        y[...] = rows.reshape(y.shape)
    return y


def _elements(args: Sequence[Any], outs: Sequence[Any], attributes: dict) -> Parts:
    return ((0, at_elements(outs[0], args[1], counted(attributes.get("axis", 0), outs[0].ndim))),)


@op("ScatterElements", "Scatter", overwrites=(0,), fits=keeps, cost=update_cost, written=_elements, by_element=True)
def scatter_elements(data, indices, updates, *, axis=0, reduction="none", out=None):
    """Write element by element along one axis. Of several writers of an element the last one wins."""
    if indices.shape != updates.shape:
        raise OpError(f"indices of shape {indices.shape} and updates of shape {updates.shape} differ")
    if indices.ndim != data.ndim:
        raise OpError(f"indices of shape {indices.shape} and data of shape {data.shape} differ in rank")
    axis = counted(axis, data.ndim)
    check_within(indices.shape, data.shape, axis)
    found = wrapped(indices, data.shape[axis], axis)
    y = data.copy() if out is None else out
    _write(y, element_grid(found, axis), updates, reduction)
    return y


def _write(y: np.ndarray, index: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str) -> None:
    if reduction == "none":
        y[index] = updates
    elif reduction not in _REDUCE:
        raise OpError(f"reduction {reduction!r} is none of none, add, mul, min, max")
    elif y.dtype == np.bool_ and reduction in ("add", "mul"):
        (np.logical_or if reduction == "add" else np.logical_and).at(y, index, updates)
    else:
        _REDUCE[reduction].at(y, index, updates)


def _rows(args: Sequence[Any], outs: Sequence[Any], attributes: dict) -> Parts:
    (out,), axis = outs, attributes.get("axis", -2)
    axis = axis + out.ndim if axis < 0 else axis
    starts, rows = [0] if len(args) < 3 or args[2] is None else args[2].tolist(), args[1].shape[axis]
    if attributes.get("mode") == "circular" and (capacity := out.shape[axis]):
        starts = [start % capacity for start in starts]
        ends = [start + rows - capacity for start in starts]
        if max(ends, default=0) > 0:
            spans = [((start, min(start + rows, capacity)), (0, end)) for start, end in zip(starts, ends)]
            return ((0, spans_along(out, axis, spans)),)
    return ((0, rows_along(out, axis, starts, rows)),)


@op(
    "TensorScatter",
    since=24,
    overwrites=(0,),
    fits=keeps,
    cost=partial(update_cost, updates=1),
    written=_rows,
    by_element=True,
)
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
