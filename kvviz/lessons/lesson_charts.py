"""Charts, tables and pictures of lessons.

Rows that a run computed have one hue and rows that it found in a cache the other, as in `kvviz.plot.rows`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from io import BytesIO
from typing import Any

import ipywidgets
import numpy as np
from IPython.display import display

from kvviz.errors import KvvizError
from kvviz.report.faces.steps_table import Table
from kvviz.report.palette import Theme, mix
from kvviz.view.charts.chart_axes import axes_and_theme, cache_hue, finish
from kvviz.view.charts.png import few_colours
from kvviz.view.drawing.svg import Picture


def computed_rows(ways: Mapping[str, Sequence[int]], length: Sequence[int]) -> Any:
    """Rows of a cache that each run computed, and those that it read from the cache: a panel for each way to decode.

    ``ways``: by name, the rows that each run computed. ``length``: rows that attention needed in each run.
    """
    needed = np.asarray(length, int)
    figure, (axes,), theme, found = panels(len(ways), 3.6)
    for ax, (name, rows) in zip(axes, ways.items()):
        fresh = np.asarray(rows, int)
        ax.barh(range(len(fresh)), needed - fresh, color=found, height=1)
        ax.barh(range(len(fresh)), fresh, left=needed - fresh, color=theme.accent, height=1)
        ax.set(ylim=(len(fresh) - 0.5, -0.5), xlim=(0, max(needed)))
        finish(ax, theme, "row of the sequence", "run" if ax is axes[0] else "", f"{name}: {fresh.sum():,} computed")
    _key(figure, theme, {"computed in this run": theme.accent, "read from the cache": found})
    return figure


def row_changes(changes: Mapping[str, np.ndarray], words: Sequence[str]) -> Any:
    """Changes of the rows of words as `changed_rows` gives them, (layers, words): by name a line of panels."""
    high = 1.1 * max(change.max() for change in changes.values())
    layers = len(next(iter(changes.values())))
    figure, axes, theme, _ = panels(layers, 1.6 * len(changes) + 0.6, len(changes))
    for line, (name, change) in zip(axes, changes.items()):
        for layer, ax in enumerate(line):
            ax.bar(range(len(words)), change[layer], color=theme.accent)
            ax.set(ylim=(0, high), xlim=(-0.6, len(words) - 0.4))
            ax.set_xticks(range(len(words)), words, rotation=60, ha="right")
            finish(ax, theme, "", "" if layer else "difference", f"layer {layer}: {name}")
            ax.tick_params(axis="x", labelsize=7)
    return figure


def panels(count: int, height: float, lines: int = 1) -> tuple[Any, list[Any], Theme, str]:
    """A figure with lines of panels side by side, their theme, and the fill of rows that are read from a cache."""
    from matplotlib import pyplot as plt

    shared = {"sharex": lines > 1, "sharey": True, "squeeze": False}
    figure, axes = plt.subplots(lines, count, figsize=(8.6, height), layout="constrained", **shared)
    theme, *_ = [axes_and_theme(ax, (4, 3))[1] for ax in axes.flat]
    return figure, [list(line) for line in axes], theme, mix(cache_hue(theme), theme.pane, 0.45)


def _key(figure: Any, theme: Theme, kinds: Mapping[str, str]) -> None:
    """A legend below the panels: hues by their meaning."""
    from matplotlib.patches import Patch

    handles = [Patch(color=hue, label=label) for label, hue in kinds.items()]
    look = {"ncols": 2, "frameon": False, "fontsize": 8, "labelcolor": theme.ink}
    figure.legend(handles=handles, loc="outside lower left", **look)


_MOST = 160


def table(rows: Iterable[Mapping[str, Any]], title: str = "") -> Table:
    """Rows, cell by heading, as a table; the last line of a cell displays it.

    Headings are those of the first row. Whole numbers get separators, and a column in which every cell is a number, or
    a number with a unit, is aligned right.
    """
    cells = [{name: _cell(value) for name, value in row.items()} for row in rows]
    names: Sequence[str] = list(cells[0]) if cells else []
    columns = tuple((name, name, all(_is_number(row.get(name, "")) for row in cells), _MOST) for name in names)
    return Table(cells, columns, title)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if isinstance(value, float) else str(value)


def _is_number(cell: Any) -> bool:
    text = str(cell).lstrip("-−")
    return not text or text[:1].isdigit()


def control(widgets: Mapping[str, Any], show: Callable[..., None], alt: str) -> None:
    """Show ipywidgets, by the names of a function's arguments, with what the function prints for their values;
    readers without them see a text."""
    box = ipywidgets.VBox([*widgets.values(), ipywidgets.interactive_output(show, dict(widgets))])
    display({**box._repr_mimebundle_(), "text/plain": alt}, raw=True)


def picture(drawing: Any, alt: str) -> None:
    """Show a figure of matplotlib, or an SVG document, in a notebook, with its alternative text.

    Besides the PNG there is an HTML image, which has the text as ``alt``: JupyterLab has none for a PNG. The text is
    also in the output's metadata, and is the plain-text form.

    ``alt``: what the chart shows, in one or two sentences. Raises `KvvizError`: if the text is empty.
    """
    if not alt.strip():
        raise KvvizError("a picture needs a text that says what it shows")
    if isinstance(drawing, str):
        # Untrusted notebooks strip inline SVG.
        display({"text/html": _image(alt, Picture(drawing).data_uri), "text/plain": alt}, raw=True)
        return
    from matplotlib import pyplot as plt

    drawn, file = getattr(drawing, "figure", drawing), BytesIO()
    drawn.savefig(file, format="png", dpi=100)
    plt.close(drawn)  # else the notebook shows it once more at the end of the cell
    png = base64.b64encode(few_colours(file.getvalue())).decode()
    data = {"image/png": png, "text/html": _image(alt, f"data:image/png;base64,{png}"), "text/plain": alt}
    display(data, metadata={"image/png": {"alt": alt}, "alt": alt}, raw=True)


# In a dark notebook white becomes the background and hues stay. Printed, a chart is unchanged.
_LOOK = (
    "<style>@media screen{:is([data-jp-theme-light=false],[data-vscode-theme-kind$=dark],.vscode-dark) .kv-chart"
    "{filter:invert(1) hue-rotate(180deg);mix-blend-mode:screen}}</style>"
)


def _image(alt: str, address: str) -> str:
    look = "max-width:100%;break-inside:avoid"
    return f'{_LOOK}<img class="kv-chart" alt="{escape(alt)}" style="{look}" src="{address}">'
