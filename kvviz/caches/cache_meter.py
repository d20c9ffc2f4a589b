"""What a run did to each cache: rows reserved, valid, written and read, bytes moved and stored, and where it lives.

When a run ends, only what is not available later is read. The rest is computed from the recording on demand.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from kvviz.caches.alike_ways import AlikeRows
from kvviz.caches.control_values import Known
from kvviz.caches.path_search import Link, Way, way_of
from kvviz.caches.row_contents import (
    EMPTY,
    NO_TOKEN,
    NOTHING,
    Book,
    Unknown,
    both,
    count,
    filled,
    held_in,
    minus,
    put,
    spans_of,
    tally,
    union,
)
from kvviz.caches.row_writes import replay
from kvviz.caches.visible_rows import sight_of, window_of
from kvviz.graph.cache_pairs import CachePair, control_inputs
from kvviz.memory.ghosts import is_ghost
from kvviz.memory.storage import find_room, root_of
from kvviz.trace.index.frame_values import RunFrames
from kvviz.trace.recording import Trace
from kvviz.trace.records import Cache, CacheRun, Caches, Rows, Span
from kvviz.trace.schema.element_types import nbytes
from kvviz.trace.schema.events import APPEND, IN_PLACE, NEW, POOL, VIEW, Output

_WHOLE = ("state", "cross")


@dataclass(frozen=True, slots=True)
class Fed:
    valid: int | None = None  # rows that hold real tokens after the run; None if only the cache shows it
    new: int = 0  # how many of them the run added
    mask: np.ndarray | None = None  # ``(batch, valid)``: 1 for tokens, 0 for padding
    empty: Collection[str] = ()  # cache inputs that held no tokens when the first run began


class Seen(NamedTuple):
    shape: tuple[int, ...]
    axis: int | None  # the sequence axis, if the array has one
    capacity: int  # rows in all, reserved ones included
    returned: bool  # the run returned it; otherwise it is the input, unchanged
    # for a caller's cache in the first run: rows that are not all zeros, by batch entry
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
                # The inputs were too large to be kept, so they are read now.
                _ = cache.runs


def _look(cache: Cache, present: Any, past: Any, first: bool, fed: Fed) -> Seen | None:
    dummy = isinstance(present, np.ndarray) and not present.size and cache.protocol == "cross"
    returned = isinstance(present, np.ndarray) and not dummy
    # Not returned, or only as an empty dummy (cross-attention in the cached branch of a merged decoder).
    array = present if returned else past
    if not isinstance(array, np.ndarray):
        return None
    axis = cache.axis
    if axis is not None:
        # If the model declares no shapes, an output may have fewer axes than its input.
        axis = axis % array.ndim if -array.ndim <= axis < array.ndim else None
    rows = array.shape[axis] if axis is not None else 1
    room = find_room(root_of(array), array)
    capacity = room.rows if axis is not None and room is not None and room.axis == axis else rows
    given = first and axis is not None and cache.protocol not in _WHOLE and cache.input not in fed.empty
    content = None
    if given and axis is not None:
        # A caller's cache without contents counts as full.
        content = [((0, array.shape[axis]),) * bool(array.shape[axis])] if is_ghost(array) else filled(array, axis)
    return Seen(array.shape, axis, capacity, returned, content)


@dataclass
class _Facts:
    trace: Trace
    run: int
    fed: Fed
    feeds: dict[str, Any] | None
    caches: Collection[str]
    alike: AlikeRows = field(default_factory=AlikeRows)

    @cached_property
    def known(self) -> Known:
        feeds = self.feeds
        if feeds is None:
            kept = self.trace.replayer.runs[self.run].kept.values
            feeds = {name: value for name, value in kept.items() if name not in self.caches and not is_ghost(value)}
        return Known(self.trace, RunFrames(self.trace, self.run), feeds)

    @cached_property
    def padding(self) -> list[tuple[Span, ...]] | None:
        """Positions of padding, by batch entry; None if there is none."""
        mask = self.fed.mask
        if mask is None:
            roles: dict[str, str] = self.trace.notes.setdefault("control inputs", control_inputs(self.trace.graph))
            mask = self.known.value(0, roles["attention_mask"]) if "attention_mask" in roles else None
        if mask is None or mask.ndim != 2 or mask.dtype.kind not in "iub" or mask.all():
            return None
        return [spans_of(row == 0) for row in mask]


def _enter(facts: _Facts, seen: Seen, cache: Cache, runs: list[CacheRun]) -> None:
    fed, axis, whole = facts.fed, seen.axis, cache.protocol in _WHOLE
    with np.errstate(all="ignore"):
        known = facts.known
        way = way_of(known.trace, known.frames, cache)
        items: tuple[Rows, ...] = ()
        if axis is not None and cache.protocol != "state" and (not runs or runs[-1].items):
            items = _occupancy(facts, cache, way, seen, axis, runs[-1].items if runs else ())
        traffic = _traffic(known, cache, way, items, axis)
    where = known.place(0, cache.output if seen.returned else cache.input)
    rows = seen.shape[axis] if axis is not None else 1
    valid = rows if fed.valid is None or axis is None or whole else min(fed.valid, rows)
    runs.append(
        CacheRun(
            capacity=seen.capacity,
            storage=where.storage if where is not None else -1,
            rows_read=max((rows if item.read is None else count(item.read) for item in items), default=rows),
            items=items,
            **traffic,
            **(tally(items) if items else {"valid": valid, "rows_written": int(traffic["bytes_written"] > 0)}),
        )
    )


def _untouched(trace: Trace, run: int, feeds: dict[str, Any], caches: Collection[str]) -> dict[str, Any]:
    """The inputs that the run cannot have overwritten: those not donated."""
    frames = RunFrames(trace, run).rows
    given = {bound.name for bound in frames[0].bindings if bound.how == "donated"} if frames else set()
    known = {name: value for name, value in feeds.items() if name not in caches and name not in given}
    return {name: np.asarray(value) for name, value in known.items() if not is_ghost(value)}


# -- row occupancy ----------------------------------------------------------------------------------------------------
# Which tokens the rows of a cache hold after a run, which rows it wrote, and which its attention could read.


_END = 1 << 62


def _occupancy(
    facts: _Facts, cache: Cache, way: Way, seen: Seen, axis: int, before: tuple[Rows, ...]
) -> tuple[Rows, ...]:
    """The rows of a cache (along ``axis``) after a run, by batch entry; empty if they depend on more than the control
    inputs. ``before``: the same after the previous run, empty for the first."""
    # Facts common to all caches are computed before those of a single cache are noted.
    padding = None if cache.protocol in _WHOLE else facts.padding
    content = None if seen.content is None else tuple(seen.content)
    given = (cache.protocol, axis, seen.returned, seen.shape[axis], content, before)
    base = None if facts.fed.valid is None or cache.protocol in _WHOLE else facts.fed.valid - facts.fed.new

    def work_out() -> tuple[Rows, ...]:
        held = [put(NOTHING, *item.held) for item in before] or [NOTHING]
        return _rows(facts.known, cache, way, seen, axis, Book(held, seen.content is not None, base, padding))

    return facts.alike.rows(facts.known, cache, way, given, work_out)


def _rows(known: Known, cache: Cache, way: Way, seen: Seen, axis: int, book: Book) -> tuple[Rows, ...]:
    past = known.shape(0, cache.input)
    if past is not None and axis >= len(past):
        return ()
    windows = [window_of(reader) for reader in way.readers]
    book.window = max(windows) if windows and all(windows) else 0
    try:
        if seen.returned:
            replay(known, way, book, cache.output, axis, past[axis] if past else 0)
        else:
            book.held, book.wrote, book.lost = [put(NOTHING, (0, seen.shape[axis], 0))], [()], [0]
        if book.given and seen.content is not None:
            _compare(book, seen.content, seen.shape[axis])
        read = _read(known, way, axis)
        book.spread(1 if read is None else len(read))
    except Unknown:
        return ()
    reads: list[tuple[Span, ...] | None] = [None] if read is None else [*read]
    reads = reads * (len(book.held) // len(reads))
    items = [Rows(*entry) for entry in zip(map(held_in, book.held), book.wrote, reads, book.lost)]
    return tuple(items[:1] if len(set(items)) == 1 else items)


def _compare(book: Book, content: list[tuple[Span, ...]], rows: int) -> None:
    """Compare what a caller's cache should hold with its contents: rows of zeros were never written. If all of it is
    zeros, the lengths are trusted: the caller tries the graph without real numbers."""
    book.spread(len(content))
    for entry, (cells, wrote) in enumerate(zip(book.held, book.wrote)):
        here = content[entry if len(content) > 1 else 0]
        untouched, held = minus([(0, rows)], wrote), held_in(cells)
        if both(both(untouched, here), held):
            cells = put(cells, *((*span, EMPTY) for span in minus(untouched, here)))
        book.held[entry] = put(cells, *((*span, NO_TOKEN) for span in minus(both(untouched, here), held)))


def _read(known: Known, way: Way, axis: int) -> list[tuple[Span, ...]] | None:
    """Rows that attention may see, by batch entry; None if a mask is not known, or no op reads."""
    seen: list[tuple[Span, ...]] = []
    for reader in way.readers:
        if known.step(reader.frame, reader.node.index) is None:
            continue
        sight = sight_of(known, reader, axis)
        if sight is None:
            return None
        more = sight.rows()
        entries = max(len(seen), len(more))
        wide = [one * entries if len(one) == 1 else one for one in (seen or [()], more)]
        seen = [union([*a, *b]) for a, b in zip(*wide, strict=True)]
    # Rows that left the cache in this run have no number in it.
    return [both(spans, [(0, _END)]) for spans in seen] or None


# -- cache traffic ----------------------------------------------------------------------------------------------------
# Bytes that a run moved and stored for a cache, and the number of storages that the cache occupied meanwhile.


def _traffic(known: Known, cache: Cache, way: Way, items: tuple[Rows, ...], axis: int | None) -> dict[str, int]:
    """Sums over the links of a way, as `CacheRun` names them. ``items``: the run's effect on the cache's rows, if
    known."""
    log = known.trace.log
    found = {"bytes_copied": 0, "bytes_written": 0, "reallocations": 0, "generations": 1}
    storages: dict[int, int] = {}
    for link in way.links:
        step = known.step(link.frame, link.node.index)
        if step is None:
            continue
        where = log.output(step, link.output)
        size = 0 if where is None else nbytes(where.shape, where.dtype)
        moved, stored = _bytes(known, link, step, where, size, cache, items, axis)
        found["bytes_copied"] += moved
        found["bytes_written"] += stored
        if where is not None and size and where.storage != _storage_before(known, cache, link):
            found["reallocations"] += 1
            storages[where.storage] = min(step, storages.get(where.storage, step))
    if storages:
        found["generations"] = _alive_at_once(known, cache, storages)
    return found


def _bytes(
    known: Known,
    link: Link,
    step: int,
    where: Output | None,
    size: int,
    cache: Cache,
    items: tuple[Rows, ...],
    axis: int | None,
) -> tuple[int, int]:
    """Bytes that an op moved and stored for a cache. ``where, size``: of the output that continues it."""
    node = link.node
    if link.kind == "make":
        # An op such as a projection of queries, keys and values may have computed more than the cache's rows.
        here = known.place(0, cache.output)
        whole = size if here is None else nbytes(here.shape, here.dtype)
        if len(node.outputs) == 1:
            return 0, min(known.trace.log.moved(step)[1], whole)
        return 0, size if where is not None and where.how in (NEW, POOL) else 0
    if len(node.outputs) == 1:
        return known.trace.log.moved(step)
    if where is None or where.how == VIEW:
        return 0, 0
    before = known.place(link.frame, node.inputs[link.past])
    had = nbytes(before.shape, before.dtype) if before is not None else 0
    if where.how == APPEND and size > had:
        return 0, size - had
    if where.how in (APPEND, IN_PLACE):
        wrote = max((count(item.wrote) for item in items), default=0)
        shape, present = where.shape or (), known.place(0, cache.output)
        if present is not None and len(present.shape or ()) != len(shape):
            # Later views add or remove axes.
            shape = present.shape or ()
        length = shape[axis] if axis is not None and axis < len(shape) else 0
        return 0, size // length * wrote if length else size
    return min(had, size), size


def _storage_before(known: Known, cache: Cache, link: Link) -> int:
    """The storage of the cache before an op; for an op that makes all rows anew, that of the cache's input."""
    frame, name = (0, cache.input) if link.past < 0 else (link.frame, link.node.inputs[link.past])
    before = known.place(frame, name)
    return -1 if before is None else before.storage


def _alive_at_once(known: Known, cache: Cache, storages: dict[int, int]) -> int:
    """The largest number of these storages, the past's included, that were alive during one step."""
    past = known.place(0, cache.input)
    born = dict(storages)
    # An empty past may lie in a large block.
    if past is not None and known.trace.log.storages[past.storage].capacity:
        born[past.storage] = -1
    alive = [(start, known.died(storage, start)) for storage, start in born.items()]
    return max(sum(a <= at <= b for a, b in alive) for at, _ in alive)
