"""A model as onnxruntime has it once it has removed Casts: what it does not run reads what it stands for.

Of two Casts that lead back to where they began the second one goes, and its readers read what the first one reads. The
first one stays where something else reads it, and may then come later, or overwrite what nobody else needs any more.
So the second one, which still runs here, must not wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvviz.engine.plan import needed
from kvviz.graph.model import Graph, Node
from kvviz.runtimes.ort.known_types import adopt, known
from kvviz.runtimes.ort.removed_casts import Rewritten, without_duplicates


def rewired(graph: Graph, outputs: Sequence[str]) -> Graph:
    """A model in which removed Casts read what they stand for, at any depth; the model itself where all do already.

    ``graph``: a main graph.
    ``outputs``: what is wanted.
    """
    key = ("onnxruntime", tuple(outputs))
    found = graph.derived.get(key)
    if found is None:
        known(graph)
        found = _rewired(graph, outputs)
        if found is not graph:
            graph.derived[key] = found
    return found


def remaining(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str]) -> Rewritten:
    """What onnxruntime plans of these nodes, found out from the nodes as the model has them."""
    facts = known(graph)
    return without_duplicates(graph, [facts.written.get(n.index, n) for n in nodes], outputs, facts.types)


def _rewired(graph: Graph, outputs: Sequence[str]) -> Graph:
    changed: dict[int, Node] = {}
    for node in graph.nodes:
        bodies = {name: _rewired(body, _names(body)) for name, body in node.subgraphs.items()}
        function = None if node.function is None else _rewired(node.function, _names(node.function))
        if function is not node.function or any(bodies[name] is not body for name, body in node.subgraphs.items()):
            changed[node.index] = replace(node, subgraphs=bodies, function=function)
    stands_for = remaining(graph, needed(graph, outputs), outputs).stands_for
    for made, source in stands_for.items():
        cast = graph.producers[made]
        if cast.inputs[0] not in stands_for and cast.inputs[0] != source:
            changed[cast.index] = replace(cast, inputs=(source,))
    if not changed:
        return graph
    new = replace(graph, nodes=tuple(changed.get(node.index, node) for node in graph.nodes))
    adopt(new, graph)
    return new


def _names(graph: Graph) -> tuple[str, ...]:
    return tuple(value.name for value in graph.outputs)
