"""rten's buffer pool: best fit among the buffers of one run, by element width; small buffers bypass it.

rten knows elements of four bytes (float32, and int32 in place of int64 and bool) and of one byte (int8, uint8); the
pool counts in them, whatever NumPy needs for its own types. Source: ``BufferPool`` at commit c7f7bad9.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.memory.storage import ArrayLayout, Pool, Storage

SMALLEST = 128


def type_of(dtype: Any) -> str:
    """rten's element type: all floats are float32, int8 and uint8 are themselves, everything else is int32."""
    dtype = np.dtype(dtype)
    if dtype in (np.int8, np.uint8):
        return str(dtype.name)
    return "int32" if dtype.kind in "iub" else "float32"


def width_of(dtype: np.dtype) -> int:
    """Bytes of an element as rten holds it."""
    return 1 if dtype.char in "bB" else 4


class RtenPool(Pool):
    """Freed buffers with their capacity in rten's elements.

    ``sizes``: by storage id, of every buffer that was made in this run.
    """

    __slots__ = ("sizes",)

    def __init__(self) -> None:
        super().__init__(SMALLEST)
        self.sizes: dict[int, tuple[int, int]] = {}

    def made(self, storage: Storage, array: ArrayLayout) -> None:
        """Note the size of a buffer that was made because nothing fitted."""
        self.sizes[storage.id] = width_of(array.dtype), storage.capacity // max(array.itemsize, 1)

    def asked(self, array: ArrayLayout) -> tuple[int, int] | None:
        """A free buffer of the same width with as many elements."""
        width = width_of(array.dtype)
        return None if width * array.size < self.smallest else (width, array.size)

    def give(self, storage: Storage) -> None:
        """Keep a dead buffer of 128 bytes or more."""
        root = storage.root
        if storage.id not in self.sizes:
            if not isinstance(root, np.ndarray):
                return
            self.sizes[storage.id] = width_of(root.dtype), storage.capacity // root.itemsize
        width, elements = self.sizes[storage.id]
        if width * elements >= self.smallest and storage.id not in self.dropped:
            self.keep(width, elements, storage)


def elements_of(pool: Any, storage: Storage, array: ArrayLayout) -> int:
    """Capacity of a storage in elements, as rten's tensor in it would know it."""
    if isinstance(pool, RtenPool) and storage.id in pool.sizes:
        return pool.sizes[storage.id][1]
    return storage.capacity // array.itemsize
