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


def attention(
    query: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    words: Sequence[str],
    computed: int = 1,
    next_word: str = "",
) -> Any:
    """One head's attention from one token: query, keys, weights, values and the weighted sum.

    ``query``: (head size,), of the last word. ``keys``, ``values``: (rows, head size), a row for each word.
    ``computed``: how many of the last rows this run computed; the others came from the cache.
    ``next_word``: the token that the model chose then, for the title.

    Raises `KvvizError`: if the shapes do not fit each other.
    """
    if not keys.shape == values.shape == (len(words), *query.shape):
        raise KvvizError(f"{len(words)} words have a query, {query.shape}, and rows, {keys.shape} and {values.shape}")
    from matplotlib import pyplot as plt

    rows = len(words)
    scores = keys @ query / np.sqrt(query.size)
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    figure = plt.figure(figsize=(8.6, 1.75 + 0.19 * rows), layout="constrained")
    grid = figure.add_gridspec(3, 3, height_ratios=[1.1, rows, 1.1], width_ratios=[16, 12, 16])
    places = ((0, 0), (1, 0), (1, 1), (1, 2), (2, 2))
    asked, key, middle, value, made = (figure.add_subplot(grid[place]) for place in places)
    _, theme = axes_and_theme(middle, (1, 1))
    found, fresh, title = cache_hue(theme), theme.accent, {"loc": "left", "fontsize": 9, "fontweight": "bold"}
    inks = [found] * (rows - computed) + [fresh] * computed
    for ax, name, array, hues in (
        (asked, f"q: query of “{words[-1]}”", query[None], [fresh]),
        (key, "K: keys", keys, inks),
        (value, "V: values", values, inks),
        (made, "output of the head: weights × V", (weights @ values)[None], [fresh]),
    ):
        _cells(ax, array, hues, theme)
        ax.set_title(name, color=theme.ink, pad=4, **title)
    key.set_yticks(range(rows), words, fontsize=8)
    key.tick_params(length=0)
    for tick, ink in zip(key.get_yticklabels(), inks):
        tick.set_color(ink)
    middle.barh(range(rows), weights, height=0.7, color=theme.soft)
    middle.set(ylim=(rows - 0.5, -0.5), xlim=(0, 1.25 * weights.max()), xticks=[], yticks=[])
    middle.spines["bottom"].set_visible(False)
    middle.set_title(f"weights: softmax(K q / √{query.size})", color=theme.ink, pad=4, **title)
    for at in np.flatnonzero(weights > 0.02):
        middle.text(weights[at], at, f" {weights[at]:.0%}", va="center", fontsize=8, color=theme.ink)
    chosen = f"next token: “{next_word}”; " if next_word else ""
    text = f"“{words[-1]}” attends to {rows} tokens; {chosen}darker cells are larger numbers"
    figure.suptitle(text, x=0.01, ha="left", fontsize=10, color=theme.ink)
    kinds = {f"computed in this run: {computed} row{'s' * (computed != 1)}": fresh}
    if rows > computed:
        kinds = {f"read from the cache: {rows - computed} rows": found, **kinds}
    _key(figure, theme, kinds)
    return figure


def _cells(ax: Any, array: np.ndarray, hues: Sequence[str], theme: Theme) -> None:
    """Numbers as cells, a row in each hue: the larger, the darker."""
    from matplotlib.colors import to_rgb

    low, high = float(array.min()), float(array.max())
    shares = 0.06 + 0.94 * (array - low) / ((high - low) or 1.0)
    colours = [[to_rgb(mix(hue, theme.pane, share)) for share in row] for hue, row in zip(hues, shares)]
    ax.imshow(colours, aspect="auto", interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    ax.hlines(np.arange(1, len(array)) - 0.5, -0.5, array.shape[1] - 0.5, color=theme.pane, linewidth=1)
    ax.spines[:].set_visible(False)


def dependence(weights: Sequence[float], kept: Sequence[float], words: Sequence[str]) -> Any:
    """Weight of each word's row above the probability that the answer keeps without that row.

    A first row that draws most of the weight is cut, with its number beside it.
    """
    from matplotlib import pyplot as plt

    figure, (upper, lower) = plt.subplots(2, 1, figsize=(9.5, 3.6), layout="constrained", sharex=True)
    colours = ["#e8590c", *["#1864ab"] * (len(words) - 1)]
    upper.bar(range(len(words)), weights, color=colours)
    lower.bar(range(len(words)), kept, color=colours)
    top = 1.3 * max(weights[1:])
    if weights[0] > top:
        upper.annotate(f"{weights[0]:.2f}", (0.6, 0.85 * top), fontsize=8)
    upper.set(ylabel="mean weight", ylim=(0, top))
    lower.set(ylabel="probability", ylim=(0, 1))
    shown = [word.strip(" ").replace("\n", "\\n") for word in words]
    lower.set_xticks(range(len(words)), shown, rotation=90, fontsize=8)
    return figure


def head_sharing(heads: int, kv_heads: Sequence[int]) -> Any:
    """Which key and value head each query head reads: a panel for each number of key and value heads."""
    figure, (axes,), theme, found = panels(len(kv_heads), 2.1)
    for ax, count in zip(axes, kv_heads):
        group = heads // count
        places = [(group - 1) / 2 + i * group for i in range(count)]  # of KV heads, in the middle of their group
        for head in range(heads):
            ax.plot([head, places[head // group]], [1, 0], color=theme.soft, linewidth=1, zorder=1)
            _box(ax, (head, 1), f"q{head}", theme.accent, theme.pane)
        for i, place in enumerate(places):
            _box(ax, (place, 0), f"k{i} v{i}", found, theme.ink)
        ax.set(xlim=(-0.6, heads - 0.4), ylim=(-0.5, 1.5))
        ax.axis("off")
        ax.set_title(f"{heads} query heads, {count} KV head{'s' if count > 1 else ''}", fontsize=9, color=theme.ink)
    return figure


def block_tables(moments: Mapping[str, Sequence[Sequence[int]]], blocks: int) -> Any:
    """Block tables of sequences over a pool of so many blocks: by title, the numbers of each sequence's blocks."""
    figure, (axes,), theme, found = panels(len(moments), 2.6)
    for ax, (title, tables) in zip(axes, moments.items()):
        cells = sum(map(len, tables)) + len(tables) - 1  # with a gap between two tables
        width = max(blocks, cells)
        places = [(width - blocks) / 2 + block for block in range(blocks)]
        at = (width - cells) / 2
        for sequence, table in enumerate(tables):
            middle = at + (len(table) - 1) / 2
            ax.text(middle, 1.45, f"table of sequence {sequence}", ha="center", fontsize=8, color=theme.ink)
            for block in table:
                ax.plot([at, places[block]], [1, 0], color=theme.soft, linewidth=1, zorder=1)
                _box(ax, (at, 1), str(block), theme.line, theme.ink)
                at += 1
            at += 1
        for block, place in enumerate(places):
            users = sum(block in table for table in tables)
            state = min(users, 2)
            fill, ink = ((theme.pane, theme.soft), (theme.accent, theme.pane), (found, theme.ink))[state]
            _box(ax, (place, 0), f"block\n{block}", fill, ink)
            ax.text(place, -0.42, ("free", "own", "shared")[state], ha="center", fontsize=7, color=theme.soft)
        ax.set(xlim=(-0.8, width - 0.2), ylim=(-0.6, 1.7))
        ax.axis("off")
        ax.set_title(title, fontsize=9, color=theme.ink)
    return figure


def panels(count: int, height: float, lines: int = 1) -> tuple[Any, list[Any], Theme, str]:
    """A figure with lines of panels side by side, their theme, and the fill of what is read from a cache."""
    from matplotlib import pyplot as plt

    shared = {"sharex": lines > 1, "sharey": True, "squeeze": False}
    figure, axes = plt.subplots(lines, count, figsize=(8.6, height), layout="constrained", **shared)
    theme, *_ = [axes_and_theme(ax, (4, 3))[1] for ax in axes.flat]
    return figure, [list(line) for line in axes], theme, mix(cache_hue(theme), theme.pane, 0.45)


def _key(figure: Any, theme: Theme, kinds: Mapping[str, str]) -> None:
    """A legend below the panels: hues by what they mean."""
    from matplotlib.patches import Patch

    handles = [Patch(color=hue, label=label) for label, hue in kinds.items()]
    look = {"ncols": 2, "frameon": False, "fontsize": 8, "labelcolor": theme.ink}
    figure.legend(handles=handles, loc="outside lower left", **look)


def _box(ax: Any, at: tuple[float, float], text: str, fill: str, ink: str) -> None:
    ax.scatter(*at, s=600, marker="s", facecolor=fill, edgecolor=ink, linewidth=0.5, zorder=2)
    ax.text(*at, text, ha="center", va="center", fontsize=7, color=ink)


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


def control(widget: Any, show: Callable[[Any], None], alt: str) -> None:
    """Show a control of ipywidgets with what a function prints of its value, and to a reader without it a text."""
    box = ipywidgets.VBox([widget, ipywidgets.interactive_output(lambda value: show(value), {"value": widget})])
    display({**box._repr_mimebundle_(), "text/plain": alt}, raw=True)


def picture(drawing: Any, alt: str) -> None:
    """Show a figure of matplotlib, or an SVG document, in a notebook, with its alternative text.

    Beside the PNG there is an HTML image, which has the text as ``alt``: JupyterLab has none for a PNG. The output's
    metadata has it, too, and it is the plain-text form.

    ``alt``: what the chart shows, in one or two sentences.

    Raises `KvvizError`: if the text is empty.
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


def _image(alt: str, address: str) -> str:
    return f'<img alt="{escape(alt)}" style="max-width:100%;break-inside:avoid" src="{address}">'
