"""How kernels read small integer arguments (axes, shapes, lengths), and the size that no single tensor may have."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from kvviz.errors import LimitError, OpError


def ints(tensor: np.ndarray | None, attribute: Iterable[int] | int | None = None) -> list[int] | None:
    """The integers of an argument that is an input in some opsets and an attribute in others."""
    if tensor is not None:
        values = tensor.tolist()
        return values if isinstance(values, list) else [values]
    if attribute is None:
        return None
    return [attribute] if isinstance(attribute, int) else list(attribute)


def scalar(tensor: np.ndarray, what: str) -> int | float:
    """The one number of a tensor of one element, of any rank."""
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
    """One integer a batch entry."""
    if lengths.size != batch:
        raise OpError(f"{what} holds {lengths.size} numbers for a batch of {batch}: give one for each entry")
    return lengths.reshape(-1).tolist()


MAX_BYTES = 1 << 33
"""8 GiB, as for a tensor of a model that is loaded."""


def check_size(shape: Iterable[int], dtype: np.dtype) -> None:
    """Refuse a tensor that would only end in swapping, or in a MemoryError much later."""
    lengths = tuple(shape)
    size = math.prod(lengths) * dtype.itemsize
    if size > MAX_BYTES:
        raise LimitError(f"a tensor of shape {lengths} would take {size:,} bytes; the limit is {MAX_BYTES:,}")
