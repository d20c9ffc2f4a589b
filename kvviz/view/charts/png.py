"""A still PNG of a trace, the one form that every viewer shows: memory, caches, and the last steps in words."""

from __future__ import annotations

import io
from typing import Any

from kvviz.explain.sentences import sentence
from kvviz.report.palette import LIGHT
from kvviz.trace.recording import Trace
from kvviz.trace.units import short, size
from kvviz.view.charts import plots
from kvviz.view.charts.chart_axes import points_of, text_width
from kvviz.view.charts.many_traces import LEGEND_COLUMNS

WIDTH, DPI = 9.0, 100
LEFT, RIGHT, HEAD, GAP = 0.72, 0.16, 0.62, 0.5
_MEMORY, _CACHE, _LEGEND, _LINE = 1.7, 1.5, 0.25, 0.23
_STEPS = 8
# For sentences: maximum characters, font size in points, indent as a share of the width, and the share of the rest that
# they may take. Letters are drawn on whole pixels, up to a fiftieth wider than measured.
_MOST, _SIZE, _INDENT, _SLACK = 122, 8.5, 0.06, 0.98


def still(trace: Trace, step: int | None = None, cache: int | None = None) -> bytes:
    """Draw the picture that replaces the debugger when no kernel runs: a PNG of about 900 px width, under 200 kB.
    ``step``: the last step that is described in words; the last of the trace by default. ``cache``: the cache whose
    rows are drawn run by run; by default the row counts of all caches are drawn."""
    from matplotlib.figure import Figure

    steps = len(trace.steps)
    last = steps - 1 if step is None else range(steps)[step]
    shown = [trace.steps[i] for i in range(max(0, last - _STEPS + 1), last + 1)]
    heights = [_MEMORY, *([_CACHE] if trace.caches else []), 0.1 + _LINE * max(len(shown), 1)]
    keys = 1 if cache is not None else -(-plots.cache_groups(trace) // LEGEND_COLUMNS)
    tops = [HEAD, *([GAP + 0.3 + _LEGEND * keys] if trace.caches else []), GAP + 0.25]
    total = sum(heights) + sum(tops) + 0.1
    # A figure made without pyplot is in no list of open figures; fixed positions avoid a layout search.
    figure = Figure(figsize=(WIDTH, total), dpi=DPI, facecolor=LIGHT.pane)
    panes, bottom = [], total
    for top, height in zip(tops, heights):
        bottom -= top + height
        panes.append(figure.add_axes((LEFT / WIDTH, bottom / total, 1 - (LEFT + RIGHT) / WIDTH, height / total)))
    plots.memory(trace, ax=panes[0])
    if last >= 0:
        panes[0].axvline(last, color=LIGHT.ink, linewidth=1.0, linestyle=(0, (2, 2)))
    if trace.caches:
        plots.cache(trace, ax=panes[1]) if cache is None else plots.rows(trace, cache, ax=panes[1])
    _words(panes[-1], shown, trace)
    figure.text(
        LEFT / WIDTH,
        1 - 0.1 / total,
        f"{short(trace.title, 60)} · {steps:,} steps · peak {size(trace.peak_bytes)} · policy {trace.policy.name}",
        ha="left",
        va="top",
        fontsize=11,
        fontweight="bold",
        color=LIGHT.ink,
    )
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=DPI)
    return few_colours(out.getvalue())


def few_colours(png: bytes) -> bytes:
    """The same picture in 256 colours, enough for a chart and a third of the bytes in a saved notebook."""
    from PIL import Image  # matplotlib brings it

    out = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256).save(out, "PNG", optimize=True)
    return out.getvalue()


def _words(ax: Any, shown: list[Any], trace: Trace) -> None:
    ax.set_axis_off()
    ax.set_xlim(0, 1)
    ax.set_ylim(max(len(shown), 1), -1)
    ax.set_title("The last steps", loc="left", fontsize=10, fontweight="bold", color=LIGHT.ink, pad=0)
    room = points_of(ax)[0] * (1 - _INDENT) * _SLACK
    for row, step in enumerate(shown):
        weight = "bold" if row == len(shown) - 1 else "normal"
        ax.text(0.0, row, f"{step.index:,}", ha="left", va="center", fontsize=_SIZE, color=LIGHT.soft)
        text = _cut(sentence(step, trace), room, weight)
        ax.text(_INDENT, row, text, ha="left", va="center", fontsize=_SIZE, color=LIGHT.ink, fontweight=weight)
    if not shown:
        ax.text(0.0, 0, "nothing has run yet", ha="left", va="center", fontsize=_SIZE, color=LIGHT.soft)


def _cut(text: str, room: float, weight: str) -> str:
    limit = _MOST
    while (wide := text_width(cut := short(text, limit), _SIZE, weight)) > room:
        limit = min(int(limit * room / wide), len(cut) - 1)
    return cut
