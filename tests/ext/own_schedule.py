"""An order of one's own: of the ops that can run, the one that frees most comes first."""

from collections import Counter
from collections.abc import Sequence

from kvviz.ext import Graph, Node


def last_readers_first(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str]) -> list[Node]:
    """Run next the last reader of most values that ops made; among equals, what the model lists first."""
    made = {name for node in nodes for name in node.outputs if name}
    left = Counter(name for node in nodes for name in {*node.inputs, *node.captures} if name)
    waiting, order, known = list(nodes), list[Node](), set[str]()
    while waiting:
        ready = [node for node in waiting if not ({*node.inputs, *node.captures} & made) - known]
        node = max(
            ready, key=lambda one: sum(left[name] == 1 for name in made.intersection(one.inputs).difference(outputs))
        )
        waiting.remove(node)
        order.append(node)
        known.update(node.outputs)
        left.subtract({*node.inputs, *node.captures})
    return order
