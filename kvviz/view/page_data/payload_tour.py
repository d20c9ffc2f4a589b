"""A tour as the page reads it: every stop with its step and the highlighted part of the page."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from kvviz.errors import KvvizError
from kvviz.trace.guided_tour import Tour, TourStop
from kvviz.trace.recording import Trace

# What a stop may highlight: the class of a pane, or the tab to open for it.
PANES = {
    "toolbar": ("class", "kv-bar"),
    "findings": ("class", "kv-findings"),
    "words": ("class", "kv-story"),
    "graph": ("class", "kv-graph"),
    "inspector": ("class", "kv-this"),
    "frontier": ("class", "kv-frontier"),
    "map": ("class", "kv-space"),
    "timeline": ("class", "kv-timeline"),
    "steps": ("tab", "steps"),
    "buffers": ("tab", "buffers"),
    "caches": ("tab", "caches"),
    "values": ("tab", "values"),
    "lanes": ("tab", "clock"),
    "hazards": ("tab", "hazards"),
}


def keep_tour(trace: Trace, tour: Tour, runs_on: bool = False) -> None:
    """Give a trace a tour. Raises `KvvizError`, without changing the trace, if it is no tour, or a stop names a missing
    pane or step. ``runs_on``: its steps may come later."""
    if not isinstance(tour, Tour):
        raise KvvizError(f"tour= is a kvviz.lessons.Tour, not {tour!r}")
    for number, stop in enumerate(tour.stops):
        _check_names(number, stop)
        if not runs_on:
            step_of(trace, number, stop)
    trace.tour = tour


def tour_header(trace: Trace) -> dict[str, Any]:
    """The payload header's entry of the trace's tour; empty without one. Raises `KvvizError` if a stop names a missing
    pane or step."""
    tour: Tour | None = trace.tour
    if tour is None:
        return {}
    return {"tour": {"title": tour.title, "stops": [_stop(trace, i, stop) for i, stop in enumerate(tour.stops)]}}


def tour_runs(trace: Trace) -> frozenset[int]:
    tour: Tour | None = trace.tour
    at = [step_of(trace, i, stop) for i, stop in enumerate(tour.stops)] if tour is not None else []
    return frozenset(
        run.index for run in trace.runs for step in at if step is not None and run.first <= step < run.last
    )


def step_of(trace: Trace, number: int, stop: TourStop) -> int | None:
    """The step that a stop goes to; None if the cursor stays, or if the step has not run yet."""
    size = len(trace.steps)
    if stop.query:
        found = trace.find(stop.query)
        if not len(found) and trace.live is None:
            raise KvvizError(f"stop {number + 1} of the tour goes to {stop.query!r}, which finds no step of {trace!r}")
        return int(found.numbers[0]) if len(found) else None
    if stop.step is None:
        return None
    step = stop.step + size if stop.step < 0 else stop.step
    if trace.live is None and not 0 <= step < size:
        raise KvvizError(f"stop {number + 1} of the tour goes to step {stop.step}; the trace has {size:,} steps")
    return step


def _check_names(number: int, stop: TourStop) -> None:
    if stop.pane and stop.pane not in PANES:
        near = get_close_matches(stop.pane, list(PANES), 1)
        known = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(PANES)}"
        raise KvvizError(f"stop {number + 1} of the tour highlights {stop.pane!r}; {known}")


def _stop(trace: Trace, number: int, stop: TourStop) -> dict[str, Any]:
    _check_names(number, stop)
    kind, place = PANES[stop.pane] if stop.pane else ("", "")
    return {
        "caption": stop.caption,
        "step": step_of(trace, number, stop),
        "waits": bool(stop.query),
        "tab": place if kind == "tab" else "",
        "pane": place if kind == "class" else "",
    }
