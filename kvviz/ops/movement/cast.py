"""Conversions between dtypes: Cast, CastLike and BitCast."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from onnx import helper, numpy_helper

from kvviz.errors import OpError
from kvviz.ops.numeric import FLOAT32, contiguous
from kvviz.ops.registry import op

DTYPES = {number: np.dtype(helper.tensor_dtype_to_np_dtype(number)) for number in helper.get_all_tensor_dtypes()}
"""NumPy's (or ml_dtypes') dtype of each ONNX element type."""

_FLOAT8 = tuple(
    np.dtype(t)
    for t in (
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e5m2fnuz,
    )
)
_NIBBLES = tuple(np.dtype(t) for t in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2))
_E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
_ODD = {dtype.num for dtype in DTYPES.values() if dtype.itemsize == 1 and dtype.type.__module__ != "numpy"}


@op("Cast", since=6, views=(0,), by_element=True)
def cast(x, *, to, saturate=1, round_mode="up"):
    """Convert to an ONNX element type. A cast to the tensor's own dtype is the tensor itself."""
    dtype = DTYPES.get(to)
    if dtype is None:
        raise OpError(f"Cast: ONNX has no element type number {to}")
    return converted(x, dtype, saturate, round_mode)


@op("CastLike", since=15, views=(0,), unread=(1,), by_element=True)
def cast_like(x, target, *, saturate=1, round_mode="up"):
    return converted(x, target.dtype, saturate, round_mode)


def converted(x, dtype, saturate, round_mode):
    """``x`` in another dtype, or itself if it has that dtype; the rest as in Cast-28."""
    if x.dtype == dtype:
        return x
    if dtype.num in _ODD or x.dtype.num in _ODD or dtype.kind in "OUT" or x.dtype.kind in "OUT":
        return _oddly_converted(x, dtype, saturate, round_mode)
    return x.astype(dtype, "C")


def _oddly_converted(x, dtype, saturate, round_mode):
    """Strings and types of 8 bits and fewer, for which a plain conversion does not follow ONNX."""
    if x.dtype.kind in "OUT":
        return _from_text(x, dtype)
    if dtype.kind in "OUT":
        return _to_text(x)
    if x.dtype.num in _ODD and dtype.num in _ODD:
        # ml_dtypes does not convert between all pairs of these; float32 holds every number of all of them.
        x = x.astype(FLOAT32)
    if dtype in _FLOAT8:
        return _to_float8(x, dtype, saturate)
    if dtype in _NIBBLES:
        return _to_nibble(x, dtype)
    if dtype == _E8M0:
        return numpy_helper.to_float8e8m0(x, saturate, round_mode).astype(dtype, "C")
    return x.astype(FLOAT32 if dtype.kind == "b" else dtype, "C").astype(dtype, copy=False)


def _to_float8(x, dtype, saturate):
    y = x.astype(dtype, "C")
    if saturate:
        wide = x.astype(FLOAT32)
        largest = np.float32(ml_dtypes.finfo(dtype).max)
        lost = np.logical_not(np.isfinite(y.astype(FLOAT32))) & np.logical_not(np.isnan(wide))
        if lost.any():
            y[lost] = np.copysign(largest, wide[lost]).astype(dtype)
    return y


def _to_nibble(x, dtype):
    """Floats are rounded half to even first; numbers out of range keep their low bits."""
    if x.dtype.kind in "fV" and x.dtype not in _NIBBLES:
        x = np.rint(x.astype(FLOAT32))
    return x.astype(np.int32).astype(dtype, "C")


def _from_text(x, dtype):
    if dtype.kind in "OUT":
        return x
    values = [_number(text) for text in x.reshape(-1).tolist()]
    whole = dtype.kind in "iu"
    numbers = np.array([int(v) for v in values] if whole else values, np.int64 if whole else np.float64)
    return numbers.astype(dtype).reshape(x.shape)


def _number(text):
    return float(text.decode() if isinstance(text, bytes) else text)


def _to_text(x):
    """Plain decimal text with as few digits as identify the number, as NumPy prints it."""
    y = np.empty(x.shape, object)
    y.reshape(-1)[:] = [str(v) for v in contiguous(x).reshape(-1)]
    return y


@op("BitCast", since=26, views=(0,))
def bit_cast(x, *, to):
    dtype = DTYPES[to]
    if dtype.itemsize != x.dtype.itemsize or (dtype in _NIBBLES) != (x.dtype in _NIBBLES):
        raise OpError(f"BitCast: {x.dtype} and {dtype} differ in width")
    return x.view(dtype)
