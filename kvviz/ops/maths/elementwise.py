"""Functions of one element or several: arithmetic, comparison, logic, exponentials, rounding, choice, minimum, sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.numeric import FLOAT64, contiguous, in_float32, is_narrow, keeps, limited, spreads
from kvviz.ops.registry import by_reference, op


def _kernel(ufunc: np.ufunc) -> Callable:
    def kernel(*args, out=None):
        return contiguous(ufunc(*args, out=out), out)

    return kernel


def _packed(ufunc: np.ufunc, args: Sequence[Any], attributes: dict) -> np.ufunc | None:
    """The function alone: of packed inputs it makes packed results."""
    return ufunc if all(x.flags.c_contiguous for x in args) else None


def _test(apply: Callable) -> Callable:
    """A kernel whose booleans need room of their own."""
    return lambda *args, **how: contiguous(apply(*args, **how))


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
    _steady = partial(_packed, _ufunc)
    op(_name, since=_since, overwrites=(0, 1), commutative=_swaps, by_element=True, steady=_steady)(_kernel(_ufunc))
for _name, _since, _ufunc, _swaps in _COMPARISONS:
    op(_name, since=_since, commutative=_swaps, by_element=True)(_test(_ufunc))
op("IsNaN", since=9)(_test(np.isnan))


def _quotient(args: Sequence[Any], attributes: dict) -> np.ufunc | None:
    return _packed(np.divide, args, attributes) if args[0].dtype.kind not in "iu" else None


@op("Div", since=7, overwrites=(0, 1), by_element=True, steady=_quotient)
def div(a, b, *, out=None):
    """Quotient; integers are truncated towards zero (NumPy rounds down)."""
    kind = a.dtype.kind
    if kind == "i":
        whole = np.subtract(a, np.fmod(a, b))
        return contiguous(np.floor_divide(whole, b, out), out)
    return contiguous(np.floor_divide(a, b, out) if kind == "u" else np.divide(a, b, out), out)


by_reference("Mod", since=10, overwrites=(0, 1))
by_reference("BitShift", since=11, overwrites=(0, 1))

_EASY_POWERS = {2: np.square, 0.5: np.sqrt, 1: np.positive}


@op("Pow", since=7, overwrites=(0,), fits=spreads)
def power(x, exponent, *, out=None):
    """Power in the dtype of the base, with shortcuts for squares and roots, the usual exponents."""
    if exponent.size == 1 and exponent.ndim <= x.ndim and x.dtype.kind not in "iu":
        easy = _EASY_POWERS.get(exponent.item())
        if easy is not None:
            return contiguous(easy(x, out), out)
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
    """Integer base: exact for non-negative integer exponents, else computed in float64."""
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


# Rounded once, by the processor; for other functions NumPy may compute strided elements in another way.
_EXACT = {"Abs", "BitwiseNot", "Ceil", "Floor", "Neg", "Not", "Reciprocal", "Round", "Sign", "Sqrt"}


for _name, _since, _ufunc in (
    ("Abs", 1, np.absolute),
    ("Neg", 1, np.negative),
    ("Sqrt", 1, np.sqrt),
    ("Exp", 1, np.exp),
    ("Log", 1, np.log),
    ("Reciprocal", 1, np.reciprocal),
    ("Tanh", 1, np.tanh),
    ("Floor", 1, np.floor),
    ("Ceil", 1, np.ceil),
    ("Round", 11, np.rint),
    ("Sign", 9, np.sign),
    ("Sin", 7, np.sin),
    ("Cos", 7, np.cos),
    ("Tan", 7, np.tan),
    ("Asin", 7, np.arcsin),
    ("Acos", 7, np.arccos),
    ("Atan", 7, np.arctan),
    ("Sinh", 9, np.sinh),
    ("Cosh", 9, np.cosh),
    ("Asinh", 9, np.arcsinh),
    ("Acosh", 9, np.arccosh),
    ("Atanh", 9, np.arctanh),
    ("Not", 1, np.logical_not),
    ("BitwiseNot", 18, np.invert),
):
    _steady = partial(_packed, _ufunc)
    op(_name, since=_since, overwrites=(0,), by_element=_name in _EXACT, steady=_steady)(_kernel(_ufunc))


@op("IsInf", since=10)
def is_inf(x, *, detect_negative=1, detect_positive=1):
    y = np.isinf(x)
    if not (detect_negative and detect_positive):
        y = np.logical_and(y, x < 0 if detect_negative else x > 0)
        if not (detect_negative or detect_positive):
            y = np.zeros(x.shape, bool)
    return contiguous(y)


def _aligned(a: np.ndarray, b: np.ndarray, axis: int | None, broadcast: int) -> np.ndarray:
    if a.shape == b.shape:
        return b
    start = a.ndim - b.ndim if axis is None else axis + a.ndim * (axis < 0)
    fits = start >= 0 and all(n in (1, m) for n, m in zip(b.shape, a.shape[start:]))
    if b.size == 1 and broadcast:
        return b.reshape(())
    if not (broadcast and fits and start + b.ndim <= a.ndim):
        raise OpError(f"an operand of shape {b.shape} cannot be broadcast to {a.shape} from axis {axis}")
    return b.reshape(*b.shape, *(1,) * (a.ndim - start - b.ndim))


def _old(apply: Callable) -> Callable:
    """The meaning up to opset 6: B broadcasts only if the model says so, and from an axis on."""

    def kernel(a, b, *, axis=None, broadcast=0, out=None):
        return contiguous(apply(a, _aligned(a, b, axis, broadcast), out=out), out)

    return kernel


_OLD: dict[str, Callable] = {"Div": div, "Pow": power}
_OLD |= {name: ufunc for name, since, ufunc, _ in _ARITHMETIC if since == 7}
for _name, _apply in _OLD.items():
    op(_name, since=1, overwrites=(0,), fits=keeps)(_old(_apply))
for _name, _since, _ufunc, _ in _COMPARISONS[:3]:
    op(_name, since=1)(_test(_old(_ufunc)))


@op("Where", since=9, overwrites=(1, 2), fits=spreads, by_element=True)
def where(condition, x, y, *, out=None):
    """``x`` where the condition holds, else ``y``; if one of them is overwritten, only changes are written."""
    if out is None:
        return contiguous(np.where(condition, x, y))
    if out is y:
        np.copyto(out, x, where=condition)
    else:
        np.copyto(out, y, where=np.logical_not(condition))
    return out


@op("Clip", since=11, overwrites=(0,), fits=keeps, by_element=True)
def clip(x, low=None, high=None, *, out=None):
    """Limit to ``[low, high]``; if low is above high, everything becomes high."""
    return limited(x, low if low is None else _number(low), high if high is None else _number(high), out)


def _number(bound):
    """A bound as a scalar; some exporters write it with shape (1,)."""
    if bound.ndim == 0:
        return bound
    if bound.size != 1:
        raise OpError(f"a bound of Clip must be one number, but has shape {bound.shape}")
    return bound.reshape(())


@op("Clip", overwrites=(0,), fits=keeps, by_element=True)
def clip_by_attributes(x, *, min=-3.4028234663852886e38, max=3.4028234663852886e38, out=None):
    return limited(x, np.asarray(min, x.dtype), np.asarray(max, x.dtype), out)


def _folding(ufunc: np.ufunc) -> Callable:
    """A kernel that folds any number of tensors from the left. After the first step no input but ``out`` is read."""

    def kernel(first, *others, out=None):
        if not others:
            return out if out is not None else first.copy()
        y = ufunc(first, others[0], out=out)
        for other in others[1:]:
            y = ufunc(y, other, out=out)
        return contiguous(y, out)

    return kernel


op("Min", overwrites=(0, 1), commutative=True, by_element=True)(_folding(np.minimum))
op("Max", overwrites=(0, 1), commutative=True, by_element=True)(_folding(np.maximum))


@op("Sum", overwrites=(0, 1), commutative=True)
def add_all(first, *others, out=None):
    """Sum of any number of tensors; narrow floats are rounded once, at the end."""
    if is_narrow(first) and len(others) > 1:
        return in_float32(add_all, first, *others, out=out)
    return _add_from_left(first, *others, out=out)


@op("Mean", overwrites=(0, 1), commutative=True)
def mean_of_all(first, *others, out=None):
    if is_narrow(first):
        return in_float32(mean_of_all, first, *others, out=out)
    total = _add_from_left(first, *others, out=out)
    return contiguous(np.divide(total, len(others) + 1, out))


_add_from_left = _folding(np.add)
