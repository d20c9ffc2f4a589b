"""The cells of a KV cache over time as a chart: calls from top to bottom, cells from left to right.

The hue of a cell shows its sequence, hatches and borders show its state. Colour alone carries no meaning: every state
has a hatch or a border of its own, and a word below the position.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np

from kvviz.errors import KvvizError
from kvviz.ggml.kv_cache import CELL_STATES, DIRTY, FREE, LIVE, SHIFTED, CellMap, Change, KVCache
from kvviz.report.palette import DARK, LIGHT, OWNERS, STATES, Theme, mix
from kvviz.trace.units import short
from kvviz.view.charts.chart_axes import axes_and_theme, finish, hue_of, legend, points_of, text_width

_HUES = (OWNERS["pool"], STATES["missed"], OWNERS["run"], OWNERS["donated"], STATES["foreign"], OWNERS["caller"])

HATCHES = {FREE: "", LIVE: "", SHIFTED: "\\\\\\\\", DIRTY: "////"}

DASHED = frozenset({SHIFTED})
"""States in which the cell and its row disagree."""

MARKS = {SHIFTED: "back", DIRTY: "hatch"}

NAMES = tuple(name for name, _ in CELL_STATES)


class Face(NamedTuple):
    fills: tuple[str, ...]
    edge: str
    ink: str
    label: str
    below: str


def hue(seq: int, theme: Theme) -> str:
    """The hue of a sequence. Hues repeat after six; every cell also names its sequences."""
    return hue_of(_HUES[seq % len(_HUES)], theme)


def page_looks() -> dict[str, Any]:
    """What the page needs to draw cells: sequence hues for both themes, and each state's mark, border and meaning."""
    return {
        "hues": [[hue(seq, theme) for seq in range(len(_HUES))] for theme in (LIGHT, DARK)],
        "states": [
            {"name": name, "about": about, "mark": MARKS.get(state, ""), "dashed": state in DASHED}
            for state, (name, about) in enumerate(CELL_STATES)
        ],
    }


def face(cells: CellMap, cell: int, theme: Theme) -> Face:
    state, turned, seqs = int(cells.states[cell]), int(cells.turned[cell]), sorted(cells.seqs[cell])
    if state == FREE:
        return Face((theme.pane,), theme.line, theme.soft, "", "")
    if state == DIRTY:
        return Face((mix(theme.soft, theme.pane, 0.12),), theme.soft, theme.soft, "", f"key {turned}")
    fills = tuple(mix(hue(seq, theme), theme.pane, 0.42) for seq in seqs)
    below = f"key {turned}" if state == SHIFTED else "s" + ",".join(map(str, seqs))
    return Face(fills, hue(seqs[0], theme), theme.ink, str(int(cells.pos[cell])), below)


_MOST_CALLS, _MOST_CELLS = 60, 320
# Points that a cell needs for words below its position, and the smallest and largest font of a position.
_WORDED = (20.0, 19.0)
_SMALL, _LARGE = 5.5, 8.5
_WORDS, _LINES = 46, 3  # characters of a line beside the map, and lines at most


def cells(
    cache: KVCache, ax: Any = None, *, last: int | None = None, first: int | None = None, words: bool = True
) -> Any:
    """Draw which token every cell held after every call, and what its row of K contained.

    The colour of a cell shows its sequences, and its label the position; below it is the sequence, or what is wrong
    with its key. Hatched: the row and the cell do not agree, or no sequence holds the bytes any more. A line at the
    bottom of a cell means that the call wrote its key; a wedge shows where the next search begins.

    Parameters
    ----------
    cache : KVCache
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    last : int, optional
        Draw only this many of the last calls.
    first : int, optional
        The first cell that is drawn. By default all cells up to the last one that was ever used; of more than 320 the
        last ones.
    words : bool
        Describe beside the map what each call did.

    Returns
    -------
    Axes

    Examples
    --------
    >>> kvviz.plot.cells(cache)                                              # doctest: +SKIP
    """
    if last is not None and last < 1:
        raise KvvizError(f"cannot draw the last {last} calls; give last=1 or more")
    history = cache.history[-min(last or _MOST_CALLS, _MOST_CALLS) :]
    drawn = drawn_cells(history, first)
    across = len(drawn)
    ax, theme = axes_and_theme(ax, (8.0, min(1.1 + 0.37 * len(history), 14.0)))
    ax.set_xlim(0, across)
    ax.set_ylim(len(history), 0)
    beside = 0.62 if words else 1.0
    per_cell = points_of(ax)[0] * beside / across, points_of(ax)[1] * 0.85 / len(history)
    _draw(ax, theme, history, drawn, per_cell)
    _name_axes(ax, history, drawn)
    if words:
        _say_calls(ax, theme, history)
    _legend(ax, theme, history)
    left_out = len(cache.history) - len(history)
    title = f"Cells of {short(cache.name, 40)}, {cache.size} of them"
    if across < cache.size:
        part = f"{drawn.start} to {drawn.stop - 1}" if drawn.start else f"the first {across}"
        title = f"Cells of {short(cache.name, 40)}, {part} of {cache.size:,}"
    title += f", the last {len(history)} calls" if left_out else ""
    finish(ax, theme, "cell", "", title)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    return ax


def picture(cache: KVCache) -> str:
    """The chart as an image in HTML, for a notebook; its text is what the last call did."""
    from matplotlib.figure import Figure

    # A figure made without pyplot is in no list of open figures.
    figure = Figure(figsize=(9.0, min(1.3 + 0.37 * len(cache.history), 14.0)), dpi=100, layout="constrained")
    cells(cache, figure.add_subplot())
    out = io.BytesIO()
    figure.savefig(out, format="png")
    text = f"{cache.name}: {cache.size:,} cells. {cache.history[-1].text}"
    source = base64.b64encode(out.getvalue()).decode()
    return (
        f'<img alt="{escape(text)}" title="{escape(text)}" style="max-width:100%" src="data:image/png;base64,{source}">'
    )


def drawn_cells(history: Sequence[Change], first: int | None = None) -> range:
    """Cells that are drawn: all, or those up to the last one that was ever used."""
    size = len(history[-1].cells.pos)
    ever = np.any([change.cells.states != FREE for change in history], axis=0)
    used = int(np.flatnonzero(ever).max(initial=-1)) + 1
    stop = size if size <= 24 else min(max(used + 1, 8), size)
    if first is None:
        return range(max(stop - _MOST_CELLS, 0), stop)
    if not 0 <= first < size:
        raise KvvizError(f"there is no cell {first}; the cache has cells 0 to {size - 1}")
    return range(first, min(max(stop, first + 8), size, first + _MOST_CELLS))


def _draw(ax: Any, theme: Theme, history: Sequence[Change], drawn: range, per_cell: tuple[float, float]) -> None:
    from matplotlib.collections import LineCollection, PolyCollection

    boxes: dict[tuple[Any, ...], list[Any]] = {}
    lines: list[Any] = []
    digits = len(str(max(int(change.cells.pos.max()) for change in history)))
    points = min(_LARGE, 1.4 * per_cell[0] / max(digits, 2), 0.6 * per_cell[1])
    worded = per_cell[0] >= _WORDED[0] and per_cell[1] >= _WORDED[1]
    for row, change in enumerate(history):
        for left, cell in enumerate(drawn):
            looks = face(change.cells, cell, theme)
            state = int(change.cells.states[cell])
            _add_box(boxes, looks, state, left, row)
            if worded or points >= _SMALL:
                _letter(ax, looks, left, row, worded, points, bool(HATCHES[state]))
            if cell in change.written:
                lines.append([(left + 0.06, row + 0.9), (left + 0.94, row + 0.9)])
        _head(ax, theme, change.cells.head - drawn.start, row, per_cell[0], len(drawn))
        if not worded:
            part = slice(drawn.start, drawn.stop)
            above = history[row - 1].cells.seqs[part] if row else ()
            _name_runs(ax, theme, change.cells.seqs[part], above, row, per_cell[0], points)
    thin = 0.15 if per_cell[0] < 6 else 0.8
    for (fill, edge, hatch, dashed), found in boxes.items():
        style = (0, (3, 2)) if dashed else "-"
        look: dict[str, Any] = {"facecolor": fill, "edgecolor": edge, "linewidth": thin, "linestyle": style}
        ax.add_collection(PolyCollection(found, hatch=hatch, **look))
    ax.add_collection(LineCollection(lines, colors=theme.ink, linewidths=2.0, capstyle="butt", zorder=3))


def _name_runs(
    ax: Any,
    theme: Theme,
    seqs: Sequence[frozenset[int]],
    above: Sequence[frozenset[int]],
    row: int,
    per_cell: float,
    points: float,
) -> None:
    """Label groups of adjacent cells with their sequence if cells are too narrow and the row above differs."""
    start = 0
    for stop in range(1, len(seqs) + 1):
        if stop < len(seqs) and seqs[stop] == seqs[start]:
            continue
        name = "s" + ",".join(map(str, sorted(seqs[start])))
        new = any(seqs[cell] != (above[cell] if above else frozenset()) for cell in range(start, stop))
        if seqs[start] and new and (stop - start) * per_cell >= text_width(name, 5.5):
            # Below the positions, if there are any.
            place = ((start + stop) / 2, row + (0.72 if points >= _SMALL else 0.45))
            ax.text(*place, name, ha="center", va="center", fontsize=5.5, color=theme.ink, zorder=4)
        start = stop


def _add_box(boxes: dict[tuple[Any, ...], list[Any]], looks: Face, state: int, left: float, row: float) -> None:
    """Add a cell: a band for each of its sequences, and one border around them."""

    def box(top: float, high: float) -> list[tuple[float, float]]:
        return [(left + 0.03, top), (left + 0.97, top), (left + 0.97, top + high), (left + 0.03, top + high)]

    hatch, dashed = HATCHES[state], state in DASHED
    many = len(looks.fills) > 1
    high = 0.9 / len(looks.fills)
    for band, fill in enumerate(looks.fills if many else ()):
        boxes.setdefault((fill, "none", "", False), []).append(box(row + 0.05 + band * high, high))
    boxes.setdefault(("none" if many else looks.fills[0], looks.edge, hatch, dashed), []).append(box(row + 0.05, 0.9))


def _letter(ax: Any, looks: Face, left: float, row: float, worded: bool, points: float, hatched: bool) -> None:
    middle: dict[str, Any] = {"ha": "center", "va": "center", "color": looks.ink, "zorder": 4}
    if hatched:
        # Hatches would cross the letters.
        middle["bbox"] = {"facecolor": looks.fills[0], "edgecolor": "none", "pad": 1.0}
    if looks.label:
        high = 0.33 if worded and looks.below else 0.5 if worded else 0.4
        ax.text(left + 0.5, row + high, looks.label, fontsize=points, **middle)
    if worded and looks.below:
        ax.text(left + 0.5, row + (0.69 if looks.label else 0.5), looks.below, fontsize=5.5, **middle)


def _head(ax: Any, theme: Theme, head: int, row: int, per_cell: float, width: int) -> None:
    if 0 <= head <= width:
        half = min(4.0 / per_cell, 1.5)
        ax.fill([head - half, head + half, head], [row + 0.0, row + 0.0, row + 0.2], color=theme.accent, zorder=5, lw=0)


def _name_axes(ax: Any, history: Sequence[Change], drawn: range) -> None:
    every = next(n for n in (1, 2, 4, 8, 16) if len(drawn) / n <= 32)
    ticks = [(left + 0.5, str(drawn[left])) for left in range(0, len(drawn), every)]
    ax.set_xticks([at for at, _ in ticks], [name for _, name in ticks], fontsize=7)
    names = [short(change.call or "new", 24) for change in history]
    ax.set_yticks(np.arange(len(names)) + 0.5, names, fontsize=7.5)
    ax.tick_params(length=0)


def _say_calls(ax: Any, theme: Theme, history: Sequence[Change]) -> None:
    if len(history) > 30:
        return
    for row, change in enumerate(history):
        lines = wrap(change.text, _WORDS)
        if len(lines) > _LINES:
            lines = [*lines[: _LINES - 1], short(" ".join(lines[_LINES - 1 :]), _WORDS)]
        place = {"xycoords": ("axes fraction", "data"), "va": "center", "ha": "left"}
        ax.annotate("\n".join(lines), (1.015, row + 0.5), fontsize=6.8, color=theme.soft, **place)


def _legend(ax: Any, theme: Theme, history: Sequence[Change]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    shown = [change.cells for change in history]
    seqs = sorted({seq for cells_ in shown for held in cells_.seqs for seq in held})
    handles: list[Any] = []
    names = []
    for seq in seqs[:6]:
        own = hue(seq, theme)
        handles.append(Patch(facecolor=mix(own, theme.pane, 0.42), edgecolor=own))
        names.append(f"sequence {seq}")
    for state in (DIRTY, SHIFTED):
        if not any((cells_.states == state).any() for cells_ in shown):
            continue
        style = "--" if state in DASHED else "-"
        handles.append(Patch(facecolor=theme.pane, edgecolor=theme.soft, hatch=HATCHES[state], linestyle=style))
        names.append(NAMES[state])
    if any(change.written for change in history):
        handles.append(Line2D([], [], color=theme.ink, linewidth=2.2))
        names.append("key written")
    handles.append(Line2D([], [], color=theme.accent, marker="v", linestyle="none", markersize=5))
    names.append("head: the next search begins here")
    legend(ax, theme, columns=6, handles=(handles, names))
