"""Freed storages that a run may hand out again: best fit, the earliest on ties.

The pool decides *accounting*: which storage a new value moves into. NumPy's own allocator serves the bytes.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from kvviz.memory.array_layout import ArrayLayout
from kvviz.memory.storage import Storage


class Pool:
    """Freed storages of one run; storages below ``smallest`` bytes bypass the pool."""

    __slots__ = ("_kept", "dropped", "hits", "misses", "shelves", "smallest")

    def __init__(self, smallest: int = 0) -> None:
        self.shelves: dict[int, list[tuple[int, int, Storage]]] = {}
        self.smallest = smallest
        self._kept = 0
        self.dropped: set[int] = set()
        self.hits = 0
        self.misses = 0

    def made(self, storage: Storage, array: ArrayLayout) -> None:
        """Called for each new storage, made because no free one was large enough."""

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
        if place == len(kept):
            self.misses += 1
            return None
        self.hits += 1
        return kept.pop(place)[2]
