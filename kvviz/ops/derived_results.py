"""Results kept for as long as the arrays live that they were made from."""

from __future__ import annotations

import weakref

import numpy as np

Parts = tuple["np.ndarray | None", ...]


class Kept:
    """A bounded table from tuples of read-only arrays to what was computed from them, of ``budget`` bytes in all.

    An entry goes when the first of its arrays is freed. Arrays that somebody can write to are never kept, nor are views
    of such arrays: what was made from them could be out of date. What does not fit in the budget is not kept either;
    older entries stay, since weights are used in the same order again and again.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.nbytes = 0
        self._entries: dict[tuple[int, ...], tuple[np.ndarray, list[weakref.ref]]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, parts: Parts) -> np.ndarray | None:
        """What was kept for these very arrays, or None."""
        entry = self._entries.get(tuple(map(id, parts)))
        return None if entry is None else entry[0]

    def put(self, parts: Parts, result: np.ndarray) -> bool:
        """Keep a result if the arrays cannot change and the budget allows it; says whether it did."""
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
    """Whether nobody can write to the array's memory through it or through what it views."""
    base: object = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    return True
