"""Letting go of the steps of runs that nobody wants to look at: a long decode keeps its totals, and steps of some runs.

What is left is a whole trace: storages of forgotten runs are gone but for those that outlive them, and those are
numbered anew, so that numbers stay places in the ledger.
"""

from __future__ import annotations

from bisect import bisect_left

from kvviz.engine.recorder import Recorder
from kvviz.trace.recording import Trace


class Detail:
    """Keeps the steps of a run, or forgets them."""

    def __init__(self) -> None:
        # Number of the first storage that no kept step knows of; None after a run that was kept.
        self._since: int | None = None

    def begin(self, trace: Trace) -> None:
        """Note that a run is about to begin."""
        if self._since is None:
            self._since = len(trace.log.storages)

    def keep(self) -> None:
        """The run that is over stays as it is."""
        self._since = None

    def forget(self, trace: Trace, recorder: Recorder) -> None:
        """Drop the steps of the run that is over; its totals stay."""
        log, since = trace.log, self._since
        assert since is not None
        run = trace.runs[-1]
        first = bisect_left(log.frames, run.index, key=lambda frame: frame.run)
        gone = log[run.first :]
        log.cut(run.first, first)
        run.last = run.first
        trace.forget(first)
        # What kept steps made, and this run let go of, died after the last of them.
        died = [storage for op in gone for storage in op.freed if storage < since]
        recorder.note_freed(died)
        log.later.update(died)
        recorder.untold = since
        log.grew = [grown for grown in log.grew if grown[1] < since]
        recorder.ledger.renumber(since)
        for cache in trace.caches:
            cache.unplace(since)
