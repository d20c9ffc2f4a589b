"""What a run did to each cache: rows reserved, valid, written and read, bytes moved and stored, and where it lives.

Only what is gone later is read when a run ends; the rest is worked out from the recording when somebody looks.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from kvviz.caches.cache_traffic import traffic_of
from kvviz.caches.control_values import Known
from kvviz.caches.path_search import way_of
from kvviz.caches.row_contents import filled
from kvviz.caches.row_occupancy import Tokens, occupancy
from kvviz.caches.row_spans import count, live, spans_of, stale
from kvviz.caches.value_flow import RunFrames
from kvviz.graph.cache_pairs import CachePair, control_inputs
from kvviz.memory.ghosts import is_ghost
from kvviz.memory.storage import find_room, root_of
from kvviz.trace.recording import Trace
from kvviz.trace.records import Cache, CacheRun, Caches, Rows, Span

# Kept as they are, whatever the tokens are.
_WHOLE = ("state", "cross")


@dataclass(frozen=True, slots=True)
class Fed:
    valid: int | None = None  # rows that hold real tokens after it; None where only the cache can tell
    new: int = 0  # how many of them the run brought
    mask: np.ndarray | None = None  # ``(batch, valid)``: 1 for tokens, 0 for padding
    empty: Collection[str] = ()  # cache inputs that held no tokens when the first run began


class Seen(NamedTuple):
    """What is read of a cache at the end of a run, before its array may change."""

    shape: tuple[int, ...]
    axis: int | None  # the sequence axis, where the array has one
    capacity: int  # rows that there is room for
    returned: bool  # the run gave it back; else it is as it came in
    # of a caller's cache in the first run: rows that are not all zeros, by batch entry
    content: list[tuple[Span, ...]] | None


def new_caches(pairs: tuple[CachePair, ...]) -> Caches:
    return Caches(Cache(pair.name, pair.input, pair.output, pair.protocol, pair.axis) for pair in pairs)


def read_meters(trace: Trace, feeds: dict[str, Any], fed: Fed | None = None) -> None:
    """Add one entry for the last run, which got ``feeds``, to every cache of a trace."""
    if not trace.caches:
        return
    fed = fed or Fed()
    if fed.mask is not None and fed.mask.all():
        fed = replace(fed, mask=None)
    run = len(trace.runs) - 1
    caches = {cache.input for cache in trace.caches}
    note = trace.replayer.runs[run] if trace.replayer is not None else None
    recording = trace.notes.get("meters") or trace.notes.setdefault("meters", trace.apart())
    facts = _Facts(recording, run, fed, None if note is not None else _untouched(trace, run, feeds, caches), caches)
    for cache in trace.caches:
        seen = _look(cache, trace.known("outputs").get(cache.output), feeds.get(cache.input), run == 0, fed)
        if seen is not None:
            cache.later(partial(_enter, facts, seen))
            if note is None:
                # The inputs were too large to be kept, so that this is the time to read them.
                _ = cache.runs


def _look(cache: Cache, present: Any, past: Any, first: bool, fed: Fed) -> Seen | None:
    dummy = isinstance(present, np.ndarray) and not present.size and cache.protocol == "cross"
    returned = isinstance(present, np.ndarray) and not dummy
    # Not given back, or (cross-attention in the cached branch of a merged decoder) only as an empty dummy.
    array = present if returned else past
    if not isinstance(array, np.ndarray):
        return None
    axis = cache.axis
    if axis is not None:
        # Where the model declares no shapes, an output may turn out to have fewer axes than its input.
        axis = axis % array.ndim if -array.ndim <= axis < array.ndim else None
    rows = array.shape[axis] if axis is not None else 1
    room = find_room(root_of(array), array)
    capacity = room.rows if axis is not None and room is not None and room.axis == axis else rows
    given = first and axis is not None and cache.protocol not in _WHOLE and cache.input not in fed.empty
    content = None
    if given and axis is not None:
        # A cache that the caller gives without contents counts as full.
        content = [((0, array.shape[axis]),) * bool(array.shape[axis])] if is_ghost(array) else filled(array, axis)
    return Seen(array.shape, axis, capacity, returned, content)


@dataclass
class _Facts:
    trace: Trace
    run: int
    fed: Fed
    feeds: dict[str, Any] | None
    caches: Collection[str]

    @cached_property
    def known(self) -> Known:
        """What follows from the control inputs."""
        feeds = self.feeds
        if feeds is None:
            kept = self.trace.replayer.runs[self.run].kept.values
            feeds = {name: value for name, value in kept.items() if name not in self.caches and not is_ghost(value)}
        return Known(self.trace, RunFrames(self.trace, self.run), feeds)

    @cached_property
    def padding(self) -> list[tuple[Span, ...]] | None:
        """Positions that hold padding, by batch entry; None where there is none."""
        mask = self.fed.mask
        if mask is None:
            roles: dict[str, str] = self.trace.notes.setdefault("control inputs", control_inputs(self.trace.graph))
            mask = self.known.value(0, roles["attention_mask"]) if "attention_mask" in roles else None
        if mask is None or mask.ndim != 2 or mask.dtype.kind not in "iub" or mask.all():
            return None
        return [spans_of(row == 0) for row in mask]


def _enter(facts: _Facts, seen: Seen, cache: Cache, runs: list[CacheRun]) -> None:
    """Add the meter of one cache after one run."""
    fed, axis, whole = facts.fed, seen.axis, cache.protocol in _WHOLE
    with np.errstate(all="ignore"):
        known = facts.known
        way = way_of(known.trace, known.frames, cache)
        items: tuple[Rows, ...] = ()
        if axis is not None and cache.protocol != "state" and (not runs or runs[-1].items):
            base = None if fed.valid is None or whole else fed.valid - fed.new
            tokens = Tokens(seen.shape, axis, seen.returned, seen.content, base, None if whole else facts.padding)
            items = occupancy(known, cache, way, tokens, runs[-1].items if runs else ())
        traffic = traffic_of(known, cache, way, items, axis)
    where = known.place(0, cache.output if seen.returned else cache.input)
    rows = seen.shape[axis] if axis is not None else 1
    valid = rows if fed.valid is None or axis is None or whole else min(fed.valid, rows)
    runs.append(
        CacheRun(
            capacity=seen.capacity,
            valid=max((count(live(item.held)) for item in items), default=valid),
            bytes_copied=traffic.copied,
            bytes_written=traffic.written,
            storage=where.storage if where is not None else -1,
            rows_written=max((count(item.wrote) for item in items), default=int(traffic.written > 0)),
            rows_read=max((rows if item.read is None else count(item.read) for item in items), default=rows),
            stale=max((count(stale(item.held)) for item in items), default=0),
            reallocations=traffic.reallocations,
            generations=traffic.generations,
            items=items,
        )
    )


def _untouched(trace: Trace, run: int, feeds: dict[str, Any], caches: Collection[str]) -> dict[str, Any]:
    """The inputs that are as they were before the run: what was donated may be overwritten now."""
    frames = RunFrames(trace, run).rows
    given = {bound.name for bound in frames[0].bindings if bound.how == "donated"} if frames else set()
    known = {name: value for name, value in feeds.items() if name not in caches and name not in given}
    return {name: np.asarray(value) for name, value in known.items() if not is_ghost(value)}
