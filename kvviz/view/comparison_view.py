"""A comparison to look at: a table as text and HTML, and a figure of bars and live-memory curves."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from kvviz.report.steps_table import Table
from kvviz.trace.units import short, size, visible
from kvviz.view.chart_axes import axes_and_theme, finish, hues, legend, say, thinned, thousands, unit_of
from kvviz.view.plots import live_bytes

COLUMNS = (
    ("name", "", False, 40),
    ("peak", "peak", True, 12),
    ("above_weights", "above weights", True, 14),
    ("allocated", "allocated", True, 12),
    ("written", "written", True, 12),
    ("copied", "copied", True, 12),
    ("moved_outside", "moved outside", True, 14),
    ("in_place", "in place", True, 8),
    ("missed", "missed", True, 8),
    ("missed_bytes", "spent by missed", True, 15),
    ("cannot_bytes", "by what cannot", True, 15),
    ("steps", "steps", True, 8),
    ("results", "results", False, 120),
)
_BARS = (
    ("above_weights", "peak above weights"),
    ("allocated", "allocated"),
    ("written", "written"),
    ("copied", "copied"),
    ("moved_outside", "moved outside"),
)
# Beside its hue each curve has its own dashes; five hues and four kinds of dashes tell twenty curves apart.
_DASHES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)))
_MOST_MARKS = 24
_NAME = 32


def comparison_table(comparison: Any) -> Table:
    """The rows of a comparison as a table that prints and shows itself in a notebook."""
    alike = _alike(comparison)
    columns = tuple(c for c in _used(COLUMNS, comparison) if not alike or c[0] not in ("steps", "results"))
    rows = [{k: _results(row) if k == "results" else getattr(row, k) for k, *_ in columns} for row in comparison]
    return Table(rows, columns, f"Comparison: {alike}" if alike else "Comparison")


def comparison_text(comparison: Any) -> str:
    """The table as text, and under it where each row first parts from the first one."""
    alike = _alike(comparison)
    return "\n".join([comparison_table(comparison).text(), *([alike] if alike else []), *_partings(comparison)])


def comparison_html(comparison: Any) -> str:
    """The same as HTML, with neither script nor style sheet."""
    lines = "".join(f"<p>{escape(line)}</p>" for line in _partings(comparison))
    return f"<div>{comparison_table(comparison).html()}{lines}</div>"


def plot_comparison(comparison: Any, figure: Any = None) -> Any:
    """Bars of what each row costs, each kind of bytes on a scale of its own, over the live memory of all rows.

    ``figure``: an empty one to draw on; a new one by default.
    """
    rows, traces = comparison.rows, list(comparison.traces.values())
    # A dollar sign would begin a formula.
    names = [short(row.name, _NAME).replace("$", r"\$") for row in rows]
    bars = _used(_BARS, comparison)
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
    _curves(figure.add_subplot(grid[1, :]), names, traces, ", dry runs" if comparison.dry else "")
    return figure


def weights_of(traces: Sequence[Any]) -> int:
    """Bytes of weights that all traces hold, whatever their rules."""
    return min((sum(s.capacity for s in t.log.storages if s.origin == "weights") for t in traces), default=0)


def _used(columns: tuple[Any, ...], comparison: Any) -> tuple[Any, ...]:
    """Columns that have something to say: most of what is compared moves nothing between runs."""
    moved = any(row.moved_outside for row in comparison.rows)
    return tuple(column for column in columns if moved or column[0] != "moved_outside")


def _alike(comparison: Any) -> str:
    """What all rows have in common and no column has to repeat: as many steps, and equal results or none."""
    rows = list(comparison)
    steps, results = {row.steps for row in rows}, {_results(row) for row in rows}
    if len(rows) < 2 or len(steps) > 1 or len(results) > 1 or any(row.equal is False for row in rows):
        return ""
    return f"{steps.pop():,} steps each, {'results equal' if comparison.equal else results.pop()}"


def _results(row: Any) -> str:
    """What the table says of a row's results."""
    if row.equal:
        return f"equal ({row.difference})" if row.difference else "equal"
    return row.difference


def _partings(comparison: Any) -> list[str]:
    lines = []
    for row in comparison.rows[1:]:
        found = comparison.first_difference(0, row.name)
        told = f"at {found.sentence}" if found else "nowhere: every op ran in the same order and way"
        lines.append(f"{comparison.rows[0].name} and {row.name} part {visible(told)}")
    return lines


def _bars(ax: Any, rows: Sequence[Any], key: str, title: str) -> None:
    """One kind of bytes: a bar for each row with its number behind it."""
    ax, theme = axes_and_theme(ax, (2.0, 2.0))
    values = [getattr(row, key) for row in rows]
    for place, (value, hue) in enumerate(zip(values, hues(theme))):
        ax.barh(place, value, height=0.62, color=hue)
        ax.annotate(
            size(value),
            (value, place),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=theme.ink,
        )
    # The longest number stands behind the longest bar.
    ax.set_xlim(0, (max(values, default=0) or 1) * 1.75)
    ax.set_xticks([])
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(axis="y", length=0, labelleft=ax.get_subplotspec().is_first_col(), labelcolor=theme.ink)
    finish(ax, theme, "", "", title)


def _curves(ax: Any, names: Sequence[str], traces: Sequence[Any], what: str) -> None:
    """Bytes alive at every step, one curve a trace."""
    ax, theme = axes_and_theme(ax, (9.0, 2.6))
    curves = [live_bytes(trace) for trace in traces]
    top = max((curve.max(initial=0.0) for curve in curves), default=0.0)
    unit, scale = unit_of(top)
    weights = weights_of(traces)
    floor = weights / scale if 2 * weights > top > 0 else 0.0
    for i, (curve, hue) in enumerate(zip(curves, hues(theme))):
        steps, _, high = thinned(curve / scale)
        look = {"color": hue, "linestyle": _DASHES[i % len(_DASHES)], "linewidth": 1.4, "label": names[i]}
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
    note = f" (axis starts at the weights, {size(weights)})" if floor else ""
    finish(ax, theme, "step", f"live bytes [{unit}]", f"Memory{what}{note}")
