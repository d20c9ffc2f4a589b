"""The error function and the activations made from it or standing in for it: Erf and the Gelu family."""

from __future__ import annotations

import math

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.numeric import FLOAT64, blank, constant, in_float32, rounded, spreads
from kvviz.ops.registry import op

MICROSOFT = "com.microsoft"

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
    np.minimum(x, _REACH, out=x)
    np.maximum(x, -_REACH, out=x)
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
    """x (1 + erf(x / √2)) / 2; ``x`` is read once more after the scratch is filled, so ``out`` may be ``x``."""
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
def gelu(x, *, approximate="none", out=None):
    if x.dtype.char not in "fd":
        return in_float32(gelu, x, approximate=approximate, out=out)
    return (_gelu_tanh if approximate == "tanh" else _gelu_erf)(x, out)


@op("FastGelu", domain=MICROSOFT, overwrites=(0,), fits=spreads)
def fast_gelu(x, bias=None, *, out=None):
    """Gelu by tanh of ``x`` plus an optional bias along the last axis."""
    if x.dtype.char not in "fd":
        return in_float32(fast_gelu, x, bias, out=out)
    if bias is None:
        return _gelu_tanh(x, out)
    return _gelu_tanh(*_biased(x, bias, out))


@op("BiasGelu", domain=MICROSOFT, overwrites=(0,), fits=spreads)
def bias_gelu(a, b, *, out=None):
    """Exact Gelu of ``a + b``, ``b`` along the last axis."""
    if a.dtype.char not in "fd":
        return in_float32(bias_gelu, a, b, out=out)
    return _gelu_erf(*_biased(a, b, out))


def _biased(x, bias, out):
    """The sum, made in what becomes the output, and that output."""
    if bias.ndim != 1 or bias.shape != x.shape[-1:]:
        raise OpError(f"a bias of shape {bias.shape} does not fit the last axis of {x.shape}")
    y = np.add(x, bias, blank(x) if out is None else out)
    return y, y
