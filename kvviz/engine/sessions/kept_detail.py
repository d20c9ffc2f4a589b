"""Dropping the steps of some runs: a long decode keeps the totals of all runs, and the steps of the requested ones.

The rest is a valid trace. Storages of dropped runs are removed, unless they outlive their run; those are renumbered, so
that a number is still an index into the ledger.
"""

from __future__ import annotations

from bisect import bisect_left

from kvviz.engine.recorder import Recorder
from kvviz.trace.recording import Trace


class Detail:
    """Keeps or drops the steps of each run."""

    def __init__(self) -> None:
        # Number of the first storage that no kept step refers to; None after a run that was kept.
        self._since: int | None = None

    def begin(self, trace: Trace) -> None:
        """Prepare for a run that is about to begin."""
        if self._since is None:
            self._since = len(trace.log.storages)

    def keep(self) -> None:
        """Keep the steps of the run that has ended."""
        self._since = None

    def forget(self, trace: Trace, recorder: Recorder) -> None:
        """Drop the steps of the run that has ended; its totals stay."""
        log, since = trace.log, self._since
        assert since is not None
        run = trace.runs[-1]
        first = bisect_left(log.frames, run.index, key=lambda frame: frame.run)
        gone = log[run.first :]
        log.cut(run.first, first)
        run.last = run.first
        trace.forget(first)
        # Storages of kept steps that this run released died after the last kept step.
        died = [storage for op in gone for storage in op.freed if storage < since]
        recorder.note_freed(died)
        log.later.update(died)
        recorder.unlogged = since
        log.grew = [grown for grown in log.grew if grown[1] < since]
        recorder.ledger.renumber(since)
        for cache in trace.caches:
            cache.unplace(since)
