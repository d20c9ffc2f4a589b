"""A figure of a comparison: bars of what each row costs, over live-memory curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvviz.explain.figures import Row
from kvviz.trace.recording import Trace
from kvviz.trace.units import short, size, weight_bytes
from kvviz.view.charts.chart_axes import (
    axes_and_theme,
    beside,
    break_mark,
    finish,
    hues,
    legend,
    say,
    thinned,
    thousands,
    unit_of,
)
from kvviz.view.charts.many_traces import DASHES, dry
from kvviz.view.charts.plots import live_bytes

_BARS = (
    ("above_weights", "peak above weights"),
    ("allocated", "allocated"),
    ("written", "written"),
    ("copied", "copied"),
    ("moved_outside", "moved outside"),
)
_MOST_MARKS = 24
_NAME = 32


def plot_comparison(rows: Sequence[Row], traces: Sequence[Trace], figure: Any = None) -> Any:
    """Draw bars of what each row costs, with a scale for each kind of bytes, above the live memory of all rows.
    ``figure``: an empty one to draw on; a new one by default."""
    # A dollar sign would begin a formula.
    names = [short(row.name, _NAME).replace("$", r"\$") for row in rows]
    bars = used(_BARS, rows)
    high = 0.75 + 0.3 * max(len(rows), 1)
    if figure is None:
        from matplotlib import pyplot as plt

        wide = 7.6 + 0.08 * max(map(len, names), default=0) + 1.6 * (len(bars) - 4)
        figure = plt.figure(figsize=(wide, 3.1 + high), layout="constrained")
    grid = figure.add_gridspec(2, len(bars), height_ratios=[high, 2.6])
    first = None
    for i, (key, title) in enumerate(bars):
        ax = figure.add_subplot(grid[0, i], sharey=first)
        _bars(ax, rows, key, title)
        first = first or ax
    if first is not None and rows:
        first.set_yticks(range(len(rows)), names)
        first.set_ylim(len(rows) - 0.5, -0.5)
    _curves(figure.add_subplot(grid[1, :]), names, traces)
    return figure


def weights_of(traces: Sequence[Trace]) -> int:
    return min(map(weight_bytes, traces), default=0)


def used(columns: tuple[Any, ...], rows: Sequence[Row]) -> tuple[Any, ...]:
    """Columns that are not empty: most comparisons move nothing between runs."""
    moved = any(row.moved_outside for row in rows)
    return tuple(column for column in columns if moved or column[0] != "moved_outside")


def _bars(ax: Any, rows: Sequence[Row], key: str, title: str) -> None:
    ax, theme = axes_and_theme(ax, (2.0, 2.0))
    values = [getattr(row, key) for row in rows]
    for place, (value, hue) in enumerate(zip(values, hues(theme))):
        ax.barh(place, value, height=0.62, color=hue)
        beside(ax, size(value), (value, place), (3, 0), 8, va="center", color=theme.ink)
    # The longest number follows the longest bar.
    ax.set_xlim(0, (max(values, default=0) or 1) * 1.75)
    ax.set_xticks([])
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(axis="y", length=0, labelleft=ax.get_subplotspec().is_first_col(), labelcolor=theme.ink)
    finish(ax, theme, "", "", title)


def _curves(ax: Any, names: Sequence[str], traces: Sequence[Trace]) -> None:
    ax, theme = axes_and_theme(ax, (9.0, 2.6))
    curves = [live_bytes(trace) for trace in traces]
    top = max((curve.max(initial=0.0) for curve in curves), default=0.0)
    unit, scale = unit_of(top)
    weights = weights_of(traces)
    floor = weights / scale if 2 * weights > top > 0 else 0.0
    for i, (curve, hue) in enumerate(zip(curves, hues(theme))):
        steps, _, high = thinned(curve / scale)
        look = {"color": hue, "linestyle": DASHES[i % len(DASHES)], "linewidth": 1.4, "label": names[i]}
        ax.stairs(high, [*steps, len(curve)], baseline=None, **look)
    if traces and len(traces[0].runs) <= _MOST_MARKS:
        for run in traces[0].runs[1:]:
            ax.axvline(run.first, color=theme.line, linewidth=0.8, zorder=0)
    steps_in_all = max(map(len, curves), default=0)
    ax.set_xlim(0, max(steps_in_all, 1))
    ax.set_ylim(floor, (top / scale + (top / scale - floor) * 0.1) or 1.0)
    thousands(ax)
    if steps_in_all:
        legend(ax, theme, columns=min(len(curves), 4))
    else:
        say(ax, theme, "nothing ran")
    if floor:
        break_mark(ax, theme)
    note = f" (axis starts at the weights, {size(weights)})" if floor else ""
    finish(ax, theme, "step", f"live bytes [{unit}]", f"Memory{dry(traces)}{note}")
