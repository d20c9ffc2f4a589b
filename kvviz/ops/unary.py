"""Functions of one element: arithmetic, exponentials, trigonometry, rounding and tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kvviz.ops.numeric import contiguous
from kvviz.ops.registry import op


def _writing(ufunc: np.ufunc) -> Callable:

    def kernel(x, *, out=None):
        y = ufunc(x, out)
        return y if y.flags.c_contiguous else y.copy()

    kernel.__name__ = ufunc.__name__
    return kernel


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
    op(_name, since=_since, overwrites=(0,))(_writing(_ufunc))


@op("IsNaN", since=9)
def is_nan(x):
    return contiguous(np.isnan(x))


@op("IsInf", since=10)
def is_inf(x, *, detect_negative=1, detect_positive=1):
    """Where the element is infinite, of the signs asked for."""
    y = np.isinf(x)
    if not (detect_negative and detect_positive):
        y = np.logical_and(y, x < 0 if detect_negative else x > 0)
        if not (detect_negative or detect_positive):
            y = np.zeros(x.shape, bool)
    return contiguous(y)
