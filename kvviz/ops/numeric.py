"""Helpers of kernels: C order, narrow floats, in-place fit, small integer arguments, and results kept for weights."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, wraps
from typing import Any

import ml_dtypes
import numpy as np

from kvviz.errors import LimitError, OpError

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)


def contiguous(y: Any, out: Any = None) -> Any:
    """The array itself if it is in C order or ``out`` was given, else a copy (NumPy keeps the order of transposed
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


@lru_cache
def _ends(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    low, high = whole_limits(dtype) or (-math.inf, math.inf)
    return constant(low, dtype), constant(high, dtype)


def limited(x: np.ndarray, low: Any, high: Any, out: np.ndarray | None = None) -> Any:
    """The elements between two numbers, None for no limit; where they cross, the upper one holds. For large tensors
    NumPy's clip takes a third of the time of its maximum or minimum; it keeps -0.0, as onnxruntime does."""
    if x.dtype.kind not in "iuf":
        return in_float32(limited, x, low, high, out=out)
    lowest, highest = _ends(x.dtype)
    return contiguous(x.clip(lowest if low is None else low, highest if high is None else high, out), out)


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
    @wraps(kernel)
    def either(x: np.ndarray, *others: Any, **attributes: Any) -> Any:
        return in_float32(kernel, x, *others, **attributes) if is_narrow(x) else kernel(x, *others, **attributes)

    return either


def is_narrow(x: np.ndarray) -> bool:
    return x.dtype.itemsize < 4 and x.dtype.kind not in "iub"


def rounded(y: Any, dtype: np.dtype, out: np.ndarray | None) -> np.ndarray:
    if out is None:
        return y.astype(dtype, "C")
    np.copyto(out, y, casting="unsafe")
    return out


def whole_limits(dtype):
    """Lowest and highest number of an integer dtype; None for a float dtype."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min, np.iinfo(dtype).max
    if "int" in dtype.name:
        return int(ml_dtypes.iinfo(dtype).min), int(ml_dtypes.iinfo(dtype).max)
    return None


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


def ints(tensor: np.ndarray | None, attribute: Iterable[int] | int | None = None) -> list[int] | None:
    """The integers of an argument that is an input in some opsets and an attribute in others."""
    if tensor is not None:
        values = tensor.tolist()
        return values if isinstance(values, list) else [values]
    if attribute is None:
        return None
    return [attribute] if isinstance(attribute, int) else list(attribute)


def scalar(tensor: np.ndarray, what: str) -> int | float:
    if tensor.size != 1:
        raise OpError(f"{what} must hold one number, but has shape {tensor.shape}")
    return tensor.item()


def counted(axis: int, rank: int, what: str = "axis") -> int:
    """An axis counted from 0; negative ones count from the end."""
    if not -rank <= axis < rank:
        raise OpError(f"{what} {axis} is out of range for a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def distinct(axes: Iterable[int], rank: int, what: str = "axes") -> list[int]:
    """Axes counted from 0, each once, in the order given."""
    result = [counted(axis, rank, what) for axis in axes]
    if len(set(result)) != len(result):
        raise OpError(f"{what} {result} name one axis twice")
    return result


def same_batch(lengths: np.ndarray, batch: int, what: str) -> list[int]:
    if lengths.size != batch:
        raise OpError(f"{what} holds {lengths.size} numbers for a batch of {batch}: give one for each entry")
    return lengths.reshape(-1).tolist()


MAX_BYTES = 1 << 33
"""8 GiB, as for a tensor of a model that is loaded."""


def check_size(shape: Iterable[int], dtype: np.dtype) -> None:
    """Refuse a tensor that would only end in swapping, or in a late MemoryError."""
    lengths = tuple(shape)
    size = math.prod(lengths) * dtype.itemsize
    if size > MAX_BYTES:
        raise LimitError(f"a tensor of shape {lengths} would take {size:,} bytes; the limit is {MAX_BYTES:,}")


Parts = tuple["np.ndarray | None", ...]


class FromWeights:
    """A bounded table from tuples of read-only arrays to results computed from them, of ``budget`` bytes in all.

    An entry goes when the first of its arrays is freed. Writable arrays and views of them are never keys, because their
    results could be out of date. Results beyond the budget are not kept; older entries stay, since weights are used in
    the same order again and again.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.nbytes = 0
        self._entries: dict[tuple[int, ...], tuple[np.ndarray, list[weakref.ref]]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, parts: Parts) -> np.ndarray | None:
        entry = self._entries.get(tuple(map(id, parts)))
        return None if entry is None else entry[0]

    def of(self, parts: Parts, make: Callable[[], np.ndarray]) -> np.ndarray:
        """The result for these arrays: the one that is kept, or a new one, which is kept if it may be."""
        found = self.get(parts)
        if found is None:
            found = make()
            self.put(parts, found)
        return found

    def put(self, parts: Parts, result: np.ndarray) -> bool:
        """Keep a result if the arrays cannot change and the budget allows it; returns whether it did."""
        if self.nbytes + result.nbytes > self.budget or not all(part is None or _fixed(part) for part in parts):
            return False
        key = tuple(map(id, parts))

        def drop(_: weakref.ref) -> None:
            gone = self._entries.pop(key, None)
            if gone is not None:
                self.nbytes -= gone[0].nbytes

        self._entries[key] = (result, [weakref.ref(part, drop) for part in parts if part is not None])
        self.nbytes += result.nbytes
        return True


def _fixed(array: np.ndarray) -> bool:
    """Whether the array's memory cannot be written through it or through what it views: an array that owns it may be
    made writable again. Weights never own theirs."""
    base: object = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable or base.flags.owndata:
            return False
        base = base.base
    return True
