"""Which bytes of a storage a value takes, and how many of them two values share.

A region has three precisions: *root* is all of the storage, *range* goes from the first byte to the last one, *exact*
are the bytes of the elements alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np

from kvviz.trace.schema.element_types import nbytes, unit

Level = Literal["root", "range", "exact"]
LEVELS: tuple[Level, ...] = ("root", "range", "exact")
KNOWN = ("exact", "range", "root", "name")
"""How precisely the bytes of an access are known, the finest first; see `Region`."""

# The maximum number of runs of bytes that two regions are compared by one by one.
_RUNS = 1 << 18
# The maximum numbers of blocks of one region that are examined, and that are kept one by one.
_LOOKED_AT, _PLACES = 1 << 16, 1 << 12


class Region(NamedTuple):
    """Bytes of a storage.

    ``offset``: bytes from the start of the storage to the first element.
    ``shape``: in elements.
    ``strides``: in bytes; on the last axis of a block type from block to block.
    ``dtype``: NumPy's, or a name of `kvviz.trace.schema.element_types.BLOCKS`.
    ``rows``: if only some rows of a value are touched, the bytes from ``offset`` to each of them; ``shape`` and
      ``strides`` are then those of one row, and no two rows share a byte.
    ``known``: ``"exact"``, or how precisely the touched bytes are known: some of these (``"range"``), some of the
      storage's (``"root"``), or a storage that only a name suggests (``"name"``).
    ``most``: the most bytes touched, if it is not known which.
    """

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    rows: tuple[int, ...] | None = None
    known: str = "exact"
    most: int | None = None

    def only(self, rows: Iterable[int], axis: int = 0) -> Region:
        """Some entries of an axis, each once, the same ones in all planes; a block if they are consecutive."""
        chosen, shape = sorted(set(rows)), list(self.shape)
        step = self.strides[axis]
        shape[axis] = 1
        if chosen and chosen[-1] - chosen[0] == len(chosen) - 1:
            shape[axis] = len(chosen)
            return self._replace(offset=self.offset + chosen[0] * step, shape=tuple(shape))
        return self._replace(shape=tuple(shape), rows=tuple(row * step for row in chosen))


class _Grid(NamedTuple):
    """The bytes of a region that begins at 0, in order of address: runs, repeated at decreasing distances. ``regular``:
    repetitions do not overlap, so that no byte is met twice."""

    low: int
    high: int
    repeats: tuple[tuple[int, int], ...]
    run: int
    regular: bool


def packed_strides(shape: Any, size: int) -> tuple[int, ...]:
    strides = []
    for n in reversed(shape):
        strides.append(size)
        size *= n
    return tuple(reversed(strides))


def blocks(starts: Sequence[int] | np.ndarray, shape: Sequence[int], strides: Sequence[int], dtype: Any) -> Region:
    """Equal blocks that begin at so many bytes each: a grid if the distances repeat, else their places one by one. Of
    more than 4,096 places that form no grid, and of more than 65,536 in all, only the range from the first to the last
    byte is kept, to bound the time."""
    shape, strides = tuple(shape), tuple(strides)
    if not len(starts):
        return Region(0, (0, *shape), (0, *strides), dtype)
    if len(starts) == 1:
        return Region(int(starts[0]), shape, strides, dtype)
    left = np.unique(starts) if len(starts) <= _LOOKED_AT else np.array([np.min(starts), np.max(starts)])
    while len(left) > 1 and len(starts) <= _LOOKED_AT:
        gaps = np.diff(left)
        other = np.flatnonzero(gaps != gaps[0])
        n = int(other[0]) + 1 if other.size else len(left)
        rows = left.reshape(-1, n) if len(left) % n == 0 else left[:0]
        if not rows.size or (rows - rows[:, :1] != rows[0] - rows[0, 0]).any():
            break
        shape, strides, left = (n, *shape), (int(gaps[0]), *strides), rows[:, 0]
    first, last = int(left[0]), int(left[-1])
    if first == last:
        return Region(first, shape, strides, dtype)
    if len(left) <= _PLACES and len(starts) <= _LOOKED_AT:
        return Region(0, shape, strides, dtype, tuple(left.tolist()))
    low, high = bounds(Region(0, shape, strides, dtype))
    size = np.dtype(dtype).itemsize
    return Region(first + low, ((last - first + high - low) // size,), (size,), dtype)


def whole(capacity: int) -> Region:
    return Region(0, (capacity,), (1,), "uint8")


def stored_bytes(region: Region) -> int:
    size = nbytes(region.shape, region.dtype) * (1 if region.rows is None else len(region.rows))
    return size if region.most is None else min(size, region.most)


def anywhere(capacity: int, size: int) -> Region:
    """So many bytes of a storage at an unknown place; all of it exactly if it is no larger."""
    return whole(capacity) if size >= capacity else whole(capacity)._replace(known="root", most=size)


def bounds(region: Region) -> tuple[int, int]:
    grid = _grid(region.shape, region.strides, region.dtype)
    low, high = region.offset + grid.low, region.offset + grid.high
    if region.rows is None or low == high:
        return low, high
    return (low + min(region.rows), high + max(region.rows)) if region.rows else (low, low)


def overlap(one: Region, two: Region, level: Level = "exact", capacity: int | None = None) -> int:
    """How many bytes two regions of one storage share.

    ``capacity``: bytes of the storage, which regions share at level root; by default the range of both. Regions of some
    260,000 runs of bytes and more, which repeat at different distances or list their rows, are compared at level range
    even for exact bytes. A region without elements shares nothing.
    """
    (low, high), (first, last) = bounds(one), bounds(two)
    if low == high or first == last:
        return 0
    if level == "root":
        return max(high, last) - min(low, first) if capacity is None else capacity
    most = min(high, last) - max(low, first)
    if most <= 0:
        return 0
    if level == "range":
        return most
    found = _shared(one, two)
    limits = [region.most for region in (one, two) if region.most is not None]
    return min([most if found is None else found, *limits])


def confidence(one: Region, two: Region) -> str:
    """Whether two accesses to one storage share bytes: ``"certain"``, ``"likely"`` or ``"unknown"``. It is likely if
    only a name suggests the storage of one of them, and certain if one is known exactly and covers everything that the
    other may touch."""
    if "name" in (one.known, two.known):
        return "likely"
    for region, other in ((one, two), (two, one)):
        if region.known != "exact":
            may = region._replace(most=None)
            if other.known != "exact" or overlap(may, other) != overlap(may, may):
                return "unknown"
    return "certain"


def spans(region: Region, other: Region | None = None) -> tuple[tuple[int, int], ...] | None:
    """(start, end) of the runs of bytes of a region in order of address, or of the bytes that two regions share; None
    for regions that are not known exactly, as in `overlap`."""
    found = _runs(region, _grid(region.shape, region.strides, region.dtype))
    if found is not None and other is not None:
        theirs = _runs(other, _grid(other.shape, other.strides, other.dtype))
        found = None if theirs is None else _both(found, theirs)
    if found is None:
        return None
    return tuple((low, high) for low, high in zip(*(ends.tolist() for ends in found)) if low < high)


def _both(one: tuple[np.ndarray, np.ndarray], two: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    cuts = np.unique(np.concatenate([*one, *two]))
    # Between two cuts everything is inside a run, or nothing is.
    inside = [
        np.searchsorted(starts, cuts[:-1], "right") > np.searchsorted(ends, cuts[:-1], "right")
        for starts, ends in (one, two)
    ]
    kept = inside[0] & inside[1]
    return cuts[:-1][kept], cuts[1:][kept]


def _shared(one: Region, two: Region) -> int | None:
    """How many bytes two regions share exactly; None if that takes too long."""
    a, b = (_grid(region.shape, region.strides, region.dtype) for region in (one, two))
    if one.rows is None and two.rows is None and a.regular and b.regular:
        found = _in_step(one.offset + a.low, a.repeats, a.run, two.offset + b.low, b.repeats, b.run)
        if found is not None:
            return found
    mine, theirs = _runs(one, a), _runs(two, b)
    if mine is None or theirs is None:
        return None
    # How many of their bytes lie before an address, at the end of each run of mine less at its start.
    starts, ends = theirs
    before = np.concatenate([[0], np.cumsum(ends - starts)])
    counts = []
    for address in mine:
        place = np.searchsorted(starts, address, side="right")
        inside = np.minimum(address - starts[place - 1], (ends - starts)[place - 1])
        counts.append(np.where(place > 0, before[place - 1] + inside, 0))
    return int((counts[1] - counts[0]).sum())


def _in_step(a: int, repeats: Any, run: int, b: int, others: Any, other: int) -> int | None:
    """Bytes that two regular grids share, that begin at ``a`` and ``b``; None if their distances differ."""
    if not repeats:
        return _within(b, others, other, a, a + run)
    if not others:
        return _within(a, repeats, run, b, b + other)
    (distance, n), (same, m) = repeats[0], others[0]
    if distance != same:
        return None
    span, reach, total = _span(repeats[1:], run), _span(others[1:], other), 0
    # The bytes that two repetitions share depend only on how many places they are apart, and only neighbours share any.
    for apart in range((a - b - reach) // distance + 1, (a - b + span - 1) // distance + 1):
        pairs = min(n, m - apart) - max(0, -apart)
        if pairs > 0:
            inner = _in_step(a, repeats[1:], run, b + apart * distance, others[1:], other)
            if inner is None:
                return None
            total += pairs * inner
    return total


def _within(start: int, repeats: Any, run: int, low: int, high: int) -> int:
    """Bytes of a regular grid that lie between two addresses."""
    if not repeats:
        return max(0, min(start + run, high) - max(start, low))
    (distance, n), inner = repeats[0], repeats[1:]
    first = max(0, (low - start - _span(inner, run)) // distance + 1)
    last = min(n - 1, (high - 1 - start) // distance)
    # Only the outermost ones may lie there in part.
    edges = {first, last} if first <= last else ()
    total = sum(_within(start + place * distance, inner, run, low, high) for place in edges)
    return int(total + max(last - first - 1, 0) * prod((n for _, n in inner), start=run))


def _span(repeats: Any, run: int) -> int:
    return run + sum(distance * (n - 1) for distance, n in repeats)


def _runs(region: Region, grid: _Grid) -> tuple[np.ndarray, np.ndarray] | None:
    """Starts and ends of maximal runs of bytes, in order; None for too many."""
    rows = region.rows or (0,)
    if prod((n for _, n in grid.repeats), start=len(rows)) > _RUNS:
        return None
    starts = np.array(rows, np.int64) + region.offset + grid.low
    for distance, n in grid.repeats:
        starts = (starts[:, None] + np.arange(n, dtype=np.int64) * distance).reshape(-1)
    starts = np.unique(starts)
    ends = starts + grid.run
    new = np.concatenate([[True], starts[1:] > ends[:-1]])
    return starts[new], ends[np.concatenate([new[1:], [True]])]


@lru_cache(maxsize=1 << 14)
def _grid(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> _Grid:
    counts, run = unit(shape, dtype)
    if not prod(counts):
        return _Grid(0, 0, (), 0, True)
    axes = sorted((abs(stride), n) for stride, n in zip(strides, counts) if n > 1 and stride)
    low = sum((n - 1) * stride for stride, n in zip(strides, counts) if stride < 0)
    high = low + _span(axes, run)
    repeats: list[tuple[int, int]] = []
    regular = True
    for distance, n in axes:
        if not repeats and distance <= run:
            run += distance * (n - 1)
        elif repeats and distance == repeats[-1][0] * repeats[-1][1]:
            repeats[-1] = repeats[-1][0], repeats[-1][1] * n
        else:
            regular = regular and distance >= _span(repeats, run)
            repeats.append((distance, n))
    return _Grid(low, high, tuple(reversed(repeats)), run, regular)
