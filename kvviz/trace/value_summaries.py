"""What a recording keeps of its values, and the columns of that in files and in the page; see
`kvviz.trace.value_numbers` for what is kept of each.

A value is identified by (at, slot): the step that made it and which of its outputs it is, or for inputs ``-1 - run``
and the index among the bindings of the run's main frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from kvviz.trace.value_numbers import (
    BINS,
    Axes,
    Numbers,
    Picture,
    Plan,
    Seen,
    as_bytes,
    as_floats,
    axes_of,
    has_numbers,
    histogram_of,
    numbers_of,
    picture_of,
    plan,
)

Key = tuple[int, int]

COLUMNS: Mapping[str, tuple[str, int]] = {
    "at": ("<i4", 1),
    "slot": ("<i4", 1),
    "numbers": ("<f8", 3),
    "counts": ("<i4", 3),
    "histogram_of": ("<i4", 1),
    "histogram": ("<i4", BINS),
    "picture": ("<i4", 11),
    "scale": ("<f8", 2),
    "cells": ("<u1", 1),
    "attention": ("<i4", 6),
    "weights": ("<u2", 1),
}
"""Element type and numbers of a row of each column.

``numbers, counts``: as in `Numbers`, of the value that ``at`` and ``slot`` of that row name.
``histogram_of, histogram``: a row of these, and its histogram.
``picture``: a row of these; head; heads of the value; axes down, across and of the heads; numbers per cell down and
  across; rows and columns; where its cells begin.
``scale``: lowest and highest.
``attention``: cache; run; heads; keys; the cache's row of the first key; where its weights begin, head by head, 65,535
  for 1.
"""
WHOLE = 65535


class Counted(NamedTuple):
    """How much there was, kept or not: ``values`` with numbers, ``pictures`` that could be made, ``steps`` that were
    examined."""

    values: int
    pictures: int
    attention: int
    steps: int


class Kept(NamedTuple):
    """What is kept of one value. ``axes``: of its ``pictures``, which are those of its first heads."""

    numbers: Numbers
    histogram: np.ndarray | None
    axes: Axes | None
    pictures: tuple[Picture, ...]


class Attended(NamedTuple):
    """Attention weights of the last query of a run, (heads, keys), 65,535 for 1, which ``caches`` share. ``start``: the
    caches' row of the first key."""

    caches: tuple[int, ...]
    run: int
    start: int
    weights: np.ndarray


@dataclass(frozen=True)
class ValueSummaries:
    """What was kept of the values of a recording.

    ``budget``: maximum bytes of all columns.
    ``missing``: why some values were not examined; empty if all were.
    ``first``: ``"nan"`` and ``"inf"`` to the first value that has one, whether it was kept or not.
    """

    budget: int
    counted: Counted
    missing: str
    first: Mapping[str, Key]
    values: Mapping[Key, Kept] = field(repr=False)
    attention: tuple[Attended, ...] = field(default=(), repr=False)

    @cached_property
    def columns(self) -> Mapping[str, np.ndarray]:
        """As in `COLUMNS`."""
        rows: dict[str, Any] = {name: [] for name in COLUMNS}
        cells = weights = 0
        for entry, ((at, slot), (numbers, histogram, axes, pictures)) in enumerate(self.values.items()):
            rows["at"].append(at)
            rows["slot"].append(slot)
            rows["numbers"].append(numbers[:3])
            rows["counts"].append(numbers[3:])
            if histogram is not None:
                rows["histogram_of"].append(entry)
                rows["histogram"].append(histogram)
            for head, picture in enumerate(pictures):
                assert axes is not None
                facts = (entry, head, axes.heads, axes.down, axes.across, axes.head, *axes.each, *picture.cells.shape)
                rows["picture"].append((*facts, cells))
                rows["scale"].append((picture.low, picture.high))
                rows["cells"].append(picture.cells.ravel())
                cells += picture.cells.size
        for caches, run, start, shown in self.attention:
            rows["attention"] += [(cache, run, *shown.shape, start, weights) for cache in caches]
            rows["weights"].append(shown.ravel())
            weights += shown.size
        for name in ("cells", "weights"):
            rows[name] = np.concatenate([np.zeros(0, np.uint8), *rows[name]])
        return {name: _column(name, part) for name, part in rows.items()}

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns.values())

    def until(self, steps: int, runs: int) -> ValueSummaries:
        """Only what the first steps and runs made."""

        def there(at: int) -> bool:
            return -1 - at < runs if at < 0 else at < steps

        first = {kind: key for kind, key in self.first.items() if there(key[0])}
        counted = self.counted._replace(steps=min(self.counted.steps, steps))
        values = {key: kept for key, kept in self.values.items() if there(key[0])}
        attention = tuple(one for one in self.attention if one.run < runs)
        return replace(self, values=values, attention=attention, first=first, counted=counted)

    def within(self, plan: Plan) -> ValueSummaries:
        """Only what a plan keeps; it has no attention."""
        values = {
            key: kept._replace(
                histogram=kept.histogram if key in plan.histograms else None,
                pictures=kept.pictures[: plan.heads.get(key, 0)],
            )
            for key, kept in self.values.items()
            if key in plan.numbers
        }
        return replace(self, values=values, attention=())


def _column(name: str, rows: Any) -> np.ndarray:
    dtype, width = COLUMNS[name]
    return np.asarray(rows, dtype).reshape((-1, width) if width > 1 else -1)


class Collector:
    """Takes values one by one, and keeps of each what a plan says; without a plan, everything. ``first``: as in
    `ValueSummaries`."""

    def __init__(self, plan: Plan | None) -> None:
        self._plan = plan
        self._values: dict[Key, Kept] = {}
        self._attention: list[Attended] = []
        self.first: dict[str, Key] = {}

    def add(self, at: int, slot: int, value: Any) -> None:
        """Take a value of any kind; the value itself is not kept."""
        key = (at, slot)
        plan = self._plan
        wanted = plan is None or key in plan.numbers
        if not isinstance(value, np.ndarray) or value.dtype.kind in "OUSMm":
            return
        if not wanted and (len(self.first) == 2 or value.dtype.kind in "biu"):
            return
        floats = as_floats(value)
        numbers, finite = numbers_of(floats)
        if numbers.nan:
            self.first.setdefault("nan", key)
        if numbers.above or numbers.below:
            self.first.setdefault("inf", key)
        if not wanted:
            return
        histogram = histogram_of(finite, numbers.low, numbers.high) if plan is None or key in plan.histograms else None
        axes = axes_of(value.shape)
        heads = 0 if axes is None else axes.heads if plan is None else plan.heads.get(key, 0)
        pictures = () if axes is None else tuple(picture_of(floats, axes, head) for head in range(heads))
        numbers = Numbers(*numbers[:3], *(min(count, 2**31 - 1) for count in numbers[3:]))
        self._values[key] = Kept(numbers, histogram, axes, pictures)

    def attend(self, caches: list[int], run: int, start: int, weights: np.ndarray) -> None:
        """Take the attention weights of one query, (heads, keys); the first key is row ``start`` of the caches."""
        shown = np.rint(np.clip(np.nan_to_num(weights), 0, 1) * WHOLE).astype("<u2")
        self._attention.append(Attended(tuple(caches), run, start, shown))

    def done(self, budget: int, counted: Counted, missing: str = "") -> ValueSummaries:
        return ValueSummaries(budget, counted, missing, self.first, self._values, tuple(self._attention))


def from_columns(columns: Mapping[str, np.ndarray]) -> tuple[dict[Key, Kept], tuple[Attended, ...]]:
    """The values and the attention weights of columns; see `checked`."""
    c = columns
    axes: dict[int, Axes] = {}
    pictures: dict[int, list[Picture]] = {}
    for picture, scale in zip(c["picture"].tolist(), c["scale"].tolist()):
        entry, _, heads, down, across, head, *each, rows, wide, offset = picture
        axes[entry] = Axes(down, across, head, heads, (each[0], each[1]), rows, wide)
        cells = c["cells"][offset : offset + rows * wide].reshape(rows, wide)
        pictures.setdefault(entry, []).append(Picture(cells, *scale))
    histograms = dict(zip(c["histogram_of"].tolist(), c["histogram"]))
    keys = zip(c["at"].tolist(), c["slot"].tolist())
    numbers = map(Numbers._make, np.concatenate([c["numbers"], c["counts"]], 1).tolist())
    values = {
        key: Kept(figures, histograms.get(entry), axes.get(entry), tuple(pictures.get(entry, ())))
        for entry, (key, figures) in enumerate(zip(keys, numbers))
    }
    attention = []
    for (run, heads, wide, start, offset), alike in groupby(c["attention"].tolist(), lambda row: tuple(row[1:])):
        weights = c["weights"][offset : offset + heads * wide].reshape(heads, wide)
        attention.append(Attended(tuple(row[0] for row in alike), run, start, weights))
    return values, tuple(attention)


def checked(columns: Mapping[str, bytes], steps: int, runs: int, caches: int) -> dict[str, np.ndarray]:
    """Columns from an untrusted file; raises `ValueError` that says what is wrong."""
    made = {name: _column(name, np.frombuffer(columns[name], COLUMNS[name][0])) for name in COLUMNS}
    entries = len(made["at"])
    same = {len(made[name]) for name in ("slot", "numbers", "counts")} == {entries}
    _expect(same and len(made["histogram"]) == len(made["histogram_of"]), "lengths of columns")
    _expect(len(made["scale"]) == len(made["picture"]), "lengths of columns")
    picture, attention = made["picture"].astype(np.int64), made["attention"].astype(np.int64)
    _within(made["at"], -runs, steps)
    _within(made["slot"], 0, 1 << 20)
    _within(made["counts"], 0, 1 << 31)
    _within(made["histogram_of"], 0, entries)
    _within(made["histogram"], 0, 1 << 31)
    _within(picture[:, 0], 0, entries)
    _within(picture[:, 1], 0, 1 << 31)
    _within(picture[:, 3:6], -1, 64)
    _within(picture[:, 8:10], 1, 33)
    _within(picture[:, 10], 0, len(made["cells"]))
    _within(picture[:, 10] + picture[:, 8] * picture[:, 9], 0, len(made["cells"]) + 1)
    _within(attention[:, 0], 0, max(caches, 1))
    _within(attention[:, 1], 0, runs)
    _within(attention[:, 2:5], 0, 1 << 24)
    _within(attention[:, 2] * (attention[:, 3] + attention[:, 4]), 0, 1 << 26)  # with the rows before the first key
    _within(attention[:, 5], 0, len(made["weights"]) + 1)
    _within(attention[:, 5] + attention[:, 2] * attention[:, 3], 0, len(made["weights"]) + 1)
    return made


def _within(column: np.ndarray, low: int, high: int) -> None:
    _expect(not column.size or bool(low <= column.min() and column.max() < high), "numbers out of place")


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"its values have {what}")


# Summaries of the arrays that a writer gets; the arrays are not kept.


class SeenArrays:
    """Summaries of arrays within ``budget`` bytes, as in `Trace.summarise`; at 0 nothing is examined."""

    def __init__(self, budget: int | str) -> None:
        self.budget = as_bytes(budget)
        self._collector = Collector(None)
        self._seen: list[Seen] = []

    def look(self, at: int, slot: int, array: np.ndarray | None) -> None:
        """Summarise an output of a step or, if ``at`` is negative, an input of a run."""
        if self.budget and array is not None and has_numbers(array.shape, array.dtype):
            self._seen.append(Seen(at, slot, 1, array.nbytes, array.shape))
            self._collector.add(at, slot, array)

    def summaries(self, steps: int) -> ValueSummaries | None:
        if not self.budget:
            return None
        pictures = sum(axes_of(seen.shape) is not None for seen in self._seen)
        counted: Any = Counted(len(self._seen), pictures, 0, steps)
        return self._collector.done(self.budget, counted).within(plan(self._seen, (), self.budget))
