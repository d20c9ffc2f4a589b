"""Two traces side by side, as the page reads it: which steps belong together, and what the change came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from kvviz.explain.compare import align, first_difference
from kvviz.explain.comparison.alike import alike
from kvviz.view.packed_columns import Columns, pack
from kvviz.view.payload import FORMAT


def pair_payload(
    before: Any,
    after: Any,
    labels: Sequence[str] = ("before", "after"),
    back: bool = False,
    kept: tuple[Sequence[int], Sequence[int]] | None = None,
) -> bytes:
    """What the page has to know of two traces beside their payloads.

    ``labels``: what to call them.
    ``back``: whether there is a debugger that the page can go back to.
    ``kept``: numbers of the steps that the payloads of both tell, ascending; all by default. Steps are told by their
      places among them, but for the first difference, which keeps its numbers.
    """
    names = ("the run before", "the run after") if labels[0] == "before" else (labels[0], labels[1])
    first = first_difference(before, after, names)
    columns = Columns()
    ways = align(before, after)
    for side, name in enumerate(("to.after", "to.before")):
        columns.ints(name, ways[side] if kept is None else _among(ways[side], kept[side], kept[1 - side]))
    told = alike(before, after)
    if first is not None and told.runs is not None and first.step >= before.runs[told.runs - 1].last:
        # It ends there for no other reason than that it has not run any further.
        first = None
    header = {
        "format": FORMAT,
        "labels": list(labels),
        "totals": [asdict(told.first), asdict(told.second)],
        "note": told.note,
        "runs": told.runs,
        "first": None if first is None else {"step": first.step, "partner": first.other, "sentence": first.sentence},
        "back": back,
    }
    return pack(header, columns)


def partner(to: Any, step: int) -> int:
    """The step of the other trace to show beside a step: its partner, or that of the nearest earlier step with one.

    ``to``: one side of `kvviz.explain.compare.align`.
    ``step``: -1: before the first.
    """
    earlier = to[: step + 1]
    paired = earlier[earlier >= 0]
    return int(paired[-1]) if len(paired) else -1


def _among(to: Any, own: Sequence[int], others: Sequence[int]) -> np.ndarray:
    """Partners of the steps that are told, by place among those of the other side; -1 where it is not told."""
    partners, told = np.asarray(to, np.int64)[np.asarray(own, np.int64)], np.asarray(others, np.int64)
    places = np.searchsorted(told, partners)
    found = np.isin(partners, told)
    return np.where(found, places, -1)
