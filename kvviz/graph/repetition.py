"""What repeats itself in a graph whose names say nothing of layers: the longest stretch of equal parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvviz.graph.cutter import values_alive
from kvviz.graph.model import Graph, Node

# A layer has so many nodes of so many operators at least, and so many at most.
_LEAST, _KINDS, _MOST = 5, 3, 2000
# A period that explains so much of what the best one does, and is shorter, is the layer; a multiple of it is not.
_ENOUGH = 0.95


def repeated(graph: Graph) -> list[list[Node]]:
    """Nodes of each repetition, in the order of the model; empty where nothing repeats itself.

    Repetitions have the same operators in the same order; the cut is where the fewest values pass from one to the next.
    """
    nodes = graph.nodes
    codes = _codes(nodes)
    size = len(codes)
    found: list[tuple[int, int, int]] = []  # nodes explained, period, start
    for period in range(_LEAST, min(size // 2, _MOST) + 1):
        start, length = _longest(codes[:-period] == codes[period:])
        if length >= period:
            found.append((length + period, period, start))
    if not found:
        return []
    most = max(explained for explained, _, _ in found)
    explained, period, start = next(one for one in found if one[0] >= _ENOUGH * most)
    if len(set(codes[start : start + period].tolist())) < _KINDS:
        return []
    place = {name: i for i, node in enumerate(nodes) for name in node.outputs if name}
    needs = [sorted({place[n] for n in (*node.inputs, *node.captures) if n in place}) for node in nodes]
    crossing = values_alive(needs)
    cut = min(range(start, start + explained % period + 1), key=lambda at: (crossing[at], at))
    return [list(nodes[at : at + period]) for at in range(cut, start + explained - period + 1, period)]


def _codes(nodes: Sequence[Node]) -> np.ndarray:
    """A number for each node, equal for the same operator with as many inputs and outputs."""
    known: dict[tuple[str, int, int], int] = {}
    kinds = [(node.qualified_op, len(node.inputs), len(node.outputs)) for node in nodes]
    return np.array([known.setdefault(kind, len(known)) for kind in kinds], np.int64)


def _longest(equal: np.ndarray) -> tuple[int, int]:
    """(start, length) of the longest run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], equal, [False]))))
    if not len(edges):
        return 0, 0
    starts, ends = edges[::2], edges[1::2]
    at = int(np.argmax(ends - starts))
    return int(starts[at]), int(ends[at] - starts[at])
