"""A model as onnxruntime has it once it has copied DequantizeLinears and removed Casts.

A Cast that it does not run reads what it stands for. Of two Casts that lead back to where they began, the second one
goes, and its readers read what the first one reads. The first one stays where something else reads it. It may then come
later, or overwrite what nobody else needs any more. So the second one, which still runs here, must not wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvviz.engine.plan import needed
from kvviz.graph.model import Graph, Node
from kvviz.runtimes.ort.known_types import adopt, known
from kvviz.runtimes.ort.own_dequantizers import with_own_dequantizers
from kvviz.runtimes.ort.removed_casts import Rewritten, without_duplicates


def rewired(graph: Graph, outputs: Sequence[str]) -> Graph:
    """A model with copies of DequantizeLinears, in which removed Casts read what they stand for, at any depth; the
    model itself where nothing is to be changed.

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
    copied, stands_for = with_own_dequantizers(graph, needed(graph, outputs), outputs)
    nodes = tuple(map(_with_rewired_bodies, copied))
    new = graph
    if stands_for or any(node is not old for node, old in zip(nodes, graph.nodes)):
        new = replace(graph, nodes=nodes)
        adopt(new, graph, stands_for)
    gone = remaining(new, needed(new, outputs), outputs).stands_for
    changed = {}
    for made, source in gone.items():
        cast = new.producers[made]
        if cast.inputs[0] not in gone and cast.inputs[0] != source:
            changed[cast.index] = replace(cast, inputs=(source,))
    if not changed:
        return new
    rewritten = replace(new, nodes=tuple(changed.get(node.index, node) for node in new.nodes))
    adopt(rewritten, new)
    return rewritten


def _with_rewired_bodies(node: Node) -> Node:
    bodies = {name: _rewired(body, _names(body)) for name, body in node.subgraphs.items()}
    function = None if node.function is None else _rewired(node.function, _names(node.function))
    if function is node.function and all(bodies[name] is body for name, body in node.subgraphs.items()):
        return node
    return replace(node, subgraphs=bodies, function=function)


def _names(graph: Graph) -> tuple[str, ...]:
    return tuple(value.name for value in graph.outputs)
