"""What a recording keeps of its values, as columns; see `kvviz.trace.value_numbers` for what is kept of each.

A value is identified by (at, slot): the step that made it and which of its outputs it is, or for inputs ``-1 - run``
and the index among the bindings of the run's main frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from kvviz.trace.value_numbers import (
    BINS,
    Numbers,
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


@dataclass(frozen=True, slots=True)
class ValueSummaries:
    """What was kept of the values of a recording.

    ``budget``: maximum bytes of all columns.
    ``missing``: why some values were not examined; empty if all were.
    ``first``: ``"nan"`` and ``"inf"`` to the first value that has one, whether it was kept or not.
    ``columns``: as in `COLUMNS`.
    """

    budget: int
    counted: Counted
    missing: str
    first: Mapping[str, Key]
    columns: Mapping[str, np.ndarray] = field(repr=False)

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns.values())

    def until(self, steps: int, runs: int) -> ValueSummaries:
        """Only what the first steps and runs made."""
        c = self.columns

        def there(at: Any) -> Any:
            return np.where(at < 0, -1 - at < runs, at < steps)

        first = {kind: key for kind, key in self.first.items() if there(np.array(key[0]))}
        counted = self.counted._replace(steps=min(self.counted.steps, steps))
        histograms, pictures = (np.ones(len(c[name]), bool) for name in ("histogram_of", "picture"))
        columns = _only(c, there(c["at"]), histograms, pictures, c["attention"][:, 1] < runs)
        return replace(self, columns=columns, first=first, counted=counted)

    def within(self, plan: Plan) -> ValueSummaries:
        """Only what a plan keeps; it has no attention."""
        c = self.columns
        keys = list(zip(c["at"].tolist(), c["slot"].tolist()))
        entries = np.array([key in plan.numbers for key in keys], bool)
        histograms = np.array([keys[entry] in plan.histograms for entry in c["histogram_of"]], bool)
        rows = c["picture"][:, :2].tolist()
        pictures = np.array([head < plan.heads.get(keys[entry], 0) for entry, head in rows], bool)
        return replace(self, columns=_only(c, entries, histograms, pictures, np.zeros(0, bool)))


def _only(
    c: Mapping[str, np.ndarray],
    entries: np.ndarray,
    histograms: np.ndarray,
    pictures: np.ndarray,
    attention: np.ndarray,
) -> dict[str, np.ndarray]:
    """Some rows of the columns. Histograms and pictures of omitted entries are omitted too."""
    place = np.cumsum(entries) - 1
    histograms = histograms & entries[c["histogram_of"]]
    pictures = pictures & entries[c["picture"][:, 0]]
    picture, weighed = c["picture"][pictures].copy(), c["attention"][attention].copy()
    picture[:, 0] = place[picture[:, 0]]
    sizes = picture[:, 8] * picture[:, 9]
    cells = [c["cells"][at : at + size] for at, size in zip(picture[:, 10].tolist(), sizes.tolist())]
    picture[:, 10] = np.cumsum(sizes) - sizes
    # Several caches share their weights, which lie in the order of the runs.
    ends = (weighed[:, 5] + weighed[:, 2] * weighed[:, 3]).tolist()
    return {
        **{name: c[name][entries] for name in ("at", "slot", "numbers", "counts")},
        "histogram_of": place[c["histogram_of"][histograms]].astype("<i4"),
        "histogram": c["histogram"][histograms],
        "picture": picture,
        "scale": c["scale"][pictures],
        "cells": np.concatenate([np.zeros(0, np.uint8), *cells]),
        "attention": weighed,
        "weights": c["weights"][: max(ends, default=0)],
    }


def _column(name: str, rows: Any) -> np.ndarray:
    dtype, width = COLUMNS[name]
    return np.asarray(rows, dtype).reshape((-1, width) if width > 1 else -1)


class Collector:
    """Takes values one by one, and keeps of each what a plan says; without a plan, everything. ``first``: as in
    `ValueSummaries`."""

    def __init__(self, plan: Plan | None) -> None:
        self._plan = plan
        self._rows: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        self._cells = self._weights = 0
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
        rows = self._rows
        entry = len(rows["at"])
        rows["at"].append(at)
        rows["slot"].append(slot)
        rows["numbers"].append(numbers[:3])
        rows["counts"].append(np.minimum(numbers[3:], 2**31 - 1))
        if plan is None or key in plan.histograms:
            rows["histogram_of"].append(entry)
            rows["histogram"].append(histogram_of(finite, numbers.low, numbers.high))
        axes = axes_of(value.shape)
        heads = 0 if axes is None else axes.heads if plan is None else plan.heads.get(key, 0)
        for head in range(heads):
            assert axes is not None
            made = picture_of(floats, axes, head)
            facts = (entry, head, axes.heads, axes.down, axes.across, axes.head, *axes.each, axes.rows, axes.columns)
            rows["picture"].append((*facts, self._cells))
            rows["scale"].append((made.low, made.high))
            rows["cells"].append(made.cells.ravel())
            self._cells += made.cells.size

    def attend(self, caches: list[int], run: int, start: int, weights: np.ndarray) -> None:
        """Take the attention weights of one query, (heads, keys); the first key is row ``start`` of the caches."""
        self._rows["attention"] += [(cache, run, *weights.shape, start, self._weights) for cache in caches]
        self._rows["weights"].append(np.rint(np.clip(np.nan_to_num(weights), 0, 1) * WHOLE).astype("<u2").ravel())
        self._weights += weights.size

    def done(self, budget: int, counted: Counted, missing: str = "") -> ValueSummaries:
        joined = {**self._rows}
        for name in ("cells", "weights"):
            joined[name] = np.concatenate(joined[name]) if joined[name] else []  # type: ignore[assignment]
        columns = {name: _column(name, rows) for name, rows in joined.items()}
        return ValueSummaries(budget, counted, missing, self.first, columns)


def numbers_in(columns: Mapping[str, np.ndarray], entry: int) -> Numbers:
    low, high, mean = columns["numbers"][entry].tolist()
    return Numbers(low, high, mean, *columns["counts"][entry].tolist())


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
