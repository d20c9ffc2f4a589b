"""What the numeric kernels share: C order, sums in float32 for narrow floats, and two rules of what fits in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any

import numpy as np

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)


def contiguous(y: Any, out: Any = None) -> Any:
    """The array itself in C order or where ``out`` was given, else a copy of it (NumPy keeps the order of transposed
    operands)."""
    return y if out is not None or y.flags.c_contiguous else y.copy()


def blank(x: np.ndarray) -> np.ndarray:
    return np.empty(x.shape, x.dtype)


@lru_cache(maxsize=1024)
def constant(value: float, dtype: np.dtype | str) -> np.ndarray:
    """A number as a tensor of a dtype (or its character): NumPy takes twice as long over a Python number."""
    number = np.array(value, dtype)
    number.flags.writeable = False
    return number


def in_float32(kernel: Callable, *args: Any, out: np.ndarray | None = None, **attributes: Any) -> Any:
    """Run a kernel on float32 copies of narrow floats and round its results once, the first one into ``out``. Half
    precision, bfloat16 and float8 would lose a bit at each step of a formula, which no runtime does."""
    dtype = args[0].dtype
    wide = [a.astype(FLOAT32) if isinstance(a, np.ndarray) and is_narrow(a) else a for a in args]
    result = kernel(*wide, **attributes)
    if isinstance(result, tuple):
        return tuple(None if y is None else rounded(y, dtype, out if i == 0 else None) for i, y in enumerate(result))
    return rounded(result, dtype, out)


def rounded_once(kernel: Callable) -> Callable:
    """The kernel, run `in_float32` where its first input is a narrow float."""

    @wraps(kernel)
    def either(x: np.ndarray, *others: Any, **attributes: Any) -> Any:
        return in_float32(kernel, x, *others, **attributes) if is_narrow(x) else kernel(x, *others, **attributes)

    return either


def is_narrow(x: np.ndarray) -> bool:
    """Whether the dtype is a float of less than 32 bits."""
    return x.dtype.itemsize < 4 and x.dtype.kind not in "iub"


def rounded(y: Any, dtype: np.dtype, out: np.ndarray | None) -> np.ndarray:
    """``y`` in a narrower dtype, in ``out`` where that is given."""
    if out is None:
        return y.astype(dtype, "C")
    np.copyto(out, y, casting="unsafe")
    return out


def keeps(args: Sequence[Any], position: int, attributes: dict) -> str:
    """The output always has the shape and dtype of the input at this position."""
    return ""


def spreads(args: Sequence[Any], position: int, attributes: dict) -> str:
    """The output has this input's dtype; its shape only if all other inputs broadcast to it."""
    array = args[position]
    shape = array.shape
    for other in args:
        if other is None or other is array:
            continue
        theirs = other.shape
        if not theirs or theirs == shape:
            continue
        if len(theirs) > len(shape):
            return "shape"
        for have, want in zip(reversed(theirs), reversed(shape)):
            if have != 1 and have != want:
                return "shape"
    return ""
