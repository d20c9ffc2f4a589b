"""The garbage collector kept from walking, again and again, the many records that a trace is made of.

They hold no cycles, so that it would find nothing.
"""

from __future__ import annotations

import gc

_LEAST = 100_000  # objects that are worth a full collection


class unwatched:
    """Make many objects without a collection; afterwards they count as old ones.

    Python makes a full collection when a quarter of all objects is new. It does not count what gets old in here, so
    that this class counts it, and collects by the same rule. Where somebody has frozen objects, to thaw them is not
    for us.
    """

    _new = 0  # objects that have got old here since all were last counted
    _all = 0  # how many there were then

    def __enter__(self) -> None:
        self._collecting = gc.isenabled()
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
