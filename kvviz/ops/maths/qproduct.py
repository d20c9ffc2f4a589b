"""Products of quantised tensors, exact in whole numbers, then scaled; and what quantize_dynamic makes of an LSTM."""

from __future__ import annotations

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.maths.matmul import centred
from kvviz.ops.maths.quant import dynamic_uint8, whole_limits
from kvviz.ops.networks.conv import conv
from kvviz.ops.networks.rnn import Product, activations_of, lstm_layer
from kvviz.ops.numeric import FLOAT64
from kvviz.ops.registry import op

MICROSOFT = "com.microsoft"


def _per_row(scale):
    """One number a row of a matrix, as a column; a single number as it is."""
    return (scale[..., None] if scale.size > 1 else scale.reshape(())).astype(FLOAT64)


def _requantised(y, scale, zero_point):
    """Divide by the scale, round half to even, add the zero point and keep to the range of its dtype."""
    low, high = whole_limits(zero_point.dtype)
    y = np.rint(y / scale.astype(FLOAT64)) + zero_point.astype(FLOAT64)
    return np.clip(y, low, high).astype(np.int32).astype(zero_point.dtype)


@op("QLinearMatMul", since=10)
def qlinear_matmul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    """MatMul of two quantised matrices into a third; parameters one a tensor, a row of A or a column of B."""
    product = np.matmul(centred(a, a_zero_point, -2), centred(b, b_zero_point, -1))
    return _requantised(product * _per_row(a_scale) * b_scale.astype(FLOAT64), y_scale, y_zero_point)


@op("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(a, b, a_scale, b_scale, a_zero_point=None, b_zero_point=None, bias=None):
    product = np.matmul(centred(a, a_zero_point, -2), centred(b, b_zero_point, -1))
    y = product * (_per_row(a_scale) * b_scale.astype(FLOAT64))
    if bias is not None:
        y += bias
    return y.astype(a_scale.dtype)


@op("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(a, b, b_scale, b_zero_point=None, bias=None):
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


@op("DynamicQuantizeLSTM", domain="com.microsoft")
def dynamic_quantize_lstm(
    x,
    w,
    r,
    b=None,
    sequence_lens=None,
    initial_h=None,
    initial_c=None,
    p=None,
    w_scale=None,
    w_zero_point=None,
    r_scale=None,
    r_zero_point=None,
    *,
    activation_alpha=None,
    activation_beta=None,
    activations=None,
    clip=None,
    direction="forward",
    hidden_size=None,
    input_forget=0,
):
    """An LSTM with W (directions, in, 4 hidden) and R (directions, hidden, 4 hidden) in bytes.

    X is quantised to uint8 by its own range over all steps, H by the range of each step; products are made in whole
    numbers. One scale and zero point a direction, or one a column. onnxruntime does the same on one thread; on several
    it may quantise each part of the batch by itself.
    """
    functions = activations_of(("Sigmoid", "Tanh", "Tanh"), activations, activation_alpha, activation_beta, w.shape[0])
    from_input = [_quantised_product(*part) for part in zip(w, *_parameters(w, w_scale, w_zero_point, "W"))]
    from_past = [_quantised_product(*part) for part in zip(r, *_parameters(r, r_scale, r_zero_point, "R"))]
    return lstm_layer(
        x, from_input, from_past, r.shape[1], b, sequence_lens, (initial_h, initial_c), p, functions, clip, direction,
        input_forget,
    )  # fmt: skip


def _parameters(weights: np.ndarray, scale: np.ndarray | None, zero_point: np.ndarray | None, what: str) -> tuple:
    directions, _, columns = weights.shape
    found = []
    for parameter, name in ((scale, "scale"), (zero_point, "zero_point")):
        if parameter is None or parameter.shape not in ((directions,), (directions, columns)):
            shape = "is absent" if parameter is None else f"has shape {parameter.shape}"
            raise OpError(f"{what}_{name} {shape}: it must be ({directions},) or ({directions}, {columns})")
        found.append(parameter)
    return tuple(found)


def _quantised_product(matrix: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> Product:
    whole, scale = centred(matrix, zero_point, -1), scale.astype(FLOAT64)

    def product(x: np.ndarray) -> np.ndarray:
        numbers, step, zero = dynamic_uint8(x)
        result: np.ndarray = np.matmul(numbers.astype(FLOAT64) - zero, whole)
        return (result * (step.astype(FLOAT64) * scale)).astype(x.dtype)

    return product
