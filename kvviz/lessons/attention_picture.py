"""One picture of attention: what one query does with the keys and values of all tokens so far.

Rows that a run computed have one hue and rows that it found in a cache the other, as in `kvviz.plot.rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvviz.errors import KvvizError
from kvviz.report.palette import Theme, mix
from kvviz.view.chart_axes import axes_and_theme, cache_hue

# Heights in inches: of a row, and of what stands above and below them.
_ROW, _REST = 0.19, 1.75


def attention(
    query: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    words: Sequence[str],
    computed: int = 1,
    next_word: str = "",
) -> Any:
    """Draw one head's attention from one token: query, keys, weights, values and the weighted sum.

    Parameters
    ----------
    query : ndarray
        (head size,), of the token that is read.
    keys, values : ndarray
        (rows, head size); row i belongs to word i.
    words : sequence of str
        One for each row; the last one is the token of the query.
    computed : int
        How many of the last rows this run computed; the others came from the cache.
    next_word : str
        The token that the model chose then, for the title.

    Returns
    -------
    Figure

    Raises
    ------
    KvvizError
        If the shapes do not fit each other.
    """
    if not query.ndim == 1 or not keys.shape == values.shape == (len(words), query.size):
        raise KvvizError(
            f"give one query of shape (head size,), keys and values of shape (rows, head size), and a word for each "
            f"row; these are {query.shape}, {keys.shape}, {values.shape} and {len(words)} words"
        )
    from matplotlib import pyplot as plt

    rows = len(words)
    weights = attention_weights(query, keys)
    figure = plt.figure(figsize=(8.6, _REST + _ROW * rows), layout="constrained")
    grid = figure.add_gridspec(3, 3, height_ratios=[1.1, rows, 1.1], width_ratios=[16, 12, 16])
    asked, key, middle, value, made = (
        figure.add_subplot(grid[place]) for place in ((0, 0), (1, 0), (1, 1), (1, 2), (2, 2))
    )
    _, theme = axes_and_theme(key, (1, 1))
    inks = [cache_hue(theme)] * (rows - computed) + [theme.accent] * computed
    for ax, name, array, hues in (
        (asked, f"q: query of “{words[-1]}”", query[None], [theme.accent]),
        (key, "K: keys", keys, inks),
        (value, "V: values", values, inks),
        (made, "output of the head: weights × V", (weights @ values)[None], [theme.accent]),
    ):
        _cells(ax, array, hues, theme)
        _title(ax, name, theme)
    key.set_yticks(range(rows), words, fontsize=8)
    key.tick_params(length=0)
    for tick, ink in zip(key.get_yticklabels(), inks):
        tick.set_color(ink)
    axes_and_theme(middle, (1, 1))
    middle.barh(range(rows), weights, height=0.7, color=theme.soft)
    middle.set(ylim=(rows - 0.5, -0.5), xlim=(0, 1.25 * weights.max()), xticks=[], yticks=[])
    middle.spines["bottom"].set_visible(False)
    _title(middle, f"weights: softmax(K q / √{query.size})", theme)
    for at, weight in enumerate(weights):
        if weight > 0.02:
            middle.text(weight, at, f" {weight:.0%}", va="center", fontsize=8, color=theme.ink)
    chosen = f"next token: “{next_word}”; " if next_word else ""
    figure.suptitle(
        f"“{words[-1]}” attends to {rows} tokens; {chosen}darker cells are larger numbers",
        x=0.01,
        ha="left",
        fontsize=10,
        color=theme.ink,
    )
    _key(figure, rows, computed, theme)
    return figure


def attention_weights(query: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Softmax of the scaled products of a query with all keys: how much of each value row is taken."""
    scores = keys @ query / np.sqrt(query.size)
    shifted = np.exp(scores - scores.max())
    return np.asarray(shifted / shifted.sum())


def _cells(ax: Any, array: np.ndarray, hues: Sequence[str], theme: Theme) -> None:
    low, high = float(array.min()), float(array.max())
    shares = 0.06 + 0.94 * (array - low) / ((high - low) or 1.0)
    colours = [[mix(hue, theme.pane, share) for share in row] for hue, row in zip(hues, shares)]
    numbers = [[[int(one[i : i + 2], 16) for i in (1, 3, 5)] for one in row] for row in colours]
    ax.imshow(np.array(numbers, np.uint8), aspect="auto", interpolation="nearest")
    ax.set(xticks=[], yticks=[])
    ax.hlines(np.arange(1, len(array)) - 0.5, -0.5, array.shape[1] - 0.5, color=theme.pane, linewidth=1)
    for side in ax.spines.values():
        side.set_visible(False)


def _title(ax: Any, text: str, theme: Theme) -> None:
    ax.set_title(text, loc="left", fontsize=9, fontweight="bold", color=theme.ink, pad=4)


def _key(figure: Any, rows: int, computed: int, theme: Theme) -> None:
    from matplotlib.patches import Patch

    cached = rows - computed
    kinds = (
        (cache_hue(theme), f"read from the cache: {cached} rows"),
        (theme.accent, f"computed in this run: {computed} row" + "s" * (computed != 1)),
    )
    handles = [Patch(color=hue, label=label) for hue, label in kinds[not cached :]]
    figure.legend(handles=handles, loc="lower left", fontsize=8, frameon=False, labelcolor=theme.ink)
