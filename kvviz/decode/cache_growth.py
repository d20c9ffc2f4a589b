"""Room for growing caches, made by the caller between two runs: a graph can only append where there is room."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from kvviz.graph.cache_pairs import CachePair
from kvviz.memory.storage import find_room, reserve, root_of
from kvviz.trace.recording import Trace
from kvviz.trace.records import Cache, CacheRun


def make_room(trace: Trace, pairs: tuple[CachePair, ...], caches: dict[str, Any], capacity: int | None) -> None:
    """Move growing caches that are full into blocks of twice their length, or of ``capacity`` rows if that is more.
    Moved ones are replaced in ``caches``. The bytes so moved are noted in the last run of the trace and in the meters
    of its caches. rten-generate does the same after every run (commit c7f7bad9)."""
    metered = {cache.input: cache for cache in trace.caches}
    for pair in pairs:
        past = caches[pair.input]
        if pair.protocol != "growing" or pair.axis is None or not isinstance(past, np.ndarray):
            continue
        room, length = find_room(root_of(past), past), past.shape[pair.axis]
        if room is not None and room.axis == pair.axis and room.rows > length:
            continue
        caches[pair.input] = reserve(past, pair.axis, max(capacity or 0, 2 * length, 1))
        trace.runs[-1].bytes_moved_outside += past.nbytes
        if pair.input in metered:
            metered[pair.input].later(partial(_note, past.nbytes))


def _note(moved: int, _: Cache, runs: list[CacheRun]) -> None:
    runs[-1] = replace(runs[-1], bytes_moved_outside=moved)
