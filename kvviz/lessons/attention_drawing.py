"""A picture of what each head weighed, and of what the answer depends on, over the words of the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def word_ticks(words: Sequence[str], ax: Any) -> None:
    """Words under an axis, one for each position; a line break is shown as such."""
    told = [word.strip(" ") if word.strip() else "\\n" for word in words]
    ax.set_xticks(range(len(told)), told, rotation=90, fontsize=8)


def draw_attention(weights: np.ndarray, words: Sequence[str], ax: Any, least: float = 0.25) -> None:
    """Attention weights as a heat map, (heads, positions), with numbers from ``least`` on."""
    picture = ax.imshow(weights, aspect="auto", cmap="Blues", vmin=0, vmax=1)
    word_ticks(words, ax)
    ax.set_yticks(range(len(weights)))
    ax.set(ylabel="query head")
    for head, row in np.argwhere(weights > least):
        share = weights[head, row]
        ink = "white" if share > 0.5 else "black"
        ax.text(row, head, f"{share:.1f}".lstrip("0"), ha="center", va="center", color=ink, fontsize=7)
    ax.figure.colorbar(picture, ax=ax, label="weight", pad=0.01)


def draw_dependence(weights: Sequence[float], kept: Sequence[float], words: Sequence[str], figure: Any) -> None:
    """Weight of each row above the probability that the answer keeps without that row, over the same words.

    ``weights`` and ``kept``: one number for each word. A first row that draws most of the weight is cut, with its
    number beside it.
    """
    upper, lower = figure.subplots(2, 1, sharex=True)
    colours = ["#e8590c" if row == 0 else "#1864ab" for row in range(len(words))]
    for ax, series, label in ((upper, weights, "mean weight"), (lower, kept, "probability")):
        ax.bar(range(len(words)), series, color=colours)
        ax.set_ylabel(label)
    top = 1.3 * max(weights[1:])
    upper.set_ylim(0, top)
    if weights[0] > top:
        upper.annotate(f"{weights[0]:.2f}", (0.6, 0.85 * top), fontsize=8)
    lower.set_ylim(0, 1)
    lower.tick_params(axis="x", labelbottom=True)
    word_ticks(words, lower)
