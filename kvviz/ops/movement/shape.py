"""Operators that change a tensor's shape but not its elements, as views if NumPy can; and plain new tensors."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import zip_longest

import numpy as np
from onnx import helper

from kvviz.errors import OpError
from kvviz.ops.numeric import check_size, counted, distinct, ints, keeps, scalar
from kvviz.ops.registry import by_reference, op


@op("Reshape", views=(0,), moves=True)
def reshape(x, target=None, *, shape=None, allowzero=0):
    """Reshape-1 (attribute) to 25. A 0 keeps that dimension unless ``allowzero``; one -1 is inferred."""
    sizes = target.tolist() if target is not None else list(shape)
    if 0 in sizes and not allowzero:
        if len(sizes) > x.ndim and 0 in sizes[x.ndim :]:
            raise OpError(f"shape {sizes} keeps a dimension that a tensor of shape {x.shape} does not have")
        sizes = [kept if size == 0 else size for size, kept in zip(sizes, (*x.shape, *sizes[x.ndim :]))]
    try:
        # NumPy infers any negative length.
        if sizes and min(sizes) < -1:
            raise ValueError
        return x.reshape(sizes)
    except ValueError:
        raise OpError(f"a tensor of shape {x.shape} cannot be reshaped to {sizes}") from None


@op("Flatten", views=(0,), moves=True)
def flatten(x, *, axis=1):
    """Flatten to two dimensions, split before ``axis``, which may equal the rank."""
    if not -x.ndim <= axis <= x.ndim:
        raise OpError(f"axis {axis} is out of range for a tensor of rank {x.ndim}")
    if axis < 0:
        axis += x.ndim
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@op("Unsqueeze", views=(0,), moves=True, by_element=True)
def unsqueeze(x, where=None, *, axes=None):
    places = ints(where, axes) or []
    sizes = list(x.shape)
    for axis in sorted(distinct(places, x.ndim + len(places))):
        sizes.insert(axis, 1)
    return x.reshape(sizes)


@op("Squeeze", views=(0,), moves=True, by_element=True)
def squeeze(x, where=None, *, axes=None):
    places = ints(where, axes)
    if not places:
        return x.reshape([size for size in x.shape if size != 1])
    drop = {counted(axis, x.ndim, "axes") for axis in places}
    for axis in drop:
        if x.shape[axis] != 1:
            raise OpError(f"axis {axis} of a tensor of shape {x.shape} has length {x.shape[axis]}, not 1")
    return x.reshape([size for axis, size in enumerate(x.shape) if axis not in drop])


@op("Transpose", views=(0,), moves=True, by_element=True)
def transpose(x, *, perm=None):
    try:
        if perm and min(perm) < 0:
            raise ValueError
        return x.transpose(perm)
    except ValueError:
        raise OpError(f"perm {perm} does not permute the dimensions of a tensor of shape {x.shape}") from None


@op("Identity", views=(0,), moves=True, by_element=True)
def identity(x):
    return x


@op("Expand", views=(0,), moves=True, by_element=True)
def expand(x, target):
    shape = _expanded(x.shape, tuple(target.tolist()), x.dtype)
    return x if shape == x.shape else np.broadcast_to(x, shape)


@lru_cache(maxsize=1024)
def _expanded(shape, sizes, dtype):
    if sizes and min(sizes) < 0:
        raise OpError(f"a length of {list(sizes)} is negative")
    pairs = list(zip_longest(reversed(shape), reversed(sizes), fillvalue=1))
    if any(have != want and 1 not in (have, want) for have, want in pairs):
        raise OpError(f"a tensor of shape {shape} does not broadcast to {list(sizes)}")
    wide = tuple(want if have == 1 else have for have, want in reversed(pairs))
    if wide != shape:
        check_size(wide, dtype)
    return wide


@op("Tile", views=(0,), moves=True, by_element=True)
def tile(x, repeats, along=None):
    """Repeat each dimension; Tile-1 names one axis and one count instead."""
    counts = ints(repeats) or []
    if along is not None:
        axis = counted(int(along.item()), x.ndim)
        counts = [counts[0] if i == axis else 1 for i in range(x.ndim)]
    if len(counts) != x.ndim:
        raise OpError(f"{len(counts)} repeats do not fit a tensor of rank {x.ndim}")
    if all(count == 1 for count in counts):
        return x
    pairs = [(count, size) for count, size in zip(counts, x.shape)]
    check_size((count * size for count, size in pairs), x.dtype)
    spread = np.broadcast_to(x.reshape([n for size in x.shape for n in (1, size)]), [n for pair in pairs for n in pair])
    # Repeating one axis of length 1 would reshape to a view with stride 0, which is not fresh memory.
    return spread.copy().reshape([count * size for count, size in pairs])


@op("Shape", unread=(0,), by_element=True)
def shape_of(x, *, start=0, end=None):
    return np.array(x.shape[start:end], np.int64)


@op("Size", unread=(0,), by_element=True)
def size_of(x):
    return np.array(x.size, np.int64)


@op("Dropout", views=(0,))
def dropout(x, rate=None, training=None, *, ratio=0.5, seed=None, is_test=0, n_outputs=2, opset=13):
    """Identity, unless ``training_mode`` is fed as true (opset 12 on): then NumPy's legacy generator from ``seed``."""
    share = 0.5 if rate is None else float(rate.item())
    if training is None or not training.item() or share == 0:
        return (x, np.ones(x.shape, np.bool_ if opset >= 10 else x.dtype)) if n_outputs > 1 else x
    keep = np.random.RandomState(seed).uniform(0, 1.0, x.shape) >= share
    scale = 1 / (1 - share)
    return (keep * x * scale).astype(x.dtype), keep


by_reference("DepthToSpace", "SpaceToDepth", moves=True)


@op("ReverseSequence", moves=True)
def reverse_sequence(x, lengths, *, batch_axis=1, time_axis=0):
    """Reverse the first ``lengths[b]`` rows of each batch entry; the two axes are 0 and 1 in either order."""
    batch, time = counted(batch_axis, x.ndim, "batch_axis"), counted(time_axis, x.ndim, "time_axis")
    y = x.copy()
    if batch == time or max(batch, time) > 1:
        raise OpError(f"batch_axis {batch_axis} and time_axis {time_axis} must be 0 and 1, in either order")
    if lengths.shape != (x.shape[batch],):
        raise OpError(
            f"sequence_lens of shape {lengths.shape} must hold one length for each of {x.shape[batch]} entries"
        )
    rows, result = np.moveaxis(x, (batch, time), (0, 1)), np.moveaxis(y, (batch, time), (0, 1))
    for b, length in enumerate(lengths.tolist()):
        if not 0 <= length <= x.shape[time]:
            raise OpError(f"sequence length {length} of batch entry {b} is not in [0, {x.shape[time]}]")
        result[b, :length] = rows[b, :length][::-1]
    return y


@op("Range")
def range_(start, limit, delta, *, stash_type=1):
    """``start`` to ``limit`` (not reached) in steps of ``delta``; ``ceil((limit - start) / delta)`` elements."""
    low, high, step = (scalar(x, what) for x, what in ((start, "start"), (limit, "limit"), (delta, "delta")))
    if step == 0:
        raise OpError("a delta of 0 never reaches the limit")
    dtype = start.dtype
    count = max(-(-(high - low) // step) if dtype.kind == "i" else math.ceil((high - low) / step), 0)
    check_size((int(count),), dtype)
    if dtype.kind == "i":
        return np.arange(low, low + int(count) * step, step, dtype)
    # Half precisions are computed in float32 (stash_type); NumPy's own arange would round at every step.
    work = np.dtype(np.float32) if dtype.itemsize < 4 else dtype
    return (np.arange(int(count), dtype=work) * work.type(step) + work.type(low)).astype(dtype, copy=False)


@op("ConstantOfShape")
def constant_of_shape(shape, *, value=None):
    sizes = shape.tolist()
    if any(size < 0 for size in sizes):
        raise OpError(f"a dimension of shape {sizes} is negative")
    dtype = np.dtype(np.float32) if value is None else value.dtype
    check_size(sizes, dtype)
    if value is None:
        return np.zeros(sizes, dtype)
    y = np.empty(sizes, dtype)
    y.fill(value.reshape(-1)[0])
    return y


@op("EyeLike", unread=(0,))
def eye_like(x, *, dtype=None, k=0):
    if x.ndim != 2:
        raise OpError(f"the input must be a matrix, but has shape {x.shape}")
    return np.eye(*x.shape, k=k, dtype=x.dtype if dtype is None else helper.tensor_dtype_to_np_dtype(dtype))


@op("Trilu", overwrites=(0,), fits=keeps)
@op("Trilu", domain="com.microsoft", overwrites=(0,), fits=keeps)
def trilu(x, diagonal=None, *, upper=1, out=None):
    """The upper or lower triangle of the last two axes, the rest 0; ``k`` shifts the diagonal to the right."""
    k = 0 if diagonal is None else int(scalar(diagonal, "k"))
    rows, columns = x.shape[-2:]
    # Far diagonals keep all or nothing; clamping them avoids overflow in the comparison.
    k = min(max(k, -rows - 1), columns + 1)
    lower = np.tri(rows, columns, k - 1 if upper else k, dtype=np.bool_)
    y = x.copy() if out is None else out
    np.copyto(y, np.zeros((), x.dtype), where=lower if upper else ~lower)
    return y
