"""Bytes that a run moved and stored for a cache, and in how many storages of its own the cache lay meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from kvviz.decode.known import Known
from kvviz.decode.rows import count
from kvviz.decode.ways import Link, Way
from kvviz.engine.records import Cache, Rows
from kvviz.engine.rows import APPEND, IN_PLACE, NEW, POOL, VIEW


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the ops on the way of a cache did in one run.

    Attributes
    ----------
    copied, written : int
        Bytes.
    reallocations : int
        Ops after which the cache lay in another storage than before.
    generations : int
        Storages with a version of the cache that were alive at once, at most.
    """

    copied: int = 0
    written: int = 0
    reallocations: int = 0
    generations: int = 1


def traffic_of(known: Known, cache: Cache, way: Way, items: tuple[Rows, ...], axis: int | None) -> Traffic:
    """Add up what the links of a way did.

    Parameters
    ----------
    known : Known
    cache : Cache
    way : Way
    items : tuple of Rows
        What the run did to the cache's rows, where that is known.
    axis : int or None
        The sequence axis.
    """
    rows = known.trace.recorder.rows
    copied = written = reallocations = 0
    storages: dict[int, int] = {}
    for link in way.links:
        step = known.step(link.frame, link.node.index)
        if step is None:
            continue
        moved, stored = _bytes(known, link, step, cache, items, axis)
        copied += moved
        written += stored
        where = rows[step][4][link.output]
        if (
            where is not None
            and where[3] is not None
            and prod(where[3])
            and where[0] != _storage_before(known, cache, link)
        ):
            reallocations += 1
            storages[where[0]] = min(step, storages.get(where[0], step))
    generations = _alive_at_once(known, cache, storages) if storages else 1
    return Traffic(copied, written, reallocations, generations)


def _bytes(
    known: Known, link: Link, step: int, cache: Cache, items: tuple[Rows, ...], axis: int | None
) -> tuple[int, int]:
    """(copied, written) by one op for the cache alone."""
    row = known.trace.recorder.rows[step]
    node, where = link.node, row[4][link.output]
    size = 0 if where is None else nbytes(where[3], where[4])
    if link.kind == "make":
        # What computed the rows may have computed more, as one projection of queries, keys and values does.
        here = known.place(0, cache.output)
        whole = size if here is None else nbytes(here[1], here[2])
        return 0, min(row[8], whole) if len(node.outputs) == 1 else size * (where[2] in (NEW, POOL) if where else 0)
    if len(node.outputs) == 1:
        return row[7], row[8]
    if where is None or where[2] == VIEW:
        return 0, 0
    before = known.place(link.frame, node.inputs[link.past])
    had = nbytes(before[1], before[2]) if before is not None else 0
    if where[2] == APPEND and size > had:
        return 0, size - had
    if where[2] in (APPEND, IN_PLACE):
        wrote = max((count(item.wrote) for item in items), default=0)
        length = where[3][axis] if axis is not None and axis < len(where[3]) else 0
        return 0, size // length * wrote if length else size
    return min(had, size), size


def _storage_before(known: Known, cache: Cache, link: Link) -> int:
    """Where the cache lay before an op; for one that makes the rows anew, where the cache was given."""
    frame, name = (0, cache.input) if link.past < 0 else (link.frame, link.node.inputs[link.past])
    before = known.place(frame, name)
    return -1 if before is None else before[0]


def _alive_at_once(known: Known, cache: Cache, storages: dict[int, int]) -> int:
    """The largest number of these storages, and the past's, that were alive during one step."""
    past = known.place(0, cache.input)
    born = dict(storages)
    # An empty past may lie in a large block.
    if past is not None and known.trace.recorder.ledger.storages[past[0]].capacity:
        born[past[0]] = -1
    alive = [(start, known.died(storage, start)) for storage, start in born.items()]
    return max(sum(a <= at <= b for a, b in alive) for at, _ in alive)


def nbytes(shape: tuple[int, ...] | None, dtype: Any) -> int:
    """Bytes of a value with a shape; 0 for others."""
    return 0 if shape is None else prod(shape) * np.dtype(dtype).itemsize
