"""What a recording keeps of a value, and which values fit into a byte budget, decided before anything is computed.

Kept are the smallest, largest and mean number, a histogram, and a picture of two axes. All are of the finite numbers;
NaN and infinities are counted separately. Block types, texts and sequences have none.

All candidates have one order, and a beginning of it is kept: numbers of all values, histograms, attention, one picture
of each value, pictures of the other heads. So a larger budget keeps all that a smaller one does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kvviz.errors import InputError

BINS = 16
SIDE = 32
"""The maximum number of cells of a picture along each axis."""
SHADES = 250
EMPTY, BELOW, ABOVE, NAN = 251, 252, 253, 254
"""Cells of a picture go from 0, its lowest, to `SHADES`, its highest; these mean: no number (beyond the end), only −∞,
+∞, and NaN."""


class Numbers(NamedTuple):
    """Smallest, largest and mean finite number (NaN if there is none), and how many are NaN, +∞ and −∞."""

    low: float
    high: float
    mean: float
    nan: int
    above: int
    below: int


class Axes(NamedTuple):
    """Which part of a value a picture shows; an axis is -1 if there is none.

    ``down, across``: the last two axes longer than 1.
    ``head``: the axis before them longer than 1, with one picture for each of its ``heads`` entries; all other axes
      show entry 0.
    ``each``: numbers per cell along both axes: a cell is the mean of its finite numbers. A value of one axis continues
      from row to row.
    ``rows, columns``: cells.
    """

    down: int
    across: int
    head: int
    heads: int
    each: tuple[int, int]
    rows: int
    columns: int


class Picture(NamedTuple):
    """``cells``, (rows, columns) of uint8, from ``low`` to ``high``; both are NaN if no number is finite."""

    cells: np.ndarray
    low: float
    high: float


def has_numbers(shape: Any, dtype: Any) -> bool:
    if shape is None:
        return False
    try:
        kind = np.dtype(dtype)
    except TypeError:
        return False
    return kind.kind in "biufc" or (kind.kind == "V" and kind.fields is None and kind.itemsize <= 2)


def as_floats(array: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return (np.abs(array) if array.dtype.kind == "c" else array).astype(np.float64)


def numbers_of(floats: np.ndarray) -> tuple[Numbers, np.ndarray]:
    """The numbers of a value, and its finite ones."""
    flat = floats.ravel()
    finite = np.isfinite(flat)
    nan = above = below = 0
    if not finite.all():
        nan = int(np.isnan(flat).sum())
        above = int((flat == np.inf).sum())
        below = flat.size - int(finite.sum()) - nan - above
        flat = flat[finite]
    if not flat.size:
        return Numbers(np.nan, np.nan, np.nan, nan, above, below), flat
    with np.errstate(all="ignore"):
        mean = flat.mean()
        if not np.isfinite(mean):
            mean = (flat / flat.size).sum()
    return Numbers(float(flat.min()), float(flat.max()), float(mean), nan, above, below), flat


def histogram_of(finite: np.ndarray, low: float, high: float) -> np.ndarray:
    """How many numbers lie in each of `BINS` parts of equal width from the smallest to the largest, which belongs to
    the last; if all are equal they are in the middle."""
    counts = np.zeros(BINS, np.int32)
    if not finite.size:
        return counts
    if low == high:
        counts[BINS // 2] = finite.size
        return counts
    with np.errstate(all="ignore"):
        try:
            counts[:] = np.histogram(finite, BINS, (low, high))[0]
        except ValueError:
            # Too wide, or too narrow, for float64 to separate the edges.
            places = np.minimum((_share(finite, low, high) * BINS).astype(np.intp), BINS - 1)
            counts[:] = np.bincount(places, minlength=BINS)
    return counts


def _share(numbers: np.ndarray, low: float, high: float) -> np.ndarray:
    """Positions of numbers between two limits, 0 to 1; the limits may be as far apart as float64 allows."""
    if not np.isfinite(high - low):
        numbers, low, high = numbers / 4, low / 4, high / 4
    return (numbers - low) / (high - low)


def axes_of(shape: tuple[int, ...]) -> Axes | None:
    """What a picture of a value of this shape shows; None if the numbers suffice, or there are none."""
    longer = [axis for axis, n in enumerate(shape) if n > 1]
    if 0 in shape or not longer:
        return None
    if len(longer) == 1:
        size = shape[longer[0]]
        run = -(-size // SIDE**2)
        cells = -(-size // run)
        return Axes(-1, longer[0], -1, 1, (1, run), -(-cells // SIDE), min(cells, SIDE))
    down, across = longer[-2:]
    head = longer[-3] if len(longer) > 2 else -1
    each = (-(-shape[down] // SIDE), -(-shape[across] // SIDE))
    rows, columns = (-(-shape[axis] // part) for axis, part in zip((down, across), each))
    return Axes(down, across, head, shape[head] if head >= 0 else 1, each, rows, columns)


def picture_of(floats: np.ndarray, axes: Axes, head: int = 0) -> Picture:
    place: list[Any] = [0] * floats.ndim
    for axis in (axes.down, axes.across):
        if axis >= 0:
            place[axis] = slice(None)
    if axes.head >= 0:
        place[axes.head] = head
    grid = np.atleast_2d(floats[tuple(place)])
    finite = np.isfinite(grid)
    if axes.each != (1, 1) or not finite.all():
        counts, nan, above = (_summed(part.astype(np.float64), axes) for part in (finite, grid != grid, grid == np.inf))
        means = _summed(np.where(finite, grid, 0) / (axes.each[0] * axes.each[1]), axes)
        with np.errstate(all="ignore"):
            means = means / counts * (axes.each[0] * axes.each[1])
    else:
        means, counts, nan, above = grid, np.ones_like(grid), np.zeros(()), np.zeros(())
    known = means[np.isfinite(means)]
    low, high = (float(known.min()), float(known.max())) if known.size else (np.nan, np.nan)
    with np.errstate(all="ignore"):
        shades = np.rint(_share(means, low, high) * SHADES) if low < high else np.zeros_like(means)
    cells = np.where(np.isfinite(shades), shades, 0).astype(np.uint8)
    cells[np.broadcast_to(counts == 0, cells.shape)] = BELOW
    cells[np.broadcast_to(above > 0, cells.shape)] = ABOVE
    cells[np.broadcast_to(nan > 0, cells.shape)] = NAN
    whole = np.full(axes.rows * axes.columns, EMPTY, np.uint8)
    whole[: cells.size] = cells.ravel()
    return Picture(whole.reshape(axes.rows, axes.columns), low, high)


def _summed(grid: np.ndarray, axes: Axes) -> np.ndarray:
    for axis, each in enumerate(axes.each):
        if each > 1:
            grid = np.add.reduceat(grid, np.arange(0, grid.shape[axis], each), axis=axis)
    return grid


NUMBERS, HISTOGRAM, ATTENTION, PICTURE = 44, 4 + 4 * BINS, 24, 60
"""Bytes of one of each, without the cells of attention and pictures."""
_UNITS = {"": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20}


class Seen(NamedTuple):
    """A value that could be kept. ``at``: the step that made it; ``-1 - run`` for an input of a run. ``slot``: which
    output of the step, or which binding of the run's main frame. ``rank``: smaller ones come first, and among equals
    those of more bytes."""

    at: int
    slot: int
    rank: int
    nbytes: int
    shape: tuple[int, ...]


class Plan(NamedTuple):
    """What is kept of each value, by (at, slot). ``attention``: number of attention rows kept. ``heads``: number of
    pictures of each value."""

    numbers: frozenset[tuple[int, int]]
    histograms: frozenset[tuple[int, int]]
    attention: int
    heads: dict[tuple[int, int], int]


def plan(values: Sequence[Seen], attention: Sequence[int], budget: int) -> Plan:
    """What to keep within a number of bytes; ``attention``: cells (2 bytes each) of each attention row."""
    order = sorted(values, key=lambda seen: (seen.rank, -seen.nbytes, seen.at, seen.slot))
    left = budget
    counts = []
    for costs in (
        [NUMBERS] * len(order),
        [HISTOGRAM] * len(order),
        [ATTENTION + 2 * cells for cells in attention],
    ):
        taken, left = _first(costs, left)
        counts.append(taken)
    forms = [(seen, axes) for seen in order if (axes := axes_of(seen.shape)) is not None]
    taken, left = _first([_picture(axes) for _, axes in forms], left)
    heads = {(seen.at, seen.slot): 1 for seen, _ in forms[:taken]}
    for seen, axes in forms:
        more, left = _first([_picture(axes)] * (axes.heads - 1), left)
        if more:
            heads[seen.at, seen.slot] = 1 + more
    keys = [(seen.at, seen.slot) for seen in order]
    return Plan(frozenset(keys[: counts[0]]), frozenset(keys[: counts[1]]), counts[2], heads)


def _first(costs: Sequence[int], left: int) -> tuple[int, int]:
    """How many of these fit into the bytes left, and the bytes left then: 0 if not all of them fit."""
    for taken, cost in enumerate(costs):
        if cost > left:
            return taken, 0
        left -= cost
    return len(costs), left


def _picture(axes: Axes) -> int:
    return PICTURE + axes.rows * axes.columns


def as_bytes(budget: int | str) -> int:
    """A number of bytes, from one or from a text such as ``"64 kB"``; raises `InputError` for anything else."""
    if isinstance(budget, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKMG]?i?B?)\s*", budget)
        if found is None or found[2] not in _UNITS:
            raise InputError(f"a budget is a number of bytes or a text such as '64 kB', not {budget!r}")
        return int(float(found[1]) * _UNITS[found[2]])
    if isinstance(budget, bool) or budget != int(budget) or budget < 0:
        raise InputError(f"a budget is a number of bytes or a text such as '64 kB', not {budget!r}")
    return int(budget)
