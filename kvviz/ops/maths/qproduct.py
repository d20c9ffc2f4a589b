"""Products of quantised tensors, exact in integers, then scaled; and the LSTM that quantize_dynamic makes."""

from __future__ import annotations

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.maths.quant import dynamic_uint8
from kvviz.ops.networks.conv import conv
from kvviz.ops.networks.rnn import Product, lstm_layer
from kvviz.ops.numeric import FLOAT32, FLOAT64, FromWeights, whole_limits
from kvviz.ops.registry import MICROSOFT, op

# The sum of so many products of two 8-bit numbers, one less a zero point, is an integer that float32 represents
# exactly.
_EXACT = 256
_weights = FromWeights(budget=1 << 30)


def centred(x: np.ndarray, zero_point: np.ndarray | None, along: int = -1) -> np.ndarray:
    """``x - zero_point``; a vector of zero points lies along that axis. In float64 unless ``x`` has 8-bit integers."""
    y = x.astype(FLOAT32 if x.dtype.kind in "iu" and x.itemsize == 1 else FLOAT64)
    if zero_point is None:
        return y
    zero = zero_point.astype(y.dtype)
    if zero.ndim == 1 and zero.size > 1 and along == -2:
        zero = zero[:, None]
    return np.subtract(y, zero, y)


def _wide_weights(b):
    """`centred` around 0, cached for weights of the model."""
    return _weights.of((b,), lambda: centred(b, None))


def _product(a, b, zero_point):
    if FLOAT64 in (a.dtype, b.dtype):
        total = np.matmul(a, b)
    else:
        total = np.zeros((), FLOAT64)
        for start in range(0, max(a.shape[-1], 1), _EXACT):
            part = slice(start, start + _EXACT)
            total = total + np.matmul(a[..., part], b[part] if b.ndim == 1 else b[..., part, :])
    if zero_point is not None and zero_point.any():
        total -= a.sum(-1, FLOAT64, keepdims=b.ndim > 1) * zero_point.astype(FLOAT64)
    return total


@op("MatMulInteger", since=10)
def matmul_integer(a, b, a_zero_point=None, b_zero_point=None):
    """Product of 8-bit matrices in int32, less the zero points: one a tensor, a row of A or a column of B."""
    return _product(centred(a, a_zero_point, -2), _wide_weights(b), b_zero_point).astype(np.int32)


def _per_row(scale):
    """One number per row of a matrix, as a column; a single number as it is."""
    return (scale[..., None] if scale.size > 1 else scale.reshape(())).astype(FLOAT64)


def _requantised(y, scale, zero_point):
    """Divide by the scale, round half to even, add the zero point and clip to the range of its dtype."""
    low, high = whole_limits(zero_point.dtype)
    y = np.rint(y / scale.astype(FLOAT64)) + zero_point.astype(FLOAT64)
    return np.clip(y, low, high).astype(np.int32).astype(zero_point.dtype)


@op("QLinearMatMul", since=10)
def qlinear_matmul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point):
    """MatMul of two quantised matrices into a third; parameters one a tensor, a row of A or a column of B."""
    product = _product(centred(a, a_zero_point, -2), _wide_weights(b), b_zero_point)
    return _requantised(product * _per_row(a_scale) * b_scale.astype(FLOAT64), y_scale, y_zero_point)


@op("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(a, b, a_scale, b_scale, a_zero_point=None, b_zero_point=None, bias=None):
    product = _product(centred(a, a_zero_point, -2), _wide_weights(b), b_zero_point)
    y = product * (_per_row(a_scale) * b_scale.astype(FLOAT64))
    if bias is not None:
        y += bias
    return y.astype(a_scale.dtype)


@op("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(a, b, b_scale, b_zero_point=None, bias=None):
    numbers, scale, zero = dynamic_uint8(a)
    product = _product(numbers - zero, _wide_weights(b), b_zero_point)
    y = product * (scale.astype(FLOAT64) * b_scale.astype(FLOAT64))
    if bias is not None:
        y += bias
    return y.astype(a.dtype)


@op("ConvInteger", since=10)
def conv_integer(x, w, x_zero_point=None, w_zero_point=None, **geometry):
    """Convolution of 8-bit tensors in int32; the padding counts as the zero point of ``x``."""
    return _convolved(x, x_zero_point, w, w_zero_point, geometry).astype(np.int32)


@op("QLinearConv", since=10)
def qlinear_conv(x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, bias=None, **geometry):
    """Convolution of quantised tensors into one; the bias is int32, in units of ``x_scale × w_scale``."""
    y = _convolved(x, x_zero_point, w, w_zero_point, geometry).astype(FLOAT64)
    if bias is not None:
        y += bias.reshape(-1, *(1,) * (x.ndim - 2))
    per_filter = w_scale.astype(FLOAT64).reshape(-1, *(1,) * (x.ndim - 2))
    return _requantised(y * (x_scale.astype(FLOAT64) * per_filter), y_scale, y_zero_point)


def _convolved(x, x_zero_point, w, w_zero_point, geometry):
    image, filters = centred(x, x_zero_point), _filters(w, w_zero_point)
    wide = np.result_type(image, filters)
    return conv(image.astype(wide, copy=False), filters.astype(wide, copy=False), **geometry)


def _filters(w, zero_point):
    """Filters around 0, wide enough for exact sums, cached for weights of the model."""

    def wide():
        y = centred(w, None if zero_point is None else zero_point.reshape(-1, *(1,) * (w.ndim - 1)))
        return y.astype(FLOAT64) if y[:1].size * 255 * np.abs(y).max(initial=0) >= 1 << 24 else y

    return _weights.of((w, zero_point), wide)


@op("DynamicQuantizeLSTM", domain=MICROSOFT)
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

    X is quantised to uint8 by its own range over all steps, H by the range of each step; products are exact in
    integers. There is one scale and zero point per direction, or per column. onnxruntime does the same on one thread;
    on several it may quantise parts of the batch separately.
    """
    how = {"activations": activations, "activation_alpha": activation_alpha, "activation_beta": activation_beta}
    from_input = _quantised_products(w, w_scale, w_zero_point, "W")
    steps = _quantised_products(r, r_scale, r_zero_point, "R")

    def from_past(past):
        return np.stack([product(one) for product, one in zip(steps, past)])

    how |= {"clip": clip, "direction": direction}
    initial = initial_h, initial_c
    return lstm_layer(x, from_input, from_past, r.shape[1], b, sequence_lens, initial, p, input_forget, how)


def _quantised_products(weights, scale, zero_point, what) -> list[Product]:
    """A function for each direction that quantises its input and multiplies it with that direction's matrix."""
    directions, _, columns = weights.shape
    for parameter, name in ((scale, "scale"), (zero_point, "zero_point")):
        if parameter is None or parameter.shape not in ((directions,), (directions, columns)):
            shape = "is absent" if parameter is None else f"has shape {parameter.shape}"
            raise OpError(f"{what}_{name} {shape}: it must be ({directions},) or ({directions}, {columns})")
    return [_quantised_product(*part) for part in zip(_wide_weights(weights), scale.astype(FLOAT64), zero_point)]


def _quantised_product(matrix: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> Product:
    def product(x: np.ndarray) -> np.ndarray:
        numbers, step, zero = dynamic_uint8(x)
        result: np.ndarray = _product(numbers - zero, matrix, zero_point) * (step.astype(FLOAT64) * scale)
        return result.astype(x.dtype)

    return product
