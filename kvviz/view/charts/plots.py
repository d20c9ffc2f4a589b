"""Charts of a trace with matplotlib: memory over the steps, caches over the runs, bytes copied, buffer lifetimes.

Each function draws on the given Axes, or makes a figure of its own, and returns the Axes. Colours follow the background
of the Axes, so a chart on a dark figure uses light colours. No other state of matplotlib is changed.
`hidden_pair_svg` gives the text of an SVG document instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.report.palette import OWNERS, STATES, Theme
from kvviz.trace.model_or_trace import TraceLike, as_trace
from kvviz.trace.recording import Trace
from kvviz.trace.units import buffer, in_kept_runs, keeps_all, run_label, short, size, weight_bytes
from kvviz.view.charts import many_traces
from kvviz.view.charts.cell_plot import cells
from kvviz.view.charts.chart_axes import (
    axes_and_theme,
    beside,
    break_mark,
    finish,
    hue_of,
    legend,
    live_bytes,
    points_of,
    say,
    text_width,
    thinned,
    thousands,
    unit_of,
    whole_numbers,
)
from kvviz.view.charts.heat_cells import rows
from kvviz.view.drawing.hazard_picture import hidden_pair_svg

__all__ = ["cache", "cells", "copies", "hidden_pair_svg", "lifetimes", "memory", "protocols", "rows"]

_MOST_MARKS = 24


def memory(trace: TraceLike | many_traces.Traces, ax: Any = None) -> Any:
    """Bytes alive at every step, with the peak and the start of every run marked.

    If weights are most of the memory, the axis starts at their size and says so. Otherwise the changes would be too
    small to see.

    Parameters
    ----------
    trace : Trace, mapping of str to Trace, or Comparison
        For several traces, the peaks of their runs are drawn, without the weights.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
    """
    traces = many_traces.traces_of(trace)
    if traces is not None:
        return many_traces.held(traces, ax)
    trace = as_trace(trace, "kvviz.plot.memory")
    ax, theme = axes_and_theme(ax, (8.0, 3.0))
    live = live_bytes(trace)
    unit, scale = unit_of(live.max(initial=0.0))
    steps, low, high = thinned(live / scale)
    ax.fill_between(steps, 0, high, step="post", color=theme.accent, alpha=0.14, linewidth=0)
    ax.step(steps, high, where="post", color=theme.accent, linewidth=1.3)
    if low is not high:
        ax.step(steps, low, where="post", color=theme.accent, linewidth=0.5, alpha=0.6)
    top = high.max(initial=0.0)
    weights = weights_below(trace, live)
    floor = weights / scale
    ax.set_xlim(0, max(len(live), 1))
    thousands(ax)
    ax.set_ylim(floor, (top + (top - floor) * 0.25) or 1.0)
    _run_marks(ax, trace, theme)
    if len(live):
        at = int(live.argmax())
        node = short(trace.steps[at].op_type, 24)
        right = at > len(live) * 0.6
        ax.plot([at], [top], "o", color=theme.ink, markersize=4, clip_on=False)
        shift, side = ((-8, 6), "right") if right else ((8, 6), "left")
        peak = f"peak {size(live[at])} · step {at:,}, {node}"
        beside(ax, peak, (at, top), shift, 9, ha=side, va="bottom", color=theme.ink)
    if floor:
        break_mark(ax, theme)
    note = f" (axis starts at the weights, {size(weights)})" if floor else ""
    note += "" if keeps_all(trace) else f", {in_kept_runs(trace)}"
    finish(ax, theme, "step", f"live bytes [{unit}]", f"Memory of {short(trace.title, 50)}{note}")
    return ax


def cache(trace: TraceLike | many_traces.Traces, ax: Any = None) -> Any:
    """Rows reserved and rows valid after every run, for each cache of a trace; equal caches are drawn once.

    Parameters
    ----------
    trace : Trace, mapping of str to Trace, or Comparison
        With caches. Of several traces, the first cache of each is drawn.
    ax : matplotlib Axes, optional

    Returns
    -------
    Axes
    """
    traces = many_traces.traces_of(trace)
    if traces is not None:
        return many_traces.occupancy(traces, ax)
    trace = as_trace(trace, "kvviz.plot.cache")
    curves = {c.name: many_traces.rows_of(c) for c in trace.caches if c.runs}
    nothing = "this trace has no caches"
    return many_traces.rows_chart(ax, curves, {"": trace}, _first_of, nothing)


def copies(trace: TraceLike | many_traces.Traces, ax: Any = None, *, closed: Any = None) -> Any:
    """Bytes copied, and other bytes written, by every run (every token of a decode).

    Parameters
    ----------
    trace : Trace, mapping of str to Trace, or Comparison
        For several traces, the bytes that were copied to carry their caches are drawn.
    ax : matplotlib Axes, optional
    closed : sequence of float, callable, or mapping of str to these, optional
        The calculated number of bytes copied: one for every run, or a function of the run's number; for several traces,
        by trace name. Drawn as a thin dashed line.

    Returns
    -------
    Axes
    """
    traces = many_traces.traces_of(trace)
    if traces is not None:
        return many_traces.copied(traces, ax, closed)
    trace = as_trace(trace, "kvviz.plot.copies")
    ax, theme = axes_and_theme(ax, (8.0, 3.0))
    copied = np.array([run.bytes_copied for run in trace.runs], float)
    written = np.array([run.bytes_written for run in trace.runs], float)
    unit, scale = unit_of(written.max(initial=0.0))
    runs = np.arange(len(copied))
    missed = hue_of(STATES["missed"], theme)
    ax.bar(runs, copied / scale, width=0.72, color=missed, label=f"copied, {size(copied.sum())} in all")
    rest = np.maximum(written - copied, 0)
    look = {"bottom": copied / scale, "color": theme.soft, "alpha": 0.35}
    ax.bar(runs, rest / scale, width=0.72, label=f"written new, {size(rest.sum())} in all", **look)
    if closed is not None:
        form = many_traces.by_run(closed, len(runs)) / scale
        ax.plot(form, color=theme.ink, **many_traces.CALCULATED, label="copied, by calculation")
    ax.set_ylim(0, (written.max(initial=0.0) / scale) * 1.25 or 1.0)
    ax.set_xlim(-0.6, max(len(runs), 1) - 0.4)
    whole_numbers(ax, "x")
    legend(ax, theme, columns=2)
    title = "Bytes moved by each run" + many_traces.dry([trace])
    finish(ax, theme, many_traces.run_word([trace]), f"bytes [{unit}]", title)
    return ax


def protocols(traces: Any, closed: Any = None, figure: Any = None) -> Any:
    """Compare several ways to keep a cache in one figure: rows, memory and copies, run by run.

    Parameters
    ----------
    traces : mapping of str to Trace, or Comparison
    closed : mapping of str to (sequence of float or callable), optional
        As in `copies`.
    figure : matplotlib Figure, optional
        An empty one to draw on; a new one by default.

    Returns
    -------
    Figure

    Examples
    --------
    >>> plot.protocols({"concat": grown, "reserved": appended})                # doctest: +SKIP
    """
    if figure is None:
        from matplotlib import pyplot as plt

        figure = plt.figure(figsize=(8.0, 8.4), layout="constrained")
    first, second, third = figure.subplots(3, 1, sharex=True)
    cache(traces, first)
    memory(traces, second)
    copies(traces, third, closed=closed)
    for ax in (first, second):
        ax.set_xlabel("")
    return figure


def lifetimes(trace: TraceLike, ax: Any = None, limit: int = 60) -> Any:
    """Lifetimes of the largest buffers, in steps; the colour and the letter of a bar show the owner.

    Parameters
    ----------
    trace : Trace
    ax : matplotlib Axes, optional
    limit : int
        Number of buffers, largest first; weights are left out, since they are never freed.

    Returns
    -------
    Axes
    """
    trace = as_trace(trace, "kvviz.plot.lifetimes")
    end = max(len(trace.steps), 1)
    shown = [s for s in trace.storages if s.origin != "weights" and s.capacity]
    shown = sorted(shown, key=lambda s: (-s.capacity, s.id))[:limit]
    shown.sort(key=lambda s: (s.born, s.id))
    ax, theme = axes_and_theme(ax, (8.0, min(max(2.2, 1.2 + 0.17 * len(shown)), 12.0)))
    widest = max((s.capacity for s in shown), default=1)
    used: dict[str, Any] = {}
    for origin in dict.fromkeys(s.origin for s in shown):
        look = OWNERS[origin]
        hue = hue_of(look, theme)
        rows = [(y, s) for y, s in enumerate(shown) if s.origin == origin]
        starts = np.array([max(s.born, 0) for _, s in rows])
        stops = np.array([end if s.freed is None else s.freed + 1 for _, s in rows])
        bars = ax.barh(
            [y for y, _ in rows],
            np.maximum(stops - starts, 0.5),
            left=starts,
            height=[0.3 + 0.5 * (s.capacity / widest) ** 0.5 for _, s in rows],
            color=f"{hue}66",
            edgecolor=hue,
            linewidth=0.9,
            linestyle={"dashed": "--", "dotted": ":"}.get(look.border, "-"),
        )
        used[origin] = bars[0]
    ax.set_xlim(0, end)
    thousands(ax)
    ax.set_ylim(len(shown) - 0.4 if shown else 1, -0.6)
    # A name needs nine points; title and legend take some of the height.
    every = max(-(-len(shown) // max(int(points_of(ax)[1] * 0.8 / 9), 1)), 1)
    names = [f"{buffer(s.id)} · {size(s.capacity)}" for s in shown]
    ax.set_yticks(range(0, len(shown), every), names[::every], fontsize=7)
    _run_marks(ax, trace, theme, text=False)
    if used:
        labels = [f"{OWNERS[o].letter} {OWNERS[o].about}" for o in used]
        legend(ax, theme, columns=len(used), handles=(list(used.values()), labels))
    else:
        say(ax, theme, "no buffer was made")
    left_out = sum(s.origin != "weights" and bool(s.capacity) for s in trace.storages) - len(shown)
    title = "Lives of buffers" + (f", the {len(shown)} largest of {len(shown) + left_out:,}" if left_out else "")
    finish(ax, theme, "step", "", title + many_traces.dry([trace]))
    return ax


def cache_groups(trace: Trace) -> int:
    """How many lines the chart of a trace's caches has: equal caches share one."""
    return len({(tuple(r.capacity for r in c.runs), tuple(r.valid for r in c.runs)) for c in trace.caches if c.runs})


def _first_of(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def weights_below(trace: Trace, live: np.ndarray) -> int:
    """Bytes of weights that a curve of live bytes is drawn above: all of them, or 0 if they are less than half."""
    weights = weight_bytes(trace)
    return weights if 2 * weights > live.max(initial=0.0) else 0


def _run_marks(ax: Any, trace: Trace, theme: Theme, text: bool = True) -> None:
    """Draw a thin line where each run with steps begins; if there are many, label every second, fifth … one."""
    runs = [run for run in trace.runs if run.last > run.first]
    if len(trace.runs) < 2:
        return
    every = next(n for n in (1, 2, 5, 10, 20, 50, 100, 500, 10**9) if len(runs) <= n * _MOST_MARKS)
    for run in runs[::every]:
        ax.axvline(run.first, color=theme.line, linewidth=0.8, zorder=0)
    if not text:
        return
    named = next(n for n in (1, 2, 5, 10, 20, 50, 100, 500, 10**9) if len(runs) <= n * 12)
    scale, free = points_of(ax)[0] / max(len(trace.steps), 1), 0.0
    for run in runs[::named]:
        if run.first * scale < free:
            continue
        word = short(run.text.strip(), 10) if run.text.strip() else run_label(trace, run.index).removeprefix("decode ")
        free = run.first * scale + text_width(word, 7) + 6
        where: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "annotation_clip": True}
        beside(ax, word, (run.first, 0), (3, 3), 7, color=theme.soft, **where)
