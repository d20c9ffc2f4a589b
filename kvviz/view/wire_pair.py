"""Two traces side by side, as the page reads it: which steps belong together, and what the change came to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvviz.explain.compare import align, first_difference
from kvviz.explain.summary import counts
from kvviz.view.columns import Columns, pack
from kvviz.view.wire import FORMAT


def pair_payload(before: Any, after: Any, labels: Sequence[str] = ("before", "after"), back: bool = False) -> bytes:
    """What the page has to know of two traces beside their payloads.

    Parameters
    ----------
    before, after : Trace
    labels : pair of str
        What to call them.
    back : bool
        Whether there is a debugger that the page can go back to.
    """
    names = ("the run before", "the run after") if labels[0] == "before" else (labels[0], labels[1])
    first = first_difference(before, after, names)
    columns = Columns()
    for name, steps in zip(("to.after", "to.before"), align(before, after)):
        columns.ints(name, steps)
    header = {
        "format": FORMAT,
        "labels": list(labels),
        "totals": [_totals(before), _totals(after)],
        "first": None if first is None else {"step": first.step, "partner": first.other, "sentence": first.sentence},
        "back": back,
    }
    return pack(header, columns)


def partner(to: Any, step: int) -> int:
    """The step of the other trace to show beside a step: its partner, or that of the nearest earlier step with one.

    Parameters
    ----------
    to : ndarray of int
        One side of `kvviz.explain.compare.align`.
    step : int
        -1: before the first.
    """
    earlier = to[: step + 1]
    paired = earlier[earlier >= 0]
    return int(paired[-1]) if len(paired) else -1


def _totals(trace: Any) -> dict[str, int]:
    count = counts(trace)
    return {
        "peak": trace.peak_bytes,
        "copied": trace.bytes_copied,
        "allocated": trace.bytes_allocated,
        "in_place": count.in_place,
        "missed": count.missed,
        "steps": len(trace.steps),
    }
