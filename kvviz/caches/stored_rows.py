"""Steps at which rows of caches are stored, and the caches of graphs that declare none.

Such a cache is memory of the caller in which ops store rows (ggml's SET_ROWS and CPY).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from kvviz.caches.row_contents import EMPTY, NO_TOKEN, NOTHING, Cells, both, count, held_in, minus, put, tally, union
from kvviz.trace.index.accesses import writes_of
from kvviz.trace.index.frame_values import RunFrames
from kvviz.trace.index.value_index import Index, Place, index_of
from kvviz.trace.recording import Trace
from kvviz.trace.records import Cache, CacheRun, Caches, Held, Rows, Span
from kvviz.trace.schema.declared import Access
from kvviz.trace.schema.element_types import nbytes, unit
from kvviz.trace.schema.events import NEW, PASSED, POOL, VIEW, Bind
from kvviz.trace.schema.regions import Region, packed_strides, stored_bytes


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
    values, declared = index.values, trace.log.declared.accesses
    outs = values.made_in(part.first, part.last)
    mine = np.isin(values.storage[outs], list(wanted)) & ~np.isin(values.how[outs], (VIEW, PASSED))
    anew: dict[int, list[int]] = {step: [] for step in range(part.first, part.last) if step in declared}
    for value in (np.flatnonzero(mine) + outs.start).tolist():
        held = anew.setdefault(int(values.step[value]), [])
        if values.how[value] in (NEW, POOL):  # the storage held something else before
            held.append(int(values.storage[value]))
    for step in sorted(anew):
        for storage in anew[step]:
            stores[storage].clear()
        for storage, _, _, region in writes_of(index, step):
            if storage in wanted:
                stores[storage].append((step, region))
    return [
        () if entry is None else _last_stores(index, run, cache, entry, stores.get(entry.storage, []))
        for cache, entry in zip(trace.caches, runs)
    ]


def caches_at(trace: Trace, step: int) -> list[CacheAt]:
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
    frame = RunFrames(index.trace, run).first
    place = index.places.get((frame, cache.output)) or index.places.get((frame, cache.input))
    layout = None if cache.axis is None else _layout_in(place, cache.axis, entry.capacity)
    found: list[RowStep] = []
    for step, region in reversed(stores):
        rows = left if layout is None else both(left, _rows(region, layout))
        if rows:
            found.append(RowStep(step, tuple(rows)))
            left = minus(left, rows)
        if not left:
            break
    return tuple(reversed(found))


def _layout_in(place: Place | None, axis: int, capacity: int) -> _Layout | None:
    """How the rows of a cache lie that is such a value; None where that does not show."""
    if place is None or place.shape is None or axis >= len(place.shape):
        return None
    strides = place.strides or packed_strides(*unit(place.shape, place.dtype))
    step = strides[axis]
    # A region may begin in any plane of a batch entry or a head.
    planes = [stride for stride, length in zip(strides, place.shape) if stride > step and length > 1]
    return _Layout(min(planes) // step if planes else capacity, step, place.offset) if step > 0 else None


STORES = frozenset({"SET_ROWS", "CPY"})
"""Ops that store new rows. Others that write a cache, such as a ROPE in place, change existing rows."""

RECURRENT = ("cache_r_", "cache_s_")
"""Prefixes of llama.cpp's names of recurrent states, whose rows are sequences, not tokens."""


class _Layout(NamedTuple):
    """``rows`` of a cache that are ``step`` bytes apart, from ``first`` on; then a block of others begins.

    In a transposed cache, tokens are columns: ``step`` is one element, and the elements of a token are ``rows * step``
    bytes apart.
    """

    rows: int
    step: int
    first: int = 0


class _Touch(NamedTuple):
    step: int
    stores: bool
    access: Access


def stored_caches(trace: Trace) -> Caches:
    """The caches of a trace, found by the ops that store rows in them; they are metered on demand. Memory that does not
    exist before the first run is left out, and so is memory whose stores are not known exactly."""
    log = trace.log
    bound = {bind.storage: bind for frame in log.frames[:1] for bind in frame.bindings if bind.how == "donated"}
    touched: dict[int, list[_Touch]] = {storage: [] for storage in bound}
    for step, accesses in log.declared.accesses.items():
        for access in accesses:
            if access.storage in bound:
                touched[access.storage].append(_Touch(step, log[step].op.node.op_type in STORES, access))
    caches = Caches()
    for storage, bind in bound.items():
        layout = _layout(bind, [one.access.region for one in touched[storage] if one.stores and one.access.writes])
        if layout is None or bind.name.startswith(RECURRENT):
            continue
        cache = Cache(bind.name, bind.name, bind.name, "static", 0)
        for run in trace.runs:
            part = [one for one in touched[storage] if run.first <= one.step < run.last]
            copied = sum(log[step].copied for step in {one.step for one in part if one.stores and one.access.writes})
            cache.later(partial(_meter, storage, layout, part, copied))
        caches.append(cache)
    return caches


def _layout(bind: Bind, stores: Sequence[Region]) -> _Layout | None:
    """The layout of a cache's rows; None if no op stores rows in it, or it is not known which rows."""
    shape = bind.shape or ()
    if len(shape) != 2 or not prod(shape) or not stores or any(region.known != "exact" for region in stores):
        return None
    row = nbytes(shape[1:], bind.dtype)
    for region in stores:
        run, starts, axes = _runs(region)
        if any(number % row for number in (run, *starts, *(step for step, _ in axes))):
            # Parts of rows are stored: a token is a column, as in V without flash attention.
            return _Layout(shape[0], nbytes((1,), bind.dtype))
    return _Layout(shape[0], row)


def _meter(
    storage: int, layout: _Layout, touched: Sequence[_Touch], copied: int, cache: Cache, runs: list[CacheRun]
) -> None:
    cells = put(NOTHING, *runs[-1].items[0].held) if runs else NOTHING
    position = int(cells.max(initial=NO_TOKEN)) + 1
    wrote: list[Span] = []
    read: list[Span] = []
    taken: tuple[int, tuple[Span, ...]] = (-1, ())  # the rows that a step reads, for what it stores
    for one in touched:
        spans = _rows(one.access.region, layout)
        (wrote if one.access.writes else read).extend(spans)
        if not one.access.writes:
            taken = one.step, spans
        elif one.stores and taken[0] == one.step:
            cells = _moved(cells, taken[1], spans)
        elif one.stores and not (len(cells) and count(spans) == layout.rows):
            # A store over all rows at once rewrites existing tokens: keys that were rotated.
            stored: list[Held] = []
            for start, stop in spans:
                stored.append((start, stop, position))
                position += stop - start
            cells = put(cells, *stored)
    items = (Rows(held_in(cells), union(wrote), None),)
    runs.append(
        CacheRun(
            capacity=layout.rows,
            bytes_copied=copied,
            bytes_written=sum(stored_bytes(one.access.region) for one in touched if one.access.writes),
            storage=storage,
            rows_read=count(union(read)),
            items=items,
            **tally(items),
        )
    )


def _moved(cells: Cells, sources: Sequence[Span], targets: Sequence[Span]) -> Cells:
    """What rows hold after a cache was copied into itself, as defragmentation does: the tokens have moved."""
    moved = put(cells, *((*span, NO_TOKEN) for span in (*sources, *targets)))
    for old, new in zip(_each(sources), _each(targets)):
        if old < len(cells) and cells[old] != EMPTY:
            moved[new] = cells[old]
    return moved


def _each(spans: Sequence[Span]) -> Iterator[int]:
    return (row for start, stop in spans for row in range(start, stop))


def _rows(region: Region, layout: _Layout) -> tuple[Span, ...]:
    """The rows of a cache that a region covers, wholly or in part."""
    run, starts, axes = _runs(region)
    around = layout.rows * layout.step
    if run >= around:
        return ((0, layout.rows),)
    apart = [range(0, step * length, step) for step, length in axes if step % around]
    firsts = {(start - layout.first) % around for start in starts}
    places = {(first + sum(more)) % around for first in firsts for more in product(*apart)}
    return union((place // layout.step, min(-(-(place + run) // layout.step), layout.rows)) for place in places)


def _runs(region: Region) -> tuple[int, tuple[int, ...], list[tuple[int, int]]]:
    """A region as runs of bytes: their length, the starts of some, and the axes along which these repeat."""
    shape, run = unit(region.shape, region.dtype)
    axes = sorted((step, length) for step, length in zip(region.strides, shape) if length != 1)
    while axes and axes[0][0] == run:
        run *= axes.pop(0)[1]
    starts = (0,) if region.rows is None else region.rows
    return run if prod(shape) else 0, tuple(region.offset + start for start in starts), axes
