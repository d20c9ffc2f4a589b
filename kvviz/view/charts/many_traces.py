"""Charts of several traces: how their caches fill, what they hold and what they copy in each run, on one Axes; and the
figure of a comparison.

Each trace has its own hue, dashes and marker. Traces with equal numbers share one line.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from kvviz.explain.figures import Row
from kvviz.report.palette import Theme
from kvviz.trace.model_or_trace import TraceLike
from kvviz.trace.recording import Trace
from kvviz.trace.units import decodes, short, size, weight_bytes
from kvviz.view.charts.chart_axes import (
    axes_and_theme,
    beside,
    break_mark,
    finish,
    hues,
    legend,
    live_bytes,
    say,
    thinned,
    thousands,
    unit_of,
    whole_numbers,
)

# Bytes for every run: numbers, or a function of the run's number.
Closed = Callable[[int], float] | Sequence[float]

# Each curve has its own hue and dashes; five hues and four dash patterns distinguish twenty curves.
DASHES = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)))
CALCULATED: dict[str, Any] = {"linewidth": 0.8, "linestyle": (0, (4, 3))}
_MARKERS = "osD^vPX"
LEGEND_COLUMNS = 3
NO_CACHES = "these traces have no caches"
_NAME = 40
_MOST_MARKERS = 40
_BARS = (
    ("above_weights", "peak above weights"),
    ("allocated", "allocated"),
    ("written", "written"),
    ("copied", "copied"),
    ("moved_outside", "moved outside"),
)
_MOST_MARKS, _ROW_NAME = 24, 32


class HasTraces(Protocol):
    @property
    def traces(self) -> Mapping[str, Trace]: ...


Traces = Mapping[str, Trace] | HasTraces


def traces_of(source: TraceLike | Traces) -> dict[str, Trace] | None:
    """Traces by name of a mapping or a Comparison; None for a single trace."""
    traces = getattr(source, "traces", source)
    return dict(traces) if isinstance(traces, Mapping) else None


def occupancy(traces: Mapping[str, Trace], ax: Any = None) -> Any:
    """Rows valid and rows reserved after every run, of the first cache of each trace that has rows."""
    curves = {name: _rows(trace) for name, trace in traces.items() if _rows(trace)[0].size}
    return rows_chart(ax, curves, traces, ", ".join)


def rows_chart(
    ax: Any,
    curves: Mapping[str, tuple[np.ndarray, ...]],
    traces: Mapping[str, Trace],
    joined: Callable[[list[str]], str],
    nothing: str = NO_CACHES,
) -> Any:
    """Rows valid and rows reserved after every run, as ``curves`` by name. ``joined``: one text for names with equal
    curves. ``nothing``: shown without curves."""
    ax, theme = axes_and_theme(ax, (8.0, 3.0))
    lines, names, top = [], [], 1.0
    for label, (valid, capacity), look in _lines(curves, theme, joined):
        lines += ax.plot(valid, **look, drawstyle="steps-mid", label=f"{label}: valid")
        dashes = {"linewidth": 1.0, "linestyle": (0, (5, 3)), "drawstyle": "steps-mid"}
        ax.plot(capacity, color=look["color"], **dashes, label=f"{label}: reserved")
        ax.fill_between(np.arange(len(valid)), valid, capacity, step="mid", color=look["color"], alpha=0.1, linewidth=0)
        names.append(label)
        top = max(top, capacity.max(initial=0), valid.max(initial=0))
    ax.set_ylim(0, top * 1.08)
    whole_numbers(ax, "both")
    return _done(ax, theme, lines, names, "rows", "Cache rows: thin dashes reserved, line valid", traces, nothing)


def held(traces: Mapping[str, Trace], ax: Any = None) -> Any:
    """The largest number of bytes alive in every run, without the weights."""
    ax, theme = axes_and_theme(ax, (8.0, 3.0))
    curves = {name: (_above_weights(trace),) for name, trace in traces.items() if trace.runs}
    return _bytes(ax, theme, curves, {}, "peak above weights", "Memory of each run", traces)


def copied(traces: Mapping[str, Trace], ax: Any = None, closed: Any = None) -> Any:
    """Bytes that kernels copied to carry the caches through every run; crosses for bytes that the caller moved outside.
    ``closed``: the calculated bytes, by the name of the trace, for every run or as a function of its number, drawn as a
    thin dashed line."""
    ax, theme = axes_and_theme(ax, (8.0, 3.0))
    curves = {name: _moved(trace) for name, trace in traces.items() if trace.runs}
    return _bytes(
        ax, theme, curves, dict(closed or {}), "bytes", "Bytes copied by each run to carry the caches", traces
    )


def _bytes(
    ax: Any,
    theme: Theme,
    curves: Mapping[str, tuple[np.ndarray, ...]],
    closed: Mapping[str, Closed],
    what: str,
    title: str,
    traces: Mapping[str, Trace],
) -> Any:
    by_name = {name: by_run(form, len(curves[name][0])) for name, form in closed.items() if name in curves}
    top = max(
        (float(series.max(initial=0.0)) for all_of in (*curves.values(), [*by_name.values()]) for series in all_of),
        default=0.0,
    )
    unit, scale = unit_of(top)
    lines, names = [], []
    for label, (values, *outside), look in _lines(curves, theme):
        lines += ax.plot(values / scale, **look)
        names.append(label)
        moved = outside[0] if outside else np.zeros(0)
        runs = np.flatnonzero(moved)
        if len(runs):
            lines += ax.plot(runs, moved[runs] / scale, "x", color=look["color"], markersize=6)
            names.append("moved by the caller")
    for i, form in enumerate(by_name.values()):
        line = ax.plot(form / scale, color=theme.ink, **CALCULATED, zorder=5)
        if not i:
            lines += line
            names.append("by calculation")
    ax.set_ylim(0, top / scale * 1.12 or 1.0)
    whole_numbers(ax, "x")
    return _done(ax, theme, lines, names, f"{what} [{unit}]", title, traces)


def _lines(
    curves: Mapping[str, tuple[np.ndarray, ...]], theme: Theme, joined: Callable[[list[str]], str] = ", ".join
) -> Iterator[tuple[str, tuple[np.ndarray, ...], dict[str, Any]]]:
    """Names that share their numbers, the numbers, and the style, which is that of the first name in every chart."""
    groups: dict[tuple[bytes, ...], list[str]] = {}
    for name, series in curves.items():
        groups.setdefault(tuple(one.tobytes() for one in series), []).append(name)
    places = {name: (i, hue) for (i, name), hue in zip(enumerate(curves), hues(theme))}
    for names in groups.values():
        series, (i, hue) = curves[names[0]], places[names[0]]
        every = -(-len(series[0]) // _MOST_MARKERS) or 1
        look = {
            "color": hue,
            "linestyle": DASHES[i % len(DASHES)],
            "linewidth": 1.7,
            "marker": _MARKERS[i % len(_MARKERS)],
            "markersize": 3.5,
            # offset from each other, so that no marker hides another
            "markevery": (i % every, every),
        }
        # A dollar sign would begin a formula.
        yield joined([short(name, _NAME) for name in names]).replace("$", r"\$"), series, look


def _done(
    ax: Any,
    theme: Theme,
    lines: list[Any],
    names: list[str],
    y: str,
    title: str,
    traces: Mapping[str, Trace],
    nothing: str = NO_CACHES,
) -> Any:
    if lines:
        legend(ax, theme, columns=2 if max(map(len, names)) > 30 else LEGEND_COLUMNS, handles=(lines, names))
    else:
        say(ax, theme, nothing)
    finish(ax, theme, run_word(traces.values()), y, title + dry(traces.values()))
    return ax


def run_word(traces: Iterable[Trace]) -> str:
    return "decode step (0 is the prefill)" if any(map(decodes, traces)) else "run"


def dry(traces: Collection[Trace]) -> str:
    return "" if not any(trace.dry for trace in traces) else ", dry run" if len(traces) < 2 else ", dry runs"


def _rows(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    cache = next((c for c in trace.caches if c.axis is not None and c.protocol not in ("state", "cross")), None)
    return (np.zeros(0), np.zeros(0)) if cache is None else rows_of(cache)


def rows_of(cache: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.array([r.valid for r in cache.runs], float), np.array([r.capacity for r in cache.runs], float)


def _above_weights(trace: Trace) -> np.ndarray:
    weights = weight_bytes(trace)
    return np.array([run.peak_bytes - weights for run in trace.runs], float)


def _moved(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of each run that kernels copied, and that the caller moved, for all caches; without caches, of the run."""
    if not trace.caches:
        return np.array([run.bytes_copied for run in trace.runs], float), np.zeros(len(trace.runs))
    both = np.zeros((2, len(trace.runs)))
    for cache in trace.caches:
        for run, after in enumerate(cache.runs):
            both[:, run] += after.bytes_copied, after.bytes_moved_outside
    return both[0], both[1]


def by_run(form: Closed, runs: int) -> np.ndarray:
    return np.array([form(run) for run in range(runs)] if callable(form) else form, float)


# -- a comparison -----------------------------------------------------------------------------------------------------


def plot_comparison(rows: Sequence[Row], traces: Sequence[Trace], figure: Any = None) -> Any:
    """Draw bars of what each row costs, with a scale for each kind of bytes, above the live memory of all rows.

    ``figure``: an empty one to draw on; a new one by default.
    """
    # A dollar sign would begin a formula.
    names = [short(row.name, _ROW_NAME).replace("$", r"\$") for row in rows]
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
    """Bytes of weights that all traces hold under any rules."""
    return min(map(weight_bytes, traces), default=0)


def used(columns: tuple[Any, ...], rows: Sequence[Row]) -> tuple[Any, ...]:
    """Columns that are not empty: most comparisons move nothing between runs."""
    moved = any(row.moved_outside for row in rows)
    return tuple(column for column in columns if moved or column[0] != "moved_outside")


def _bars(ax: Any, rows: Sequence[Row], key: str, title: str) -> None:
    """Draw one kind of bytes: a bar for each row, followed by its number."""
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
    """Draw the bytes alive at every step, one curve for each trace."""
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
