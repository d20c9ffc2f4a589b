"""Arithmetic, comparison and logic of two tensors, with multidirectional broadcasting (opset 7 on)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kvviz.ops.numeric import FLOAT64, contiguous, spreads
from kvviz.ops.registry import op


def _writing(ufunc: np.ufunc) -> Callable:

    def kernel(a, b, *, out=None):
        y = ufunc(a, b, out)
        return y if y.flags.c_contiguous else y.copy()

    kernel.__name__ = ufunc.__name__
    return kernel


def _testing(ufunc: np.ufunc) -> Callable:
    """A kernel whose booleans need room of their own."""

    def kernel(a, b):
        y = ufunc(a, b)
        return y if y.flags.c_contiguous else y.copy()

    kernel.__name__ = ufunc.__name__
    return kernel


_ARITHMETIC: tuple[tuple[str, int, np.ufunc, bool], ...] = (
    ("Add", 7, np.add, True),
    ("Sub", 7, np.subtract, False),
    ("Mul", 7, np.multiply, True),
    ("And", 7, np.logical_and, True),
    ("Or", 7, np.logical_or, True),
    ("Xor", 7, np.logical_xor, True),
    ("BitwiseAnd", 18, np.bitwise_and, True),
    ("BitwiseOr", 18, np.bitwise_or, True),
    ("BitwiseXor", 18, np.bitwise_xor, True),
)
_COMPARISONS: tuple[tuple[str, int, np.ufunc, bool], ...] = (
    ("Equal", 7, np.equal, True),
    ("Greater", 7, np.greater, False),
    ("Less", 7, np.less, False),
    ("GreaterOrEqual", 12, np.greater_equal, False),
    ("LessOrEqual", 12, np.less_equal, False),
)
for _name, _since, _ufunc, _swaps in _ARITHMETIC:
    op(_name, since=_since, overwrites=(0, 1), commutative=_swaps)(_writing(_ufunc))
for _name, _since, _ufunc, _swaps in _COMPARISONS:
    op(_name, since=_since, commutative=_swaps)(_testing(_ufunc))


@op("Div", since=7, overwrites=(0, 1))
def div(a, b, *, out=None):
    """Quotient; that of integers is cut towards zero (NumPy's own rounds down)."""
    kind = a.dtype.kind
    if kind == "i":
        whole = np.subtract(a, np.fmod(a, b))
        return contiguous(np.floor_divide(whole, b, out))
    y = np.floor_divide(a, b, out) if kind == "u" else np.divide(a, b, out)
    return y if y.flags.c_contiguous else y.copy()


@op("Mod", since=10, overwrites=(0, 1))
def mod(a, b, *, fmod=0, out=None):
    """Remainder with the sign of the divisor, or with ``fmod=1`` that of the dividend as in C."""
    return contiguous((np.fmod if fmod else np.remainder)(a, b, out))


_EASY_POWERS = {2: np.square, 0.5: np.sqrt, 1: np.positive}


@op("Pow", since=7, overwrites=(0,), fits=spreads)
def power(x, exponent, *, out=None):
    """Power in the dtype of the base. Squares and roots, the usual exponents, are not left to ``pow``."""
    if exponent.size == 1 and exponent.ndim <= x.ndim and x.dtype.kind not in "iu":
        easy = _EASY_POWERS.get(exponent.item())
        if easy is not None:
            y = easy(x, out)
            return y if y.flags.c_contiguous else y.copy()
    if exponent.dtype == x.dtype and x.dtype.kind not in "iu":
        return contiguous(np.power(x, exponent, out))
    if x.dtype.kind in "iu":
        return _integer_power(x, exponent, out)
    # A float32 base must not be widened by an int64 or float64 exponent, nor the exponent cut by a narrow base.
    wide = np.result_type(x.dtype, np.float32) if x.dtype.itemsize < 4 else x.dtype
    y = np.power(x.astype(wide, copy=False), exponent.astype(wide))
    if out is None:
        return contiguous(y.astype(x.dtype, copy=False))
    np.copyto(out, y, casting="unsafe")
    return out


def _integer_power(x, exponent, out):
    """Integer base: exact while the exponents are whole and not negative, else by way of float64."""
    if exponent.dtype.kind in "iu" and not (exponent < 0).any():
        if exponent.dtype == x.dtype:
            return contiguous(np.power(x, exponent, out))
        y = np.power(x.astype(np.int64), exponent.astype(np.int64))
    else:
        y = np.power(x.astype(FLOAT64), exponent.astype(FLOAT64))
    if out is None:
        return y.astype(x.dtype, "C")
    np.copyto(out, y, casting="unsafe")
    return out


@op("BitShift", since=11, overwrites=(0, 1))
def bit_shift(x, by, *, direction, out=None):
    """Shift bits; a shift by the whole width or more gives zero, or the sign to the right."""
    return contiguous((np.left_shift if direction == "LEFT" else np.right_shift)(x, by, out))
