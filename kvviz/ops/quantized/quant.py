"""From floats to few bits and back: QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from onnx import TensorProto

from kvviz.errors import OpError
from kvviz.ops.arguments import counted
from kvviz.ops.movement.cast import DTYPES, converted
from kvviz.ops.numeric import FLOAT32, FLOAT64
from kvviz.ops.registry import op

MICROSOFT = "com.microsoft"


@op("QuantizeLinear", since=10)
@op("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(x, scale, zero_point=None, *, axis=1, block_size=0, output_dtype=0, precision=0, saturate=1):
    """Round ``x / scale`` half to even, add the zero point, and keep what is out of range at the edge. One scale a
    tensor, one an index of ``axis``, or one a block of ``block_size`` along it."""
    dtype = zero_point.dtype if zero_point is not None else DTYPES[output_dtype or TensorProto.UINT8]
    wide = DTYPES[precision] if precision else np.result_type(_working(x), _working(scale))
    y = np.divide(x.astype(wide, order="C"), spread(scale, x.shape, axis, block_size).astype(wide))
    limits = whole_limits(dtype)
    if limits is None:
        # float8 and float4 have a zero point of 0 only.
        return converted(y, dtype, saturate, "up")
    y = np.rint(y)
    if zero_point is not None:
        y = y + spread(zero_point, x.shape, axis, block_size).astype(y.dtype)
    return np.maximum(np.minimum(y, limits[1]), limits[0]).astype(np.int32).astype(dtype, copy=False)


@op("DequantizeLinear", since=10)
@op("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(x, scale, zero_point=None, *, axis=1, block_size=0, output_dtype=0):
    """``(x - zero point) × scale``, in the dtype of the scale or the one asked for."""
    dtype = DTYPES[output_dtype] if output_dtype else scale.dtype
    wide = _working(scale)
    # An int32 does not fit in float32: the difference is taken before the conversion.
    whole = x.dtype.kind in "iu" and x.dtype.itemsize == 4
    y = x.astype(FLOAT64 if whole else wide, order="C")
    if zero_point is not None:
        y = np.subtract(y, spread(zero_point, x.shape, axis, block_size).astype(y.dtype))
    y = np.multiply(y.astype(wide, copy=False), spread(scale, x.shape, axis, block_size).astype(wide))
    return y.astype(dtype, copy=False)


def _working(x):
    return FLOAT64 if x.dtype == FLOAT64 else FLOAT32


def spread(parameter, shape, axis, block_size):
    if parameter.size == 1 and parameter.ndim <= 1:
        return parameter.reshape(())
    axis = counted(axis, len(shape))
    if block_size:
        if parameter.ndim != len(shape) or parameter.shape[axis] != -(-shape[axis] // block_size):
            raise OpError(f"scales of shape {parameter.shape} do not cover {shape} in blocks of {block_size}")
        return parameter.repeat(block_size, axis)[(slice(None),) * axis + (slice(shape[axis]),)]
    if parameter.ndim != 1 or parameter.size != shape[axis]:
        raise OpError(f"{parameter.shape} scales do not fit axis {axis} of {shape}")
    return parameter.reshape(-1, *(1,) * (len(shape) - axis - 1))


def whole_limits(dtype):
    """Lowest and highest number of an integer dtype; None for a float dtype."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min, np.iinfo(dtype).max
    if "int" in dtype.name:
        return int(ml_dtypes.iinfo(dtype).min), int(ml_dtypes.iinfo(dtype).max)
    return None


@op("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(x):
    """Quantise to uint8 by the tensor's own range, widened to hold 0; gives the scale and the zero point too."""
    y, scale, zero = dynamic_uint8(x)
    return y.astype(np.uint8), scale, zero.astype(np.uint8)


def dynamic_uint8(x):
    """The numbers, still as float32, the scale and the zero point of DynamicQuantizeLinear."""
    low = np.minimum(x.min(initial=0), np.float32(0))
    high = np.maximum(x.max(initial=0), np.float32(0))
    scale = np.float32(high - low) / np.float32(255) if high != low else np.float32(1)
    zero = np.rint(np.clip(-low / scale, np.float32(0), np.float32(255)))
    y = np.rint(np.divide(x, scale, order="C"))
    return np.clip(y + zero, np.float32(0), np.float32(255)), np.asarray(scale, FLOAT32), np.asarray(zero, FLOAT32)
