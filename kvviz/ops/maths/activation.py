"""Activations of one tensor, Softmax and related ops in both meanings of ``axis``, and the gates that multiply two."""

from __future__ import annotations

import math

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.numeric import (
    FLOAT64,
    blank,
    constant,
    contiguous,
    counted,
    in_float32,
    keeps,
    limited,
    rounded,
    rounded_once,
    spreads,
)
from kvviz.ops.registry import MICROSOFT, by_reference, op


@op("Relu", overwrites=(0,), by_element=True)
def relu(x, *, out=None):
    return limited(x, constant(0, x.dtype), None, out)


def sigmoid(x, *, out=None):
    """1 / (1 + exp(-x)); the exponential may overflow, to an exact 0."""
    y = np.negative(x, blank(x) if out is None else out)
    np.exp(y, y)
    np.add(y, constant(1.0, x.dtype.char), y)
    return np.reciprocal(y, y)


op("Sigmoid", overwrites=(0,))(rounded_once(sigmoid))


@op("Swish", since=24, overwrites=(0,))
@rounded_once
def swish(x, *, alpha=1.0, out=None):
    char = x.dtype.char
    t = np.multiply(x, constant(-alpha, char), blank(x))
    np.exp(t, t)
    np.add(t, constant(1.0, char), t)
    return np.divide(x, t, blank(x) if out is None else out)


@op("QuickGelu", domain="com.microsoft", overwrites=(0,))
def quick_gelu(x, *, alpha=1.702, out=None):
    return swish(x, alpha=alpha, out=out)


@op("SwiGLU", since=28, overwrites=(0, 1))
@rounded_once
def swiglu(gate, value, *, alpha=1.0, out=None):
    """Swish of the gate times the value; the two have one shape."""
    if gate.shape != value.shape:
        raise OpError(f"the gate {gate.shape} and the value {value.shape} of SwiGLU must have one shape")
    t = swish(gate, alpha=alpha)
    return np.multiply(t, value, t if out is None else out)


@op("LeakyRelu", overwrites=(0,))
def leaky_relu(x, *, alpha=0.01, out=None):
    return _sloped(x, np.asarray(alpha, x.dtype), out)


@op("HardSigmoid", overwrites=(0,))
@rounded_once
def hard_sigmoid(x, *, alpha=0.2, beta=0.5, out=None):
    y = np.multiply(x, constant(alpha, x.dtype.char), blank(x) if out is None else out)
    np.add(y, constant(beta, x.dtype.char), y)
    return limited(y, constant(0, x.dtype.char), constant(1, x.dtype.char), y)


@op("PRelu", since=7, overwrites=(0,), fits=keeps)
def prelu(x, slope, *, out=None):
    """The result has the shape of ``x``, to which the slope broadcasts; its leading axes of length 1 may be more."""
    more = max(slope.ndim - x.ndim, 0)
    if slope.shape[:more] == (1,) * more:
        slope = slope.reshape(slope.shape[more:])
    if spreads([x, slope], 0, {}):
        raise OpError(f"a slope of shape {slope.shape} does not broadcast to {x.shape}")
    return _sloped(x, slope, out)


def _sloped(x, slope, out):
    if slope.size == 1 and 0 < slope.item() <= 1:
        return contiguous(np.maximum(x, np.multiply(x, slope), out=out), out)
    y = x.copy() if out is None else out
    np.copyto(y, np.multiply(x, slope), where=np.less(x, 0))
    return y


@op("Softsign", overwrites=(0,))
@rounded_once
def softsign(x, *, out=None):
    t = np.absolute(x, blank(x))
    np.add(t, 1.0, t)
    return np.divide(x, t, t if out is None else out)


_SINCE = {"Elu": 1, "Softplus": 1, "Selu": 6, "Shrink": 9, "ThresholdedRelu": 10}
_SINCE |= {"Celu": 12, "HardSwish": 14, "Mish": 18}
for _name, _since in _SINCE.items():
    by_reference(_name, since=_since, overwrites=(0,))


_largest = np.maximum.reduce
_sum = np.add.reduce


def _flattened(kernel):
    """The meaning up to opset 12: the tensor counts as a matrix, split before ``axis`` (1 by default)."""

    def flat(x, *, axis=1, out=None):
        axis = counted(axis, x.ndim) if x.ndim else 0
        matrix = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
        y = kernel(x.reshape(matrix), axis=1, out=None if out is None else out.reshape(matrix))
        return y.reshape(x.shape) if out is None else out

    return flat


@op("Softmax", since=13, overwrites=(0,))
def softmax(x, *, axis=-1, out=None):
    """Exponentials along one axis, scaled to the sum 1. A row of -inf gives NaN, as in ONNX. float16 is computed in
    float16, as ONNX's node tests expect."""
    if x.dtype.char not in "efd":
        return in_float32(softmax, x, axis=axis, out=out)
    y = blank(x) if out is None else out
    if not x.size:
        return y
    np.subtract(x, _largest(x, axis, None, None, True), y)
    np.exp(y, y)
    return np.divide(y, _sum(y, axis, None, None, True), y)


@op("LogSoftmax", since=13, overwrites=(0,))
@rounded_once
def log_softmax(x, *, axis=-1, out=None):
    """Logarithm of softmax, without intermediate numbers that underflow."""
    y = blank(x) if out is None else out
    if not x.size:
        return y
    np.subtract(x, _largest(x, axis, None, None, True), y)
    return np.subtract(y, np.log(_sum(np.exp(y), axis, None, None, True)), y)


@op("Hardmax", since=13, overwrites=(0,))
def hardmax(x, *, axis=-1, out=None):
    """1 at the first of the largest elements along one axis, else 0."""
    y = blank(x) if out is None else out
    if not x.size:
        return y
    first = np.expand_dims(x.argmax(axis), axis)
    y[...] = 0
    np.put_along_axis(y, first, np.ones((), x.dtype), axis)
    return y


for _name, _kernel in (("Softmax", softmax), ("LogSoftmax", log_softmax), ("Hardmax", hardmax)):
    op(_name, since=1, overwrites=(0,))(_flattened(_kernel))


# The error function and activations based on it, or approximating such ones: Erf and the Gelu family.

# erf(x) = x P(x²) / Q(x²) for |x| <= 3.95, beyond which it is 1 in float32. Our own fit: least squares on Chebyshev
# points against math.erf, reweighted until the relative error is level. Largest error in float32: 5.2e-8.
_P = (2.02592192e-06, 0.000284687262, 0.00380811891, 0.0528753132, 0.191549247, 1.12837914)
_Q = (3.78319224e-05, 0.00117071641, 0.0150550028, 0.114559191, 0.503088776, 1.0)
_REACH = 3.95
_BLOCK = 8192
_exact = np.frompyfunc(math.erf, 1, 1)


def fill_erf(x, y):
    """Write the error function of ``x`` to ``y``, which may be ``x``; float32 or float64, both in C order. float32 goes
    by blocks that stay in the cache, evaluated in float64 as the quotient would lose two bits in float32."""
    if x.dtype == FLOAT64:
        y[...] = _exact(x)
        return
    source, target = x.reshape(-1), y.reshape(-1)
    for start in range(0, source.size, _BLOCK):
        stop = start + _BLOCK
        target[start:stop] = _rational_erf(source[start:stop])


def _rational_erf(x):
    x = x.astype(FLOAT64)
    limited(x, -_REACH, _REACH, x)
    u = x * x
    p = _polynomial(_P, u)
    p *= x
    p /= _polynomial(_Q, u)
    return p


def _polynomial(coefficients, u):
    y = u * coefficients[0]
    for c in coefficients[1:-1]:
        y += c
        y *= u
    y += coefficients[-1]
    return y


@op("Erf", since=9, overwrites=(0,))
def erf(x, *, out=None):
    if x.dtype.char not in "fd":
        if x.dtype.kind in "iu":
            return rounded(erf(x.astype(FLOAT64)), x.dtype, out)
        return in_float32(erf, x, out=out)
    y = blank(x) if out is None else out
    fill_erf(x if x.flags.c_contiguous else x.copy(), y)
    return y


def _gelu_erf(x, out):
    """x (1 + erf(x / √2)) / 2; ``x`` is read again after the scratch is filled, so ``out`` may be ``x``."""
    char = x.dtype.char
    t = np.multiply(x, constant(math.sqrt(0.5), char), blank(x))
    fill_erf(t, t)
    np.add(t, constant(1.0, char), t)
    np.multiply(t, constant(0.5, char), t)
    return np.multiply(x, t, blank(x) if out is None else out)


def _gelu_tanh(x, out):
    """x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2."""
    char = x.dtype.char
    t = np.multiply(x, x, blank(x))
    np.multiply(t, constant(0.044715 * math.sqrt(2 / math.pi), char), t)
    np.add(t, constant(math.sqrt(2 / math.pi), char), t)
    np.multiply(t, x, t)
    np.tanh(t, t)
    np.add(t, constant(1.0, char), t)
    np.multiply(t, constant(0.5, char), t)
    return np.multiply(x, t, blank(x) if out is None else out)


@op("Gelu", since=20, overwrites=(0,))
@op("Gelu", domain=MICROSOFT, overwrites=(0,))
@rounded_once
def gelu(x, *, approximate="none", out=None):
    return (_gelu_tanh if approximate == "tanh" else _gelu_erf)(x, out)


@op("FastGelu", domain=MICROSOFT, overwrites=(0,), fits=spreads)
@rounded_once
def fast_gelu(x, bias=None, *, out=None):
    if bias is None:
        return _gelu_tanh(x, out)
    return _gelu_tanh(*_biased(x, bias, out))


@op("BiasGelu", domain=MICROSOFT, overwrites=(0,), fits=spreads)
@rounded_once
def bias_gelu(a, b, *, out=None):
    return _gelu_erf(*_biased(a, b, out))


def _biased(x, bias, out):
    """The sum, computed in the future output, and that output."""
    if bias.ndim != 1 or bias.shape != x.shape[-1:]:
        raise OpError(f"a bias of shape {bias.shape} does not fit the last axis of {x.shape}")
    y = np.add(x, bias, blank(x) if out is None else out)
    return y, y
