"""Products of quantised tensors: exact in whole numbers, then scaled."""

from __future__ import annotations

import numpy as np

from kvviz.ops.conv import conv
from kvviz.ops.matmul import centred
from kvviz.ops.numeric import FLOAT64
from kvviz.ops.quant import dynamic_uint8, whole_limits
from kvviz.ops.registry import op

MICROSOFT = "com.microsoft"


def _column(parameter):
    return parameter[..., None] if parameter.ndim else parameter


def _requantised(y, scale, zero_point):
    """Divide by the scale, round half to even, add the zero point and keep to the range of its dtype."""
    low, high = whole_limits(zero_point.dtype)
    y = np.rint(y / scale.astype(FLOAT64)) + zero_point.astype(FLOAT64)
    return np.clip(y, low, high).astype(np.int32).astype(zero_point.dtype)


@op("QLinearMatMul", since=10)
def qlinear_matmul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    """MatMul of two quantised matrices into a third; parameters one a tensor, a row of A or a column of B."""
    product = np.matmul(centred(a, a_zero_point, -2), centred(b, b_zero_point, -1))
    scale = (_column(a_scale) if a_scale.size > 1 else a_scale.reshape(())).astype(FLOAT64)
    return _requantised(product * scale * b_scale.astype(FLOAT64), y_scale, y_zero_point)


@op("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(a, b, a_scale, b_scale, a_zero_point=None, b_zero_point=None, bias=None):
    product = np.matmul(centred(a, a_zero_point, -2), centred(b, b_zero_point, -1))
    scale = (_column(a_scale) if a_scale.size > 1 else a_scale.reshape(())).astype(FLOAT64)
    y = product * (scale * b_scale.astype(FLOAT64))
    if bias is not None:
        y += bias
    return y.astype(a_scale.dtype)


@op("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(a, b, b_scale, b_zero_point=None, bias=None):
    """Quantise A to uint8 by its own range, multiply whole numbers, scale back, add the bias."""
    numbers, scale, zero = dynamic_uint8(a)
    product = np.matmul(numbers.astype(FLOAT64) - zero, centred(b, b_zero_point, -1))
    y = product * (scale.astype(FLOAT64) * b_scale.astype(FLOAT64))
    if bias is not None:
        y += bias
    return y.astype(a.dtype)


@op("ConvInteger", since=10)
def conv_integer(
    x,
    w,
    x_zero_point=None,
    w_zero_point=None,
    *,
    auto_pad="NOTSET",
    dilations=None,
    group=1,
    kernel_shape=None,
    pads=None,
    strides=None,
):
    """Convolution of 8-bit tensors in int32; the padding counts as the zero point of ``x``."""
    y = conv(
        centred(x, x_zero_point, -1),
        _filters(w, w_zero_point),
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        pads=pads,
        strides=strides,
    )
    return y.astype(np.int32)


@op("QLinearConv", since=10)
def qlinear_conv(
    x,
    x_scale,
    x_zero_point,
    w,
    w_scale,
    w_zero_point,
    y_scale,
    y_zero_point,
    bias=None,
    *,
    auto_pad="NOTSET",
    dilations=None,
    group=1,
    kernel_shape=None,
    pads=None,
    strides=None,
):
    """Convolution of quantised tensors into one; the bias is int32, in units of ``x_scale × w_scale``."""
    y = conv(
        centred(x, x_zero_point, -1),
        _filters(w, w_zero_point),
        None if bias is None else bias.astype(FLOAT64),
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        pads=pads,
        strides=strides,
    )
    per_filter = w_scale.astype(FLOAT64).reshape(-1, *(1,) * (x.ndim - 2))
    return _requantised(y * (x_scale.astype(FLOAT64) * per_filter), y_scale, y_zero_point)


def _filters(w, zero_point):
    """Weights less their zero point, of which there is one or one a filter."""
    if zero_point is None:
        return w.astype(FLOAT64)
    return w.astype(FLOAT64) - zero_point.astype(FLOAT64).reshape(-1, *(1,) * (w.ndim - 1))
