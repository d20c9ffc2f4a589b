"""Tensors made from a few numbers: ranges, constants, identity matrices, triangles."""

from __future__ import annotations

import math

import numpy as np
from onnx import helper

from kvviz.errors import OpError
from kvviz.ops.numeric import check_size, keeps, scalar
from kvviz.ops.registry import op


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
    # Half precisions are computed in float32 (stash_type), where NumPy's own arange would round at every step.
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
