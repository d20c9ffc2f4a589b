"""The rows of one cache over all runs as a chart: how it grows, where its window is, and when it wraps."""

from __future__ import annotations

from typing import Any

from kvviz.errors import KvvizError
from kvviz.report.palette import STATES as LOOKS
from kvviz.report.palette import Theme, mix
from kvviz.trace.recording import Trace
from kvviz.trace.units import decodes, short
from kvviz.view.charts.chart_axes import axes_and_theme, cache_hue, finish, hue_of, legend, say, whole_numbers
from kvviz.view.charts.heat_cells import STATES, cells

# Hatches, so that colour alone carries no meaning.
_HATCH = {"stale": "////", "outside": "xxxx", "wrapped": "....", "reserved": "", "valid": "", "written": ""}
_ORDER = ("reserved", "valid", "wrapped", "outside", "stale", "written")


def rows(trace: Trace, cache: int | str = 0, ax: Any = None, *, entry: int = 0) -> Any:
    """What every row of a cache held after every run: runs from top to bottom, rows from left to right.

    ``cache``: place in ``trace.caches``, or name.
    ``entry``: number of the batch entry.

    Raises `KvvizError`: if there is no such cache.
    """
    from matplotlib.collections import PolyCollection

    ax, theme = axes_and_theme(ax, (8.0, 3.4))
    chosen = _find(trace, cache)
    boxes: dict[str, list[Any]] = {state: [] for state in _ORDER}
    runs = len(chosen.runs)
    wide = 1
    for run in range(runs):
        for start, stop, number, fresh, _ in cells(chosen, run, entry):
            name = STATES[number]
            high = 0.5 if fresh and name != "written" else 1.0
            box = [(start, run), (stop, run), (stop, run + high), (start, run + high)]
            boxes[name].append(box)
            if high < 1:
                # The lower half shows that this run wrote it.
                boxes["written"].append([(x, y + 0.5) for x, y in box])
            wide = max(wide, stop)
    shown = [state for state in _ORDER if boxes[state]]
    for state in shown:
        face, edge = _inks(state, theme)
        look: dict[str, Any] = {"facecolor": face, "edgecolor": edge, "linewidth": 0.0 if runs > 60 else 0.4}
        ax.add_collection(PolyCollection(boxes[state], hatch=_HATCH[state], **look))
    ax.set_xlim(0, wide)
    ax.set_ylim(max(runs, 1), 0)
    whole_numbers(ax, "both")
    if shown:
        legend(ax, theme, columns=len(shown), handles=([_swatch(state, theme) for state in shown], shown))
    else:
        say(ax, theme, "a state has no rows" if chosen.axis is None else "nothing is known of its rows")
    word = "decode step" if decodes(trace) else "run"
    finish(ax, theme, "row", word, f"Rows of {short(chosen.name, 40)} after every {word}")
    return ax


def _find(trace: Trace, cache: int | str) -> Any:
    names = [one.name for one in trace.caches]
    if isinstance(cache, str) and cache in names:
        return trace.caches[names.index(cache)]
    if isinstance(cache, int) and -len(names) <= cache < len(names):
        return trace.caches[cache]
    raise KvvizError(f"there is no cache {cache!r}; the trace has {', '.join(map(repr, names)) or 'none'}")


def _inks(state: str, theme: Theme) -> tuple[str, str]:
    """The fill and border colours of a state."""
    view = cache_hue(theme)
    missed = hue_of(LOOKS["missed"], theme)
    return {
        "reserved": (mix(theme.soft, theme.pane, 0.14), theme.line),
        "valid": (mix(view, theme.pane, 0.55), view),
        "wrapped": (mix(view, theme.pane, 0.15), view),
        "outside": (mix(theme.soft, theme.pane, 0.18), theme.soft),
        "stale": (mix(missed, theme.pane, 0.2), missed),
        "written": (theme.accent, theme.ink),
    }[state]


def _swatch(state: str, theme: Theme) -> Any:
    from matplotlib.patches import Patch

    face, edge = _inks(state, theme)
    return Patch(facecolor=face, edgecolor=edge, hatch=_HATCH[state], linewidth=0.8)
