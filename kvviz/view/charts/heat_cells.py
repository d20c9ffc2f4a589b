"""The rows of a cache as cells: what each row holds after a run, as spans that views can draw, and all runs as a chart.

Invariant: the cells of a cache after a run cover its rows from 0 to its capacity, without gaps or overlaps, and agree
with `kvviz.caches.cache_heat` on every row.
"""

from __future__ import annotations

from typing import Any

from kvviz.caches import cache_heat as heat_bits
from kvviz.caches.cache_heat import heat, row_states
from kvviz.errors import KvvizError
from kvviz.report.palette import STATES as LOOKS
from kvviz.report.palette import Theme, mix
from kvviz.trace.recording import Trace
from kvviz.trace.records import Owned, Rows
from kvviz.trace.units import decodes, short
from kvviz.view.charts.chart_axes import axes_and_theme, cache_hue, finish, hue_of, legend, say, whole_numbers

STATES = ("reserved", "valid", "written", "stale", "outside", "wrapped")
RESERVED, VALID, WRITTEN, STALE, OUTSIDE, WRAPPED = range(len(STATES))

Cell = tuple[int, int, int, int, int]
"""First row, row after the last, state, 1 if this run wrote them, and the position of the token in the first row, -1 if
there is none."""


def cells(cache: Any, run: int, entry: int = 0) -> tuple[Cell, ...]:
    """What the rows of a cache hold after a run, for one batch entry.

    A row that was never written is ``reserved``. A row that was written but holds no live token is ``stale``. A row
    with a live token is ``outside`` if attention cannot see it, else ``written`` if this run wrote it, else ``wrapped``
    if the token replaced an older one, else ``valid``.

    Empty for a state, and for a run whose caches were not metered. If it is not known which rows a run wrote, the first
    ones count as valid.
    """
    if run >= len(cache.runs) or cache.axis is None:
        return ()
    after = cache.runs[run]
    if _rows_of(cache, run, entry) is None:
        found = [(0, after.valid, VALID, 0, 0), (after.valid, after.capacity, RESERVED, 0, -1)]
        return tuple(cell for cell in found if cell[0] < cell[1])
    joined: list[Cell] = []
    for start, stop, bits, token in row_states(cache, run, entry):
        cell = (start, stop, _state(bits), int(bits & heat_bits.WRITTEN > 0), token)
        if joined and _goes_on(joined[-1], cell):
            joined[-1] = (joined[-1][0], stop, *joined[-1][2:])
        else:
            joined.append(cell)
    return tuple(joined)


def notes(cache: Any, run: int, entry: int = 0) -> tuple[tuple[int, int, str], ...]:
    """The producer's notes on rows after a run: first row, row after the last, and a text. Usually empty."""
    rows = _rows_of(cache, run, entry)
    return () if rows is None else rows.notes


def owners(cache: Any, run: int, entry: int = 0) -> tuple[Owned, ...]:
    rows = _rows_of(cache, run, entry)
    return () if rows is None else rows.owners


def _rows_of(cache: Any, run: int, entry: int) -> Rows | None:
    if run >= len(cache.runs) or cache.axis is None or not cache.runs[run].items:
        return None
    items: tuple[Rows, ...] = cache.runs[run].items
    return items[min(entry, len(items) - 1)]


def entries_of(cache: Any) -> int:
    return max((len(after.items) for after in cache.runs), default=1) or 1


def heads_of(trace: Trace, cache: Any) -> int:
    """The number of heads that share a row; 1 if they are not separate, or not known."""
    runs = zip(trace.runs, cache.runs)
    first = next((i for i, (run, after) in enumerate(runs) if after.items and run.last > run.first), None)
    shown = None if first is None else heat(trace, cache, first)
    return 1 if shown is None else len(shown.states)


def _state(bits: int) -> int:
    if bits & 3 != heat_bits.VALID:
        return STALE if bits & heat_bits.STALE else RESERVED
    if bits & heat_bits.OUTSIDE:
        return OUTSIDE
    return WRITTEN if bits & heat_bits.WRITTEN else WRAPPED if bits & heat_bits.WRAPPED else VALID


def _goes_on(before: Cell, cell: Cell) -> bool:
    tokens = before[4] == cell[4] == -1 or (before[4] >= 0 and before[4] + cell[0] - before[0] == cell[4])
    return before[2:4] == cell[2:4] and tokens


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
