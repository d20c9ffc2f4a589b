"""Shared parts of charts: axes, colours that fit the background, units, thinning of long curves.

Invariant: `matplotlib.pyplot` is imported only if a caller asks for a chart without giving an Axes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import numpy as np

from kvviz.report.palette import DARK, LIGHT, OWNERS, STATES, Look, Theme, luminance
from kvviz.trace.recording import Trace

# More points than a chart has pixels would only cost time.
MOST_POINTS = 3000
# Of a legend, in points: a handle with its gap, the gap between columns; and how much wider the chart may still become.
_SWATCH, _GAP, _SLACK = 21.0, 11.2, 1.0
# Points that are free for names beside a chart.
_BESIDE = 25.0


def axes_and_theme(ax: Any, inches: tuple[float, float]) -> tuple[Any, Theme]:
    """The given Axes or one in a new figure, and the theme that is readable on its background."""
    if ax is None:
        from matplotlib import pyplot as plt

        _, ax = plt.subplots(figsize=inches, layout="constrained")
    theme = LIGHT if luminance(ax.get_facecolor()) > 0.5 else DARK
    ax.spines[["top", "right"]].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(theme.line)
    ax.tick_params(colors=theme.soft, labelsize=8)
    return ax, theme


def finish(ax: Any, theme: Theme, x: str, y: str, title: str) -> None:
    """Label the axes, and put the title at the left, above the legend if there is one."""
    ax.set_xlabel(x, color=theme.soft, fontsize=9)
    ax.set_ylabel(y, color=theme.soft, fontsize=9)
    key = ax.get_legend()
    rows = 0
    if key is not None:
        columns = max(getattr(key, "_ncols", 1), 1)
        rows = -(-len(key.get_texts()) // columns)
    look = {"fontsize": 10, "fontweight": "bold", "va": "bottom"}
    lines = "\n".join(wrapped(title, points_of(ax)[0] * _SLACK, 10, "bold"))
    ax.set_title(lines, loc="left", color=theme.ink, pad=6 + 2.5 * bool(rows) + 13.5 * rows, **look)


def wrapped(text: str, room: float, points: float, weight: str = "normal") -> list[str]:
    """A text broken into lines of at most ``room`` points; a wider word has a line of its own."""
    lines: list[str] = []
    for word in filter(None, text.split(" ")):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, points, weight) <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def points_of(ax: Any) -> tuple[float, float]:
    """Width and height of a chart in points, as it is placed now. A later layout changes them little."""
    box, dots = ax.get_window_extent(), ax.figure.dpi / 72
    names = [tick.get_text() for tick in ax.get_yticklabels()]
    # A layout shrinks the chart to make room for long labels beside it.
    beside = max((text_width(name, 7) for name in names), default=0.0) - _BESIDE
    return box.width / dots - max(beside, 0.0), box.height / dots


def text_width(text: str, points: float, weight: str = "normal") -> float:
    """Width of a text in points, without drawing it."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    # A literal dollar sign is escaped with a backslash.
    plain = text.replace(r"\$", "$")
    width, _, _ = text_to_path.get_text_width_height_descent(plain, FontProperties(size=points, weight=weight), False)
    return float(width)


def _columns(ax: Any, most: int, labels: list[str]) -> int:
    """The number of legend columns that fit the width of the chart. Labels fill them as in matplotlib."""
    widths = [text_width(label, 8) + _SWATCH for label in labels]
    for columns in range(min(most, max(len(labels), 1)), 1, -1):
        wide = [max(column) for column in np.array_split(widths, columns)]
        if sum(wide) + _GAP * (len(wide) - 1) <= points_of(ax)[0] * _SLACK:
            return columns
    return 1


def legend(ax: Any, theme: Theme, columns: int, handles: tuple[list[Any], list[str]] | None = None) -> None:
    """A legend between the title and the chart, so that it covers no data; in fewer columns where it is narrow."""
    given = {} if handles is None else {"handles": handles[0], "labels": handles[1]}
    columns = _columns(ax, columns, ax.get_legend_handles_labels()[1] if handles is None else handles[1])
    ax.legend(
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        ncols=columns,
        frameon=False,
        fontsize=8,
        labelcolor=theme.ink,
        borderaxespad=0.2,
        handlelength=1.8,
        columnspacing=1.4,
        **given,
    )


def beside(ax: Any, text: str, at: tuple[float, float], shift: tuple[float, float], points: float, **look: Any) -> None:
    """Put a text beside a place of the chart, so many points away from it."""
    ax.annotate(text, at, xytext=shift, textcoords="offset points", fontsize=points, **look)


def say(ax: Any, theme: Theme, text: str) -> None:
    """Put a sentence in the middle of a chart that has nothing to draw."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=theme.soft, fontsize=10)


def hue_of(look: Look, theme: Theme) -> str:
    """The hue of a state or an owner in this theme."""
    return look.light if theme is LIGHT else look.dark


def cache_hue(theme: Theme) -> str:
    return hue_of(OWNERS["donated"], theme)


def hues(theme: Theme) -> Iterator[str]:
    """Hues for things that are neither states nor owners; distinct from each other, repeated without end."""
    owners = (OWNERS[name] for name in ("donated", "pool", "run"))
    looks = (*owners, STATES["missed"], OWNERS["caller"], OWNERS["weights"])
    return cycle([hue_of(look, theme) for look in looks])


def unit_of(nbytes: float) -> tuple[str, float]:
    """The decimal unit in which a byte count has one to four digits before the point, and its size in bytes."""
    scale = 1.0
    for unit in ("B", "kB", "MB"):
        if nbytes < 10_000 * scale:
            return unit, scale
        scale *= 1000
    return "GB", scale


def thinned(values: np.ndarray, most: int = MOST_POINTS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions, minima and maxima of a curve at no more than ``most`` positions; no peak is lost."""
    if len(values) <= most:
        return np.arange(len(values)), values, values
    width = -(-len(values) // most)
    padded = np.concatenate([values, np.full(-len(values) % width, values[-1])]).reshape(-1, width)
    return np.arange(len(padded)) * width, padded.min(1), padded.max(1)


def thousands(ax: Any) -> None:
    """Write step numbers with thousands separators, as sentences do: 4,800."""
    from matplotlib.ticker import StrMethodFormatter

    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def break_mark(ax: Any, theme: Theme) -> None:
    """Two slanted strokes at the foot of the y axis, which starts above zero."""
    look = {"marker": [(-1, -0.6), (1, 0.6)], "markersize": 9, "linestyle": "none", "color": theme.ink}
    ax.plot([0, 0], [0.0, 0.04], transform=ax.transAxes, clip_on=False, zorder=5, **look)


def whole_numbers(ax: Any, which: str) -> None:
    """Put ticks at whole numbers only, for runs and rows."""
    from matplotlib.ticker import MaxNLocator

    if which in ("x", "both"):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if which in ("y", "both"):
        ax.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, nbins=6))


def live_bytes(trace: Trace) -> np.ndarray:
    """Bytes alive at every step, as floats."""
    return np.asarray(trace.log.column("live"), float)
