"""Reading by index: Gather and its kin, and the operators that turn values into positions or back."""

from __future__ import annotations

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.arguments import check_size, counted, scalar
from kvviz.ops.registry import by_reference, op


def outside(indices: np.ndarray, length: int, axis: int) -> OpError:
    """The error that names the first index outside ``[-length, length - 1]``."""
    flat = indices.reshape(-1)
    bad = flat[(flat < -length) | (flat >= length)]
    return OpError(f"index {bad[0] if bad.size else flat[:1]} is out of range for axis {axis} of length {length}")


def wrapped(indices: np.ndarray, length: int, axis: int) -> np.ndarray:
    """Indices counted from 0, as a fresh array where any was negative."""
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
            # NumPy does not look at the indices where there is nothing to take, nor at the rank of a scalar below.
            counted(axis, x.ndim)
            wrapped(indices, x.shape[axis], axis)
        if x.flags.c_contiguous and x.ndim:
            result = x.take(indices, axis)
        else:
            # take() would first copy all of a strided operand, say of a cache with room or of a transposed weight.
            result = x[(slice(None),) * counted(axis, x.ndim) + (indices,)].copy()
    except IndexError:
        axis = counted(axis, x.ndim)
        raise outside(indices, x.shape[axis], axis) from None
    # One element of a vector comes back as a NumPy scalar.
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
    """Indices may not be longer than the data on any axis but the indexed one."""
    for i, (n, limit) in enumerate(zip(shape, data)):
        if i != axis and n > limit:
            raise OpError(f"indices of shape {shape} are longer than data of shape {data} on axis {i}")


def element_grid(indices: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    """Index arrays that address one element for every entry of ``indices``."""
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
    # Indexing with one array a leading axis gives C order, with a NumPy scalar for a single element.
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
    """Distinct elements or slices, where each first stands, which each entry is, and how often each occurs.
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
