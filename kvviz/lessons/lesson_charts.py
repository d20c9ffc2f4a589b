"""Charts that lessons share: which rows a run computes, and on which side of a processor's balance it lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvviz.errors import KvvizError
from kvviz.lessons.run_work import Work
from kvviz.report.palette import Theme, mix
from kvviz.view.chart_axes import axes_and_theme, cache_hue, finish


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

    figure, (axes,), theme, found = panels(len(ways), 3.6)
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
    """Block tables of sequences over the pool of blocks: one panel for each moment.

    Parameters
    ----------
    moments : mapping of str to sequence of sequence of int
        By a title, the numbers of the blocks of each sequence, in order.
    blocks : int
        Blocks of the pool to draw, from number 0.

    Returns
    -------
    Figure

    Raises
    ------
    KvvizError
        If a table names a block that is not drawn.
    """
    if wrong := [b for tables in moments.values() for table in tables for b in table if not 0 <= b < blocks]:
        raise KvvizError(f"block {wrong[0]} is in a table, but blocks 0 to {blocks - 1} are drawn")
    figure, (axes,), theme, found = panels(len(moments), 2.6)
    for ax, (title, tables) in zip(axes, moments.items()):
        width = max(blocks, sum(map(len, tables)) + len(tables) - 1)
        places = [(width - blocks) / 2 + block for block in range(blocks)]
        users = [sum(block in table for table in tables) for block in range(blocks)]
        fills = [theme.pane if count == 0 else theme.accent if count == 1 else found for count in users]
        at = (width - sum(map(len, tables)) - len(tables) + 1) / 2
        for sequence, table in enumerate(tables):
            ax.text(
                at + (len(table) - 1) / 2,
                1.45,
                f"table of sequence {sequence}",
                ha="center",
                fontsize=8,
                color=theme.ink,
            )
            for block in table:
                ax.plot([at, places[block]], [1, 0], color=theme.soft, linewidth=1, zorder=1)
                _box(ax, (at, 1), str(block), theme.line, theme.ink)
                at += 1
            at += 1
        for block, place in enumerate(places):
            ink = theme.pane if users[block] == 1 else theme.ink
            _box(ax, (place, 0), f"block\n{block}", fills[block], ink if users[block] else theme.soft)
            told = "free" if not users[block] else "shared" if users[block] > 1 else "own"
            ax.text(place, -0.42, told, ha="center", fontsize=7, color=theme.soft)
        ax.set(xlim=(-0.8, width - 0.2), ylim=(-0.6, 1.7))
        ax.axis("off")
        ax.set_title(title, fontsize=9, color=theme.ink)
    return figure


def panels(count: int, height: float, lines: int = 1) -> tuple[Any, list[Any], Theme, str]:
    """A figure with lines of panels side by side, their theme, and the fill of what is read from a cache."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        lines, count, figsize=(8.6, height), layout="constrained", sharex=lines > 1, sharey=True, squeeze=False
    )
    theme, *_ = [axes_and_theme(ax, (4, 3))[1] for ax in axes.flat]
    return figure, [list(line) for line in axes], theme, mix(cache_hue(theme), theme.pane, 0.45)


def _box(ax: Any, at: tuple[float, float], text: str, fill: str, ink: str) -> None:
    ax.scatter(*at, s=600, marker="s", facecolor=fill, edgecolor=ink, linewidth=0.5, zorder=2)
    ax.text(*at, text, ha="center", va="center", fontsize=7, color=ink)
