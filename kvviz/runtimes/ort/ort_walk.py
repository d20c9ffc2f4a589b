"""onnxruntime's walk over a graph: its order of execution, and the order in which it changes nodes before."""

from __future__ import annotations

from collections.abc import Sequence

from kvviz.graph.model import Node
from kvviz.runtimes.ort import planning_story
from kvviz.runtimes.schedules.planning_events import Log


def walk(nodes: Sequence[Node], log: Log | None = None) -> list[Node]:
    """The walk itself, over nodes whose inputs are as onnxruntime has them."""
    makers = {name: node for node in nodes for name in node.outputs if name}
    above = {
        node.index: sorted({makers[n].index for n in (*node.inputs, *node.captures) if n in makers}) for node in nodes
    }
    followed = {index for indices in above.values() for index in indices}
    by_index = {node.index: node for node in nodes}
    # (node, the one whose makers brought it here, depth); -1 for an end of the graph
    stack = [(index, -1, 0, False) for index in sorted(by_index) if index not in followed]
    order: list[Node] = []
    met: set[int] = set()
    while stack:
        index, reader, depth, leaving = stack.pop()
        node = by_index[index]
        if leaving:
            order.append(node)
        if log is not None:
            log(planning_story.walked(node, by_index.get(reader), depth, leaving, index in met, len(order)))
        if leaving or index in met:
            continue
        met.add(index)
        stack.append((index, reader, depth, True))
        stack += [(i, index, depth + 1, False) for i in above[index] if i not in met]
    return order
