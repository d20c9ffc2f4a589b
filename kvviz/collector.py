"""The garbage collector kept from walking, again and again, the many records that a trace is made of.

They hold no cycles, so that it would find nothing.
"""

from __future__ import annotations

import gc


class unwatched:
    """Make many objects without a collection; afterwards they count as old ones.

    They are looked at in the next full collection, which comes when others have piled up. Where somebody has frozen
    objects, to thaw them is not for us.
    """

    def __enter__(self) -> None:
        self._collecting = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._collecting:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
