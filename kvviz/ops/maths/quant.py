"""From floats to few bits and back, and products with weights of 2, 4 or 8 bits in blocks along the inner axis."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from kvviz.errors import OpError
from kvviz.ops.movement.cast import DTYPES, converted
from kvviz.ops.numeric import FLOAT32, FLOAT64, FromWeights, counted, limited, whole_limits
from kvviz.ops.registry import MICROSOFT, op


@op("QuantizeLinear", since=10)
@op("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(x, scale, zero_point=None, *, axis=1, block_size=0, output_dtype=0, precision=0, saturate=1):
    """Round ``x / scale`` half to even, add the zero point, and clip. One scale per tensor, per index of ``axis``, or
    per block of ``block_size`` along it."""
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
    return limited(y, *limits).astype(np.int32).astype(dtype, copy=False)


@op("DequantizeLinear", since=10)
@op("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(x, scale, zero_point=None, *, axis=1, block_size=0, output_dtype=0):
    """``(x - zero point) × scale``, in the dtype of the scale or the requested one."""
    dtype = DTYPES[output_dtype] if output_dtype else scale.dtype
    wide = _working(scale)
    # An int32 does not fit in float32: the difference is computed before the conversion.
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


@op("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(x):
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


_weights = FromWeights(budget=2 << 30)
"""Matrices in float32, made once for each weight and kept while the weight lives."""


@op("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(
    a,
    b,
    scales,
    zero_points=None,
    g_idx=None,
    bias=None,
    *,
    K,
    N,
    bits=4,
    block_size,
    accuracy_level=0,
    weight_prepacked=0,
):
    """``a`` times the transpose of the quantised (N, K) matrix ``b``, in float32. At ``accuracy_level`` 4,
    onnxruntime's CPU kernel also rounds the rows of ``a`` to int8 in blocks, where weights of 4 or 8 bits are constant
    (MLAS CompInt8); so do we. Weights of the model are read-only arrays, which distinguishes them from inputs."""
    if weight_prepacked:
        raise OpError("MatMulNBits: weights in a device's own layout cannot be read")
    parts = (b, scales, zero_points, g_idx)
    w = _weights.of(parts, lambda: _unpacked_matrix(*parts, K, N, bits, block_size))
    if a.shape[-1] != K:
        raise OpError(f"MatMulNBits: an input of shape {a.shape} does not fit K = {K}")
    x = a if a.dtype == FLOAT32 else a.astype(FLOAT32)
    if accuracy_level == 4 and bits != 2 and g_idx is None and not b.flags.writeable:
        x = _rounded_to_int8(x, block_size)
    if x.ndim > 2 and x.shape[0] != 1:
        y = np.matmul(x.reshape(-1, K), w.T).reshape(*a.shape[:-1], N)
    else:
        y = np.matmul(x, w.T)
    if bias is not None:
        np.add(y, bias, y, casting="same_kind")
    return y if a.dtype == FLOAT32 else y.astype(a.dtype)


def _rounded_to_int8(x, block_size):
    """The rows of ``x`` rounded as int8 with one scale per block would store them: the largest of each block becomes
    127."""
    k = x.shape[-1]
    blocks = -(-k // block_size)
    padded = np.zeros((*x.shape[:-1], blocks * block_size), FLOAT32)
    padded[..., :k] = x
    grid = padded.reshape(*x.shape[:-1], blocks, block_size)
    scale = np.abs(grid).max(-1, keepdims=True) / FLOAT32.type(127)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
    return (np.rint(grid * inverse) * scale).reshape(padded.shape)[..., :k]


def _unpacked_matrix(b, scales, zero_points, g_idx, k, n, bits, block_size):
    blocks = -(-k // block_size)
    if b.size * 8 != n * blocks * block_size * bits:
        raise OpError(f"MatMulNBits: weights of shape {b.shape} do not hold {n} rows of {blocks} blocks")
    numbers = unpacked(b.reshape(n, -1), bits, blocks * block_size).astype(FLOAT32)
    scales = scales.reshape(n, blocks).astype(FLOAT32)
    zeros = _zero_points(zero_points, n, blocks, bits)
    if g_idx is not None and not np.array_equal(g_idx[:k], np.arange(k) // block_size):
        # Columns were reordered when the blocks were made: each names its block.
        order = g_idx[:k]
        numbers = numbers[:, :k]
        numbers -= zeros if np.ndim(zeros) == 0 else zeros[:, order]
        numbers *= scales[:, order]
        return numbers
    grid = numbers.reshape(n, blocks, block_size)
    grid -= zeros if np.ndim(zeros) == 0 else zeros[:, :, None]
    grid *= scales[:, :, None]
    return np.ascontiguousarray(numbers[:, :k])


def _zero_points(zero_points, n, blocks, bits):
    """(n, blocks) in float32, or one number for all."""
    if zero_points is None:
        return FLOAT32.type(1 << (bits - 1))
    if zero_points.dtype == np.uint8:
        return unpacked(zero_points.reshape(n, -1), bits, blocks).astype(FLOAT32)
    return zero_points.reshape(n, blocks).astype(FLOAT32)


def unpacked(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """The first ``count`` unsigned numbers of each row of bytes, low bits first, as uint8."""
    if bits == 8:
        return packed[..., :count]
    if bits not in (2, 4):
        raise OpError(f"weights of {bits} bits are not supported, only 2, 4 and 8")
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return numbers.reshape(*packed.shape[:-1], -1)[..., :count]


@op("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(
    data, indices, scales, zero_points=None, *, bits=4, block_size=128, gather_axis=0, quantize_axis=1
):
    """Gather slices of a quantised tensor and dequantise only those, to the dtype of the scales. uint8 data hold ``8 /
    bits`` numbers per byte along the last axis, with the middle of the range as zero point."""
    gather_axis %= data.ndim
    quantize_axis %= data.ndim
    length = data.shape[gather_axis]
    out_of_range = (indices < -length) | (indices >= length)
    places = np.where(out_of_range, 0, indices)
    taken, scale = np.take(data, places, gather_axis), np.take(scales, places, gather_axis)
    zeros = None if zero_points is None else np.take(zero_points, places, gather_axis)
    axis = quantize_axis if quantize_axis < gather_axis else quantize_axis + indices.ndim - 1
    middle = 0
    if data.dtype == np.uint8:
        taken = unpacked(taken, bits, taken.shape[-1] * (8 // bits))
        zeros = None if zeros is None else unpacked(zeros, bits, scale.shape[-1])
        middle = 1 << (bits - 1)
    count = taken.shape[axis]
    y = taken.astype(FLOAT32)
    y -= middle if zeros is None else _over_blocks(zeros.astype(FLOAT32), block_size, axis, count)
    y *= _over_blocks(scale.astype(FLOAT32), block_size, axis, count)
    if out_of_range.any():
        np.moveaxis(y, range(gather_axis, gather_axis + indices.ndim), range(indices.ndim))[out_of_range] = 0
    return y.astype(scales.dtype, copy=False)


def _over_blocks(parameter, block_size, axis, count):
    return parameter.repeat(block_size, axis)[(slice(None),) * axis + (slice(count),)]
