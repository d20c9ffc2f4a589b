"""Reading and writing by index: Gather, Scatter and related ops, and writing row by row into a cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.numeric import check_size, counted, keeps, same_batch, scalar
from kvviz.ops.registry import Parts, at_elements, at_tuples, by_reference, op, rows_along, spans_along


def outside(indices: np.ndarray, length: int, axis: int) -> OpError:
    flat = indices.reshape(-1)
    bad = flat[(flat < -length) | (flat >= length)]
    return OpError(f"index {bad[0] if bad.size else flat[:1]} is out of range for axis {axis} of length {length}")


def wrapped(indices: np.ndarray, length: int, axis: int) -> np.ndarray:
    """Indices counted from 0, in a fresh array if any was negative."""
    if indices.size == 0:
        return indices.astype(np.int64)
    if indices.size <= 16:
        few = indices.reshape(-1).tolist()
        low, high = min(few), max(few)
    else:
        low, high = indices.min(), indices.max()
    if low < -length or high >= length:
        raise outside(indices, length, axis)
    return np.where(indices < 0, indices + length, indices) if low < 0 else indices


@op("Gather", moves=True, by_element=True)
def gather(x, indices, *, axis=0):
    try:
        if not x.size and indices.size:
            # NumPy ignores indices if there is nothing to take, and the rank of a scalar below.
            counted(axis, x.ndim)
            wrapped(indices, x.shape[axis], axis)
        if x.flags.c_contiguous and x.ndim:
            result = x.take(indices, axis)
        else:
            # take() would first copy all of a strided operand, such as a cache with room or a transposed weight.
            result = x[(slice(None),) * counted(axis, x.ndim) + (indices,)].copy()
    except IndexError:
        axis = counted(axis, x.ndim)
        raise outside(indices, x.shape[axis], axis) from None
    # One element of a vector is returned as a NumPy scalar.
    return result if type(result) is np.ndarray else np.asarray(result, x.dtype)


@op("GatherElements", moves=True)
def gather_elements(x, indices, *, axis=0):
    """Take element by element along one axis; the indices may be shorter than the data on the other axes."""
    if indices.ndim != x.ndim:
        raise OpError(f"indices of shape {indices.shape} and data of shape {x.shape} differ in rank")
    axis = counted(axis, x.ndim)
    check_within(indices.shape, x.shape, axis)
    found = wrapped(indices, x.shape[axis], axis)
    if x.ndim == 1:
        return x[found]
    return np.ascontiguousarray(x[element_grid(found, axis)])


def check_within(shape: tuple[int, ...], data: tuple[int, ...], axis: int) -> None:
    for i, (n, limit) in enumerate(zip(shape, data)):
        if i != axis and n > limit:
            raise OpError(f"indices of shape {shape} are longer than data of shape {data} on axis {i}")


def element_grid(indices: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    """Index arrays that address one element per entry of ``indices``."""
    rank = indices.ndim
    return tuple(
        indices if i == axis else np.arange(n).reshape((1,) * i + (n,) + (1,) * (rank - i - 1))
        for i, n in enumerate(indices.shape)
    )


@op("GatherND", moves=True)
def gather_nd(x, indices, *, batch_dims=0):
    """Take slices by tuples of leading indices (the last axis of ``indices``), entry by entry of the batch axes."""
    depth = indices.shape[-1]
    if batch_dims + depth > x.ndim or indices.shape[:batch_dims] != x.shape[:batch_dims]:
        raise OpError(
            f"indices of shape {indices.shape} with batch_dims {batch_dims} do not address data of shape {x.shape}"
        )
    batch = x.shape[:batch_dims]
    prefix = tuple(np.arange(n).reshape((n,) + (1,) * (indices.ndim - 2 - i)) for i, n in enumerate(batch))
    found = tuple(wrapped(indices[..., i], x.shape[batch_dims + i], batch_dims + i) for i in range(depth))
    if not prefix + found:
        return np.broadcast_to(x, indices.shape[:-1] + x.shape).copy()
    # Indexing with one array per leading axis gives C order, or a NumPy scalar for a single element.
    return np.ascontiguousarray(x[prefix + found]).reshape(indices.shape[:-1] + x.shape[batch_dims + depth :])


@op("OneHot")
def one_hot(indices, depth, values, *, axis=-1):
    """A new axis of length ``depth`` that is ``values[1]`` at the index and ``values[0]`` elsewhere."""
    n = int(scalar(depth, "depth"))
    if n < 1:
        raise OpError(f"a depth of {n} leaves no place for any index")
    place = counted(axis, indices.ndim + 1)
    check_size((*indices.shape, n), values.dtype)
    # Indices in [-depth, -1] count from the end; others out of range match nothing and leave a row of off values.
    wanted = np.where(indices < 0, indices + n, indices)
    if values.shape != (2,):
        raise OpError(f"values must be the off and the on value, two numbers, but have shape {values.shape}")
    ramp = np.arange(n).reshape((n,) + (1,) * (indices.ndim - place))
    return np.where(np.ascontiguousarray(np.expand_dims(wanted, place) == ramp), values[1:], values[:1])


@op("NonZero")
def non_zero(x):
    """Coordinates of the elements that are not 0: (rank, count), in row-major order."""
    return np.array(np.nonzero(x if x.ndim else x.reshape(1)), np.int64)


by_reference("Compress", moves=True)


@op("Unique")
def unique(x, *, axis=None, sorted=1):
    """Distinct elements or slices, the first place of each, the number of each entry's one, and their counts.
    ``sorted=0`` keeps the order of first appearance."""
    if axis is not None:
        axis = counted(axis, x.ndim)
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        values = values.take(order, axis or 0)
        first, inverse, counts = first[order], rank[inverse], counts[order]
    return (
        np.ascontiguousarray(values),
        first.astype(np.int64),
        inverse.astype(np.int64),
        counts.astype(np.int64),
    )


@op("ArrayFeatureExtractor", domain="ai.onnx.ml", moves=True)
def array_feature_extractor(x, indices):
    """Take columns of the last axis; a vector counts as one row."""
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    return gather(rows, indices.reshape(-1), axis=rows.ndim - 1)


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
    """Write ``update`` into a cache of fixed capacity, from one row per batch entry on (TensorScatter-24).

    ``out`` is the cache itself, when it may be overwritten. Nothing is written where onnxruntime 1.31 refuses: axis 0,
    shapes that differ off the axis, an update longer than the cache, one index too many or too few, a negative index,
    and in linear mode an overrun. ONNX's text does not define a circular write whose first row lies beyond the
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
    if axis:
        cache, update = cache.swapaxes(0, axis), update.swapaxes(0, axis)
    capacity, rows = len(cache), len(update)
    fitting = min(rows, capacity - start)
    if fitting == rows:
        cache[start : start + rows] = update
    else:
        cache[start:] = update[:fitting]
        cache[: rows - fitting] = update[fitting:]
