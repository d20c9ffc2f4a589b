"""Which rows of the caches depend on which token: compute them from other tokens, and compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvviz.errors import KvvizError
from kvviz.graph.model import Graph
from kvviz.lessons.lesson_charts import panels
from kvviz.lessons.serving.forward_pass import forward, pairs_of
from kvviz.trace.model_or_trace import as_graph
from kvviz.view.chart_axes import finish


def changed_rows(graph: Graph, tokens: Sequence[int], other: Sequence[int]) -> np.ndarray:
    """How much the key rows of tokens differ from those that are computed from other tokens in their place.

    Parameters
    ----------
    graph : Graph
        A decoder with growing caches, as `kvviz.lessons.serving.forward` takes it.
    tokens, other : sequence of int
        Each is read in one forward pass. ``other`` is at least as long; what it has behind is not compared.

    Returns
    -------
    ndarray
        (layers, tokens): the largest absolute difference in a row, over all heads.

    Raises
    ------
    KvvizError
        If ``other`` is shorter.
    """
    graph = as_graph(graph, "kvviz.lessons.changed_rows")
    count = len(tokens)
    if len(other) < count:
        raise KvvizError(f"the other tokens are {len(other)}; give at least as many as there are rows, {count}")
    mine, theirs = (forward(graph, [list(one)]).rows for one in (tokens, other))
    keys = [pair.input for pair in pairs_of(graph) if pair.name.endswith("key")]
    return np.array([abs(mine[name] - theirs[name][:, :, :count]).max((0, 1, 3)) for name in keys])


def row_changes(changes: Mapping[str, np.ndarray], words: Sequence[str]) -> Any:
    """A chart of what `changed_rows` gives: one line of panels for each change, with one panel for each layer.

    Parameters
    ----------
    changes : mapping of str to ndarray
        By a name of the change.
    words : sequence of str
        The words whose rows they are.

    Returns
    -------
    Figure
    """
    layers = len(next(iter(changes.values())))
    high = 1.1 * max(change.max() for change in changes.values())
    figure, axes, theme, _ = panels(layers, 1.6 * len(changes) + 0.6, len(changes))
    for line, (name, change) in zip(axes, changes.items()):
        for layer, ax in enumerate(line):
            ax.bar(range(len(words)), change[layer], color=theme.accent)
            ax.set(ylim=(0, high), xlim=(-0.6, len(words) - 0.4))
            ax.set_xticks(range(len(words)), words, rotation=60, ha="right")
            finish(ax, theme, "", "" if layer else "difference", f"layer {layer}: {name}")
            ax.tick_params(axis="x", labelsize=7)
    return figure
