"""Blocks of memory, who holds them, and the pool of freed ones; and the layout of an array, which rules read.

Invariant: ``holders`` counts the live values of this storage, plus one while a caller (or the model, for weights)
holds it; at 0 the storage is dead. Captures by reference do not count: the outer frame's value outlives them.

The pool decides *accounting*: which storage a new value moves into. NumPy's own allocator serves the bytes, and
`Blocks` those of large arrays that live long.
"""

from __future__ import annotations

import math
import mmap
import sys
from bisect import bisect_left, insort
from collections.abc import Sequence
from ctypes import c_size_t
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol, TypeGuard

import numpy as np

SMALL = 1 << 16  # bytes; arrays below it fit in a few pages
_BLOCK, _LINE = 1 << 22, 64


class Blocks:
    """Memory for weights and caches that grow, in blocks for which huge pages are requested. A product of a vector and
    a matrix reads the whole matrix once, and with pages of 4 KiB it takes 1.2 to 1.8 times as long (measured for 0.4
    to 3.5 MB). ``growing``: whether each block is twice as large as the last one, for arrays that are freed
    together."""

    def __init__(self, growing: bool) -> None:
        self._free = memoryview(b"")
        self._size, self._times = _BLOCK, 1 + growing
        self._lock = Lock()

    def take(self, nbytes: int) -> memoryview:
        """Zeroed bytes of their own that begin at a cache line; the block is freed with the last array in it."""
        with self._lock:
            if len(self._free) < nbytes:
                self._free = memoryview(_mapped(max(self._size, nbytes)))
                self._size *= self._times
            found, self._free = self._free[:nbytes], self._free[-(-nbytes // _LINE) * _LINE :]
            return found


def _mapped(size: int) -> mmap.mmap:
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size)
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    return block


class ArrayLayout(Protocol):
    """The layout of an array, without its numbers, as policies, planners, placement and view rules see it.

    An ndarray has all of this, and so has a ghost, which a dry run uses instead.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        ...

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of an element."""
        ...

    @property
    def ndim(self) -> int:
        """Number of axes."""
        ...

    @property
    def size(self) -> int:
        """Number of elements."""
        ...

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        ...

    @property
    def flags(self) -> Any:
        """As of an ndarray: ``c_contiguous``, ``writeable`` and others."""
        ...

    @property
    def base(self) -> Any:
        """The array of which this one is a view; None if it owns its memory."""
        ...


def is_array(value: object) -> TypeGuard[ArrayLayout]:
    return isinstance(value, np.ndarray)


Arguments = Sequence[ArrayLayout]
"""The inputs or outputs of an op as a rule sees them; an absent one is None, and a sequence is a list of arrays."""


_BLOCKS = Blocks(growing=False)


class Reserved(np.ndarray):
    """The owner of a reserved block; arrays made by `reserve` are plain views into it. A negative ``grow_axis`` means
    no room."""

    grow_axis: int = 0


@dataclass(slots=True, eq=False)
class Room:
    axis: int
    rows: int
    filled: int


@dataclass(slots=True, eq=False, repr=False)
class Storage:
    """One block of memory. ``root`` is the array at the bottom of every view's base chain, None for sequences and dead
    storages. ``origin`` is ``"weights"``, ``"caller"`` (borrowed), ``"donated"``, ``"run"`` or ``"pool"``. For
    ``holders`` see the module's invariant."""

    id: int  # shown as ``B12``
    capacity: int  # bytes, reserved room included
    root: Any
    origin: str = "run"
    owned: bool = True  # the run may overwrite it once nobody else reads it
    holders: int = 0
    generation: int = 0  # how often its contents were overwritten in place
    room: Room | None = None  # where values may grow, for a block made by `reserve`
    parts: tuple[Storage, ...] = ()  # for a sequence: the storages of its elements, each held once
    whole: bool = True  # the run was given all of it; False where a caller donated a part of a larger array

    def __repr__(self) -> str:
        generation = f".{self.generation}" if self.generation else ""
        return f"<B{self.id}{generation} {self.capacity} B {self.origin}, {self.holders} holders>"


def repeats(array: ArrayLayout) -> bool:
    """Whether elements of an array share memory, as after Expand: such an array cannot be written to."""
    reach = 0
    for stride, length in sorted((abs(stride), n) for n, stride in zip(array.shape, array.strides) if n > 1):
        if stride < reach + array.itemsize:
            return bool(array.size)
        reach += stride * (length - 1)
    return False


def root_of(array: np.ndarray) -> np.ndarray:
    base = array.base
    while isinstance(base, np.ndarray):
        array = base
        base = array.base
    return array


def reserve(array: Any, axis: int, capacity: int) -> np.ndarray:
    """Copy an array into a buffer with room to grow along one axis.

    If the array is donated, a run may append to it: the new rows are written after the old ones, and nothing is copied.

    Parameters
    ----------
    array : array_like
        The rows that exist already; its length along ``axis`` may be 0.
    axis : int
        The axis that will grow; negative counts from the end.
    capacity : int
        Full length of that axis, in rows; at least the current length.

    Returns
    -------
    ndarray
        Equal to ``array``, with the strides of the full buffer.

    Raises
    ------
    ValueError
        If the axis does not exist or the capacity is smaller than the current length.

    Examples
    --------
    >>> past = reserve(np.zeros((1, 2, 0, 16), np.float32), axis=2, capacity=64)
    >>> past.shape
    (1, 2, 0, 16)
    """
    array = np.asarray(array)
    if not -array.ndim <= axis < array.ndim:
        raise ValueError(f"axis {axis} does not exist in an array of shape {array.shape}")
    axis %= array.ndim
    length = array.shape[axis]
    if capacity < length:
        raise ValueError(f"capacity {capacity} is less than the {length} rows that are there along axis {axis}")
    shape = (*array.shape[:axis], capacity, *array.shape[axis + 1 :])
    block = reserved(shape, array.dtype, axis)
    view = block.view(np.ndarray)[(slice(None),) * axis + (slice(0, length),)]
    view[...] = array
    return view


def reserved(shape: tuple[int, ...], dtype: np.dtype, axis: int) -> Reserved:
    """A block with room to grow along one axis, without contents."""
    nbytes = math.prod(shape) * dtype.itemsize
    large = nbytes >= SMALL and not dtype.hasobject
    block = Reserved(shape, dtype, _BLOCKS.take(nbytes) if large else None)
    block.grow_axis = axis
    return block


def has_room(root: Any) -> TypeGuard[Reserved]:
    return isinstance(root, Reserved) and root.grow_axis >= 0


def find_room(root: Any, array: ArrayLayout) -> Room | None:
    """The room of ``array``, a value in ``root``; None unless `reserve` made the block."""
    if not has_room(root) or array.strides != root.strides:
        return None
    axis, shape, full = root.grow_axis, array.shape, root.shape
    if shape[:axis] != full[:axis] or shape[axis + 1 :] != full[axis + 1 :]:
        return None
    if array.size and address(array) != address(root):
        return None
    return Room(axis, full[axis], shape[axis])


def is_start(storage: Storage, array: ArrayLayout) -> bool:
    """Whether an array is the first rows of a block with room: all other lengths and the strides agree."""
    assert storage.room is not None
    root, axis, shape = storage.root, storage.room.axis, array.shape
    if array.dtype != root.dtype or shape[:axis] != root.shape[:axis] or shape[axis + 1 :] != root.shape[axis + 1 :]:
        return False
    if array.strides == root.strides:
        return True
    # A Reshape may change the stride of an axis of length one.
    return all(n == 1 or one == two for n, one, two in zip(shape, array.strides, root.strides))


def grown(storage: Storage, array: ArrayLayout, rows: int) -> np.ndarray:
    """The present: ``array`` and ``rows`` more rows of its reserved block, as one view; nothing is written."""
    assert storage.room is not None
    axis = storage.room.axis
    return storage.root.view(np.ndarray)[(slice(None),) * axis + (slice(0, array.shape[axis] + rows),)]


def address(array: Any) -> int:
    if _SEEN_AT:
        return c_size_t.from_address(id(array) + _SEEN_AT).value
    return array.__array_interface__["data"][0]


def offset_in(storage: Storage, value: np.ndarray) -> int:
    """Bytes from the start of a storage to a value; 0 if NumPy keeps the value elsewhere, because it copied a view."""
    root = storage.root
    if value is root or not value.size or not isinstance(root, np.ndarray):
        return 0
    offset = address(value) - address(root)
    return offset if 0 <= offset < max(root.nbytes, storage.capacity) else 0


def _place_of_pointer() -> int:
    """Offset of the data pointer in an array object; 0 if it does not follow the object's header as in NumPy's C API.
    The pointer is read some hundred times per decode step, and ``__array_interface__`` is twenty times slower; it
    serves other implementations of Python and debug builds."""
    head = object.__basicsize__
    if sys.implementation.name != "cpython" or np.ndarray.__basicsize__ < 2 * head:
        return 0
    whole = np.arange(6.0).reshape(2, 3)
    probes = (whole, whole[1, 1:], whole.T, whole.view(Reserved), np.empty(0))
    same = (c_size_t.from_address(id(x) + head).value == x.__array_interface__["data"][0] for x in probes)
    return head if all(same) else 0


_SEEN_AT = _place_of_pointer()

POISON = 0xA5


def poison(root: Any) -> None:
    """Overwrite a dead block with a pattern, so that a use after free shows at once."""
    if isinstance(root, np.ndarray) and root.flags.writeable and root.dtype != object and root.size:
        flat = root.view(np.ndarray)
        if not flat.flags.forc:
            flat = flat.base if isinstance(flat.base, np.ndarray) else flat
        np.frombuffer(flat.reshape(-1, order="A").view(np.uint8), np.uint8)[:] = POISON


class Pool:
    """Freed storages of one run; storages below ``smallest`` bytes bypass the pool."""

    __slots__ = ("_kept", "dropped", "shelves", "smallest")

    def __init__(self, smallest: int = 0) -> None:
        self.shelves: dict[int, list[tuple[int, int, Storage]]] = {}
        self.smallest = smallest
        self._kept = 0
        self.dropped: set[int] = set()

    def made(self, storage: Storage, array: ArrayLayout) -> None:
        """Note a new storage, made because no free one was large enough."""

    def take(self, array: ArrayLayout) -> Storage | None:
        """The smallest free storage that holds an array, or None; the earliest freed on ties."""
        asked = self.asked(array)
        return None if asked is None else self.best(*asked)

    def asked(self, array: ArrayLayout) -> tuple[int, int] | None:
        """Kind and size of the storage that an array needs; None if it bypasses the pool."""
        return None if array.nbytes < self.smallest else (0, array.nbytes)

    def has(self, array: ArrayLayout) -> bool:
        asked = self.asked(array)
        kept = [] if asked is None else self.shelves.get(asked[0], [])
        # They are sorted by size.
        return asked is not None and bool(kept) and kept[-1][0] >= asked[1]

    def give(self, storage: Storage) -> None:
        if storage.capacity >= max(self.smallest, 1) and storage.id not in self.dropped:
            self.keep(0, storage.capacity, storage)

    def keep(self, shelf: int, size: int, storage: Storage) -> None:
        self._kept += 1
        insort(self.shelves.setdefault(shelf, []), (size, self._kept, storage))

    def best(self, shelf: int, size: int) -> Storage | None:
        """Take out the smallest storage of a kind that is large enough, the earliest on ties."""
        kept = self.shelves.get(shelf, [])
        place = bisect_left(kept, (size,))
        return kept.pop(place)[2] if place < len(kept) else None
