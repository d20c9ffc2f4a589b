"""The steps at which the rows of a cache are stored, and so the state of caches between two ops of a run.

It follows from the accesses of ops: for every row that a run wrote, the last step that stores its bytes in the storage
in which the cache is at the end of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kvviz.caches.row_spans import both, minus, union
from kvviz.trace.index.accesses import accesses_of
from kvviz.trace.index.frame_values import RunFrames
from kvviz.trace.index.value_index import Index, Place, index_of
from kvviz.trace.recording import Trace
from kvviz.trace.records import Cache, Span
from kvviz.trace.schema.element_types import unit
from kvviz.trace.schema.events import NEW, PASSED, POOL, VIEW
from kvviz.trace.schema.regions import Region, packed_strides


class RowStep(NamedTuple):
    """Rows of a cache, of any batch entry, and the step after which they hold what the run stores there."""

    step: int
    rows: tuple[Span, ...]


class CacheAt(NamedTuple):
    """A cache between two ops.

    Attributes
    ----------
    name : str
    written : tuple of (int, int)
        Rows that this run has written so far: first row, and row after the last.
    pending : tuple of (int, int)
        Rows that later ops of this run write.
    steps : tuple of int
        The steps of this run that write rows of it.
    """

    name: str
    written: tuple[Span, ...]
    pending: tuple[Span, ...]
    steps: tuple[int, ...]


def row_steps(trace: Trace, run: int) -> list[tuple[RowStep, ...]]:
    """For each cache the steps of a run that store its rows, in order; empty if the steps were not kept."""
    index, part = index_of(trace), trace.runs[run]
    if part.first == part.last:
        return [()] * len(trace.caches)
    runs = [cache.runs[run] if run < len(cache.runs) else None for cache in trace.caches]
    wanted = {entry.storage for entry in runs if entry is not None and entry.storage >= 0}
    stores: dict[int, list[tuple[int, Region]]] = {storage: [] for storage in wanted}
    declared = trace.log.declared.accesses
    for step in range(part.first, part.last):
        touched = set()
        for where in index.rows[step].outs:
            if where is not None and where.storage in wanted and where.how not in (VIEW, PASSED):
                touched.add(where.storage)
                if where.how in (NEW, POOL):  # the storage held something else before
                    stores[where.storage].clear()
        if touched or step in declared:
            for storage, writes, _, region in accesses_of(index, step):
                if writes and storage in wanted:
                    stores[storage].append((step, region))
    return [
        () if entry is None else _last_stores(index, run, cache, entry, stores.get(entry.storage, []))
        for cache, entry in zip(trace.caches, runs)
    ]


def caches_at(trace: Trace, step: int) -> list[CacheAt]:
    """The caches after a step; see `kvviz.Trace.caches_at`."""
    run = trace.steps[step].run
    at = step if step >= 0 else step + len(trace.log)
    states = []
    for cache, stored in zip(trace.caches, row_steps(trace, run)):
        done = union(span for one in stored if one.step <= at for span in one.rows)
        todo = union(span for one in stored if one.step > at for span in one.rows)
        states.append(CacheAt(cache.name, done, todo, tuple(one.step for one in stored)))
    return states


def _last_stores(
    index: Index, run: int, cache: Cache, entry: Any, stores: Sequence[tuple[int, Region]]
) -> tuple[RowStep, ...]:
    """For each row that the run wrote, the last step that stores it."""
    left = union(span for item in entry.items for span in item.wrote) if entry.items else ((0, entry.capacity),)
    if not entry.items and not entry.rows_written:
        return ()
    place = _place(index, run, cache)
    found: list[RowStep] = []
    for step, region in reversed(stores):
        rows = left if cache.axis is None else both(left, _rows(region, place, cache.axis, entry.capacity))
        if rows:
            found.append(RowStep(step, tuple(rows)))
            left = minus(left, rows)
        if not left:
            break
    return tuple(reversed(found))


def _place(index: Index, run: int, cache: Cache) -> Place | None:
    frame = RunFrames(index.trace, run).first
    return index.places.get((frame, cache.output)) or index.places.get((frame, cache.input))


def _rows(region: Region, place: Place | None, axis: int, capacity: int) -> tuple[Span, ...]:
    """The rows of a cache that a region covers; all of them if the region does not show it."""
    whole = ((0, capacity),)
    if place is None or place.shape is None or axis >= len(place.shape):
        return whole
    strides = place.strides or packed_strides(*unit(place.shape, place.dtype))
    row = strides[axis]
    plane = strides[axis - 1] if axis else 0
    at = region.offset - place.offset
    if len(region.shape) != len(place.shape) or row <= 0 or at < 0 or region.strides[axis] != row:
        return whole
    # A region may begin in any plane of a batch entry or a head.
    first, count = (at % plane if plane else at) // row, region.shape[axis]
    if region.rows is None:
        return ((first, first + count),)
    starts = (((at + by) % plane if plane else at + by) // row for by in region.rows)
    return union((start, start + count) for start in starts)
