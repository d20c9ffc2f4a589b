"""Keeping the garbage collector from traversing the many records of a trace repeatedly.

The records have no reference cycles, so it would find nothing.
"""

from __future__ import annotations

import gc

_LEAST = 100_000  # fewest new objects that a full collection is made for


class unwatched:
    """Create many objects without a collection; afterwards they belong to the oldest generation. Python makes a full
    collection when a quarter of all objects is new. It does not count the objects that become old here, so this class
    counts them and collects by the same rule. Frozen objects of the application stay frozen."""

    _new = 0  # objects that became old here since the last count
    _all = 0  # number of objects at that count

    def __enter__(self) -> None:
        self._collecting = gc.isenabled()
        if self._collecting:  # otherwise it is another thread's to enable, which may do so before this one is through
            gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._collecting:
            if not gc.get_freeze_count():
                unwatched._new += gc.get_count()[0]
                if unwatched._new > max(_LEAST, unwatched._all // 4):
                    self._count()
                gc.freeze()
                gc.unfreeze()
            gc.enable()

    @staticmethod
    def _count() -> None:
        before, unwatched._new, unwatched._all = unwatched._all, 0, _objects()
        if unwatched._all > before + before // 4:
            gc.collect()
            unwatched._all = _objects()


def _objects() -> int:
    gc.freeze()
    count = gc.get_freeze_count()
    gc.unfreeze()
    return count
