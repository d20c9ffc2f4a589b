"""Bytes that a run moved and stored for a cache, and in how many storages of its own the cache lay meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.caches.control_values import Known
from kvviz.caches.row_spans import count
from kvviz.caches.value_flow import Link, Way
from kvviz.trace.element_types import nbytes
from kvviz.trace.events import APPEND, IN_PLACE, NEW, POOL, VIEW
from kvviz.trace.records import Cache, Rows


@dataclass(frozen=True, slots=True)
class Traffic:
    copied: int = 0  # bytes
    written: int = 0  # bytes
    reallocations: int = 0  # ops after which the cache lay in another storage than before
    generations: int = 1  # storages with a version of the cache that were alive at once, at most


def traffic_of(known: Known, cache: Cache, way: Way, items: tuple[Rows, ...], axis: int | None) -> Traffic:
    """Add up what the links of a way did; ``items`` is what the run did to the cache's rows, where that is known."""
    rows = known.trace.log
    copied = written = reallocations = 0
    storages: dict[int, int] = {}
    for link in way.links:
        step = known.step(link.frame, link.node.index)
        if step is None:
            continue
        moved, stored = _bytes(known, link, step, cache, items, axis)
        copied += moved
        written += stored
        where = rows[step].outs[link.output]
        if (
            where is not None
            and nbytes(where.shape, where.dtype)
            and where.storage != _storage_before(known, cache, link)
        ):
            reallocations += 1
            storages[where.storage] = min(step, storages.get(where.storage, step))
    generations = _alive_at_once(known, cache, storages) if storages else 1
    return Traffic(copied, written, reallocations, generations)


def _bytes(
    known: Known, link: Link, step: int, cache: Cache, items: tuple[Rows, ...], axis: int | None
) -> tuple[int, int]:
    row = known.trace.log[step]
    node, where = link.node, row.outs[link.output]
    size = 0 if where is None else nbytes(where.shape, where.dtype)
    if link.kind == "make":
        # What computed the rows may have computed more, as one projection of queries, keys and values does.
        here = known.place(0, cache.output)
        whole = size if here is None else nbytes(here.shape, here.dtype)
        if len(node.outputs) == 1:
            return 0, min(row.written, whole)
        return 0, size if where is not None and where.how in (NEW, POOL) else 0
    if len(node.outputs) == 1:
        return row.copied, row.written
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
            # Views behind it add axes or take them away.
            shape = present.shape or ()
        length = shape[axis] if axis is not None and axis < len(shape) else 0
        return 0, size // length * wrote if length else size
    return min(had, size), size


def _storage_before(known: Known, cache: Cache, link: Link) -> int:
    """Where the cache lay before an op; for one that makes the rows anew, where the cache was given."""
    frame, name = (0, cache.input) if link.past < 0 else (link.frame, link.node.inputs[link.past])
    before = known.place(frame, name)
    return -1 if before is None else before.storage


def _alive_at_once(known: Known, cache: Cache, storages: dict[int, int]) -> int:
    """The largest number of these storages, and the past's, that were alive during one step."""
    past = known.place(0, cache.input)
    born = dict(storages)
    # An empty past may lie in a large block.
    if past is not None and known.trace.log.storages[past.storage].capacity:
        born[past.storage] = -1
    alive = [(start, known.died(storage, start)) for storage, start in born.items()]
    return max(sum(a <= at <= b for a, b in alive) for at, _ in alive)
