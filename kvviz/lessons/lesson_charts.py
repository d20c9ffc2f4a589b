"""Charts that lessons share: which rows a run computes, and on which side of a processor's balance it lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvviz.errors import KvvizError
from kvviz.lessons.run_work import Work
from kvviz.view.chart_axes import axes_and_theme, finish, hue_of
from kvviz.view.palette import OWNERS, mix


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
    from matplotlib import pyplot as plt
    from matplotlib.patches import Patch

    figure, axes = plt.subplots(1, len(ways), figsize=(8.6, 3.6), layout="constrained", sharey=True, squeeze=False)
    for ax, (name, rows) in zip(axes[0], ways.items()):
        _, theme = axes_and_theme(ax, (4, 3))
        found, made = mix(hue_of(OWNERS["donated"], theme), theme.pane, 0.45), theme.accent
        fresh = np.asarray(rows, int)
        ax.barh(range(len(fresh)), needed - fresh, color=found, height=1)
        ax.barh(range(len(fresh)), fresh, left=needed - fresh, color=made, height=1)
        ax.set(ylim=(len(fresh) - 0.5, -0.5), xlim=(0, max(needed)))
        finish(ax, theme, "row of the sequence", "run" if ax is axes[0][0] else "", f"{name}: {fresh.sum():,} computed")
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
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(kv_heads), figsize=(8.6, 2.1), layout="constrained", squeeze=False)
    for ax, count in zip(axes[0], kv_heads):
        _, theme = axes_and_theme(ax, (4, 2))
        found = mix(hue_of(OWNERS["donated"], theme), theme.pane, 0.45)
        group = heads // count
        for head in range(heads):
            shared = head // group * group + (group - 1) / 2
            ax.plot([head, shared], [1, 0], color=theme.soft, linewidth=1, zorder=1)
        for names, y, fill in (("q", 1, theme.accent), ("kv", 0, found)):
            at = [i * group + (group - 1) / 2 for i in range(count)] if names == "kv" else list(range(heads))
            ax.scatter(at, [y] * len(at), s=420, marker="s", color=fill, zorder=2)
            for i, x in enumerate(at):
                text = f"q{i}" if names == "q" else f"k{i} v{i}"
                ax.text(x, y, text, ha="center", va="center", fontsize=7, color=theme.pane if y else theme.ink)
        ax.set(xlim=(-0.6, heads - 0.4), ylim=(-0.5, 1.5))
        ax.axis("off")
        ax.set_title(f"{heads} query heads, {count} KV head{'s' if count > 1 else ''}", fontsize=9, color=theme.ink)
    return figure
