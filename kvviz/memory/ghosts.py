"""Ghosts: arrays with shape, dtype, strides and an address of their own, and no contents.

A ghost is an ordinary ndarray in address space that is never touched, so views, offsets and overlaps behave as those of
real arrays. `is_ghost` is true for values without contents. If an op overwrites a real array with a ghost, `forget`
marks that memory as having no contents.
"""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Sequence
from contextlib import suppress
from ctypes import c_char
from typing import Any
from weakref import finalize

import numpy as np

from kvviz.memory.storage import Reserved, reserve, reserved, root_of

# mmap's flag for address space that the system does not account for; Python has named it since 3.13.
_UNCOUNTED = {"linux": 0x4000, "darwin": 0x40}.get(sys.platform, 0)
# Small ghosts lie side by side in reserved blocks of this size; a large one has a block of its own.
_BLOCK = 1 << 30
_LARGE = 1 << 25
_ALIGNED = 64
# Above the addresses that processors let a process map.
_NOBODYS = 1 << 55

_forgotten: set[int] = set()


class Ghost(Reserved):
    """The root of ghosts; ``grow_axis`` is -1 unless it has room to grow. ``why``: why its contents cannot be read."""

    grow_axis = -1
    why = ""


def ghost(shape: Sequence[int], dtype: Any, why: str = "") -> np.ndarray:
    """A new ghost in memory of its own, in row-major order."""
    root = _root(tuple(shape), np.dtype(dtype))
    if why:
        root.why = why
    return root.view(np.ndarray)


def with_room(array: np.ndarray, axis: int, capacity: int) -> np.ndarray:
    """A copy with room to grow, as `kvviz.reserve` makes it; the copy of a ghost is a ghost."""
    if not is_ghost(array):
        return reserve(array, axis, capacity)
    block = reserved_block((*array.shape[:axis], capacity, *array.shape[axis + 1 :]), array.dtype, axis, True)
    return block[(slice(None),) * axis + (slice(0, array.shape[axis]),)]


def reserved_block(shape: tuple[int, ...], dtype: np.dtype, axis: int, without_contents: bool) -> np.ndarray:
    if without_contents:
        block: Reserved = _root(shape, dtype)
        block.grow_axis = axis
    else:
        block = reserved(shape, dtype, axis)
    return block.view(np.ndarray)


def is_ghost(value: Any) -> bool:
    """Whether a value, or any element of a sequence, has no contents."""
    if isinstance(value, np.ndarray):
        if type(value.base) is Ghost:
            return True
        root = root_of(value)
        return isinstance(root, Ghost) or (bool(_forgotten) and id(root) in _forgotten)
    return isinstance(value, (list, tuple)) and any(map(is_ghost, value))


def why_unknown(value: Any) -> str:
    """Why the contents of a ghost cannot be read; empty if they depend on data."""
    return getattr(root_of(value), "why", "") if isinstance(value, np.ndarray) else ""


def forget(array: np.ndarray) -> None:
    """Mark the memory of an array as having no contents from now on."""
    root = root_of(array)
    if not isinstance(root, Ghost) and id(root) not in _forgotten:
        _forgotten.add(id(root))
        finalize(root, _forgotten.discard, id(root))


def remember(array: np.ndarray) -> None:
    _forgotten.discard(id(root_of(array)))


def packed_copy(array: np.ndarray) -> np.ndarray:
    """A copy in row-major order; the copy of a ghost is a ghost."""
    return ghost(array.shape, array.dtype) if is_ghost(array) else np.array(array, order="C")


def stack(values: Sequence[np.ndarray], axis: int = 0) -> np.ndarray:
    """`numpy.stack`, in row-major order; raises `ValueError` if the shapes differ."""
    if not any(map(is_ghost, values)):
        return np.ascontiguousarray(np.stack(values, axis))
    shape, dtype = values[0].shape, values[0].dtype
    if any(value.shape != shape for value in values):
        raise ValueError("arrays of different shapes cannot be stacked")
    axis %= len(shape) + 1
    return ghost((*shape[:axis], len(values), *shape[axis:]), dtype)


class _Reserved:
    """The block that small ghosts are cut from. The system gets it back when its last ghost is gone."""

    def __init__(self) -> None:
        self.block: Any = None
        self.used = 0
        self.unmapped = _NOBODYS

    def take(self, size: int) -> tuple[Any, int]:
        if size > _LARGE:
            return _reserved(size), 0
        if self.block is None or self.used + size > _BLOCK:
            self.block, self.used = _reserved(_BLOCK), 0
        offset = self.used
        self.used += -(-size // _ALIGNED) * _ALIGNED
        return self.block, offset


_SPACE = _Reserved()


def _reserved(size: int) -> Any:
    """A buffer of ``size`` bytes: reserved address space, or, on Windows and under ``ulimit -v``, addresses that no
    process can map."""
    if _UNCOUNTED:
        with suppress(OSError):
            return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _UNCOUNTED)
    address, _SPACE.unmapped = _SPACE.unmapped, _SPACE.unmapped + -(-size // _BLOCK) * _BLOCK
    return (c_char * size).from_address(address)


def _root(shape: tuple[int, ...], dtype: np.dtype) -> Ghost:
    if dtype.hasobject or sys.maxsize < _NOBODYS:
        return Ghost(shape, dtype)
    return Ghost(shape, dtype, *_SPACE.take(max(math.prod(shape), 1) * dtype.itemsize))
