"""Freed storages that a run may hand out again: best fit, the earliest on ties.

The pool decides *accounting*: which storage a new value moves into. NumPy's own allocator serves the bytes.
"""

from __future__ import annotations

import numpy as np

from kvviz.memory.storage import Storage


class Pool:
    """Freed storages of one run.

    Parameters
    ----------
    smallest : int
        Requests and storages below this many bytes bypass the pool.

    Attributes
    ----------
    dropped : set of int
        Ids of storages that do not come back to the pool.
    """

    __slots__ = ("dropped", "free", "hits", "misses", "smallest")

    def __init__(self, smallest: int = 0) -> None:
        self.free: list[Storage] = []
        self.smallest = smallest
        self.dropped: set[int] = set()
        self.hits = 0
        self.misses = 0

    def made(self, storage: Storage, array: np.ndarray) -> None:
        """Take note of a storage that was made because nothing fitted."""

    def take(self, array: np.ndarray) -> Storage | None:
        """The smallest free storage that holds an array, or None; the earliest freed on ties."""
        nbytes = array.nbytes
        if nbytes < self.smallest:
            return None
        fitting = [s for s in self.free if s.capacity >= nbytes]
        if not fitting:
            self.misses += 1
            return None
        best = min(fitting, key=lambda s: s.capacity)
        self.free.remove(best)
        self.hits += 1
        return best

    def give(self, storage: Storage) -> None:
        """Keep a dead storage for later."""
        if storage.capacity >= max(self.smallest, 1) and storage.id not in self.dropped:
            self.free.append(storage)
