"""Charts that lessons share: which rows a run computes, and on which side of a processor's balance it lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvviz.errors import KvvizError
from kvviz.lessons.run_work import Work
from kvviz.view.chart_axes import axes_and_theme, cache_hue, finish
from kvviz.view.palette import Theme, mix


def computed_rows(ways: Mapping[str, Sequence[int]], length: Sequence[int]) -> Any:
    """Rows of a cache that each run computed, and those that it read from the cache: one panel for each way to decode.

    Parameters
    ----------
    ways : mapping of str to sequence of int
        Rows that each run computed.
    length : sequence of int
        Rows that attention needed in each run, the same in every way.

    Returns
    -------
    Figure

    Raises
    ------
    KvvizError
        If a way has another number of runs than there are lengths, or computed more rows than were needed.
    """
    needed = np.asarray(length, int)
    for name, rows in ways.items():
        if len(rows) != len(needed) or (np.asarray(rows) > needed).any():
            raise KvvizError(f"{name!r} has to give at most the {len(needed)} lengths, one number for each run")
    from matplotlib.patches import Patch

    figure, axes, theme, found = _panels(len(ways), 3.6)
    made = theme.accent
    for ax, (name, rows) in zip(axes, ways.items()):
        fresh = np.asarray(rows, int)
        ax.barh(range(len(fresh)), needed - fresh, color=found, height=1)
        ax.barh(range(len(fresh)), fresh, left=needed - fresh, color=made, height=1)
        ax.set(ylim=(len(fresh) - 0.5, -0.5), xlim=(0, max(needed)))
        finish(ax, theme, "row of the sequence", "run" if ax is axes[0] else "", f"{name}: {fresh.sum():,} computed")
    parts = [Patch(color=made, label="computed in this run"), Patch(color=found, label="read from the cache")]
    figure.legend(handles=parts, loc="outside lower left", ncols=2, frameon=False, fontsize=8, labelcolor=theme.ink)
    return figure


def roofline(works: Sequence[Work], balance: float, processor: str) -> Any:
    """Arithmetic intensity of runs by the number of tokens that they were fed, with the balance of a processor.

    Parameters
    ----------
    works : sequence of Work
    balance : float
        Operations that the processor does in the time in which its memory delivers a byte.
    processor : str

    Returns
    -------
    Figure
    """
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(8, 3.2), layout="constrained")
    _, theme = axes_and_theme(ax, (8, 3))
    tokens, high = [work.tokens for work in works], [work.intensity for work in works]
    ax.set(xscale="log", yscale="log")
    ax.plot(tokens, high, "o-", color=theme.accent)
    ax.axhline(balance, color=theme.ink, linestyle="--", linewidth=1)
    above: Any = {"xycoords": ("axes fraction", "data"), "xytext": (0, 4), "textcoords": "offset points"}
    ax.annotate(f"{processor}: {balance:.1f} FLOP/byte", (0.01, balance), fontsize=8, color=theme.ink, **above)
    ax.set_xticks(tokens, [str(one) for one in tokens])
    ax.set_yticks([0.5, 1, 2, 5, 10, 20, 50], ["0.5", "1", "2", "5", "10", "20", "50"])
    ax.minorticks_off()
    finish(ax, theme, "tokens in the pass", "FLOP per byte read", "Arithmetic intensity of one forward pass")
    return figure


def head_sharing(heads: int, kv_heads: Sequence[int]) -> Any:
    """Which key and value head each query head reads: one panel for each number of key and value heads.

    Parameters
    ----------
    heads : int
        Query heads.
    kv_heads : sequence of int
        Each divides ``heads``.

    Returns
    -------
    Figure

    Raises
    ------
    KvvizError
        If a number of key and value heads does not divide that of the query heads.
    """
    if wrong := [count for count in kv_heads if count < 1 or heads % count]:
        raise KvvizError(f"{heads} query heads cannot share {wrong[0]} KV heads evenly")
    figure, axes, theme, found = _panels(len(kv_heads), 2.1)
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


def _panels(count: int, height: float) -> tuple[Any, list[Any], Theme, str]:
    """A figure with panels side by side, their theme, and the fill of what is read from a cache."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, count, figsize=(8.6, height), layout="constrained", sharey=True, squeeze=False)
    theme, *_ = [axes_and_theme(ax, (4, 3))[1] for ax in axes[0]]
    return figure, list(axes[0]), theme, mix(cache_hue(theme), theme.pane, 0.45)


def _box(ax: Any, at: tuple[float, float], text: str, fill: str, ink: str) -> None:
    ax.scatter(*at, s=420, marker="s", color=fill, zorder=2)
    ax.text(*at, text, ha="center", va="center", fontsize=7, color=ink)
