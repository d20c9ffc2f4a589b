"""A model as onnxruntime has it once it has copied DequantizeLinears and removed Casts.

A Cast that it does not run reads what it stands for. Of two Casts that lead back to where they began, the second one
goes, and its readers read what the first one reads. The first one stays where something else reads it. It may then come
later, or overwrite what nobody else needs any more. So the second one, which still runs here, must not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from kvviz.engine.plans.plan import needed
from kvviz.graph.model import MAX_NODES, Graph, Node
from kvviz.runtimes.ort.known_types import adopt, known
from kvviz.runtimes.ort.ort_walk import walk
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


# -- own dequantizers -------------------------------------------------------------------------------------------------
# A DequantizeLinear of its own for every node that reads one: onnxruntime adds copies before it does anything else.
#
# Its kernels for quantized types need a DequantizeLinear that nobody else reads. Copies are added at every
# optimisation level; only the session option ``session.disable_quant_qdq`` prevents it. Source:
# ``EnsureUniqueDQForNodeUnit`` of onnxruntime 1.31.


def with_own_dequantizers(
    graph: Graph, nodes: Sequence[Node], outputs: Sequence[str]
) -> tuple[tuple[Node, ...], Mapping[str, str]]:
    """The nodes of a graph with the copies that onnxruntime adds, each just behind its original.

    ``nodes``: those that run; the others are left as they are.
    ``outputs``: values that are wanted.

    The second answer maps the output of each copy to the output of its original.
    """
    readers = _readers(nodes)
    if not any(_is_shared(node, readers, outputs) for node in nodes):
        return graph.nodes, {}
    now = {node.index: node for node in graph.nodes}
    copies: dict[int, list[Node]] = {}
    stands_for: dict[str, str] = {}
    values, names, suffix = (
        {*graph.producers, *graph.weights},
        {node.name for node in graph.nodes},
        map("_token_{}".format, count()),
    )
    for index in [node.index for node in walk(nodes) if _is_shared(node, readers, outputs)]:
        made = now[index].outputs[0]
        edges, keeps = readers[made], made in outputs or any(position < 0 for _, position in readers[made])
        for reader, position in [edge for edge in edges if edge[1] >= 0][not keeps :]:
            value, name = _unused(made, values, suffix), _unused(now[index].name, names, suffix)
            number = sum(map(len, copies.values())) + 1
            copy = replace(now[index], name=name, outputs=(value,), index=index + number * MAX_NODES)
            copies.setdefault(index, []).append(copy)
            stands_for[value] = made
            inputs = now[reader].inputs
            now[reader] = replace(now[reader], inputs=(*inputs[:position], value, *inputs[position + 1 :]))
    listed = (one for node in graph.nodes for one in (now[node.index], *copies.get(node.index, ())))
    return tuple(listed), stands_for


def _readers(nodes: Sequence[Node]) -> dict[str, list[tuple[int, int]]]:
    """Value to the indices of the nodes that read it, with the input position, -1 for a capture of a body."""
    found: dict[str, list[tuple[int, int]]] = {}
    for node in sorted(nodes, key=lambda node: node.index):
        for position, name in enumerate(node.inputs):
            found.setdefault(name, []).append((node.index, position))
        for name in node.captures:
            found.setdefault(name, []).append((node.index, -1))
    return found


def _is_shared(node: Node, readers: Mapping[str, Sequence[tuple[int, int]]], outputs: Sequence[str]) -> bool:
    if node.op_type != "DequantizeLinear" or node.domain not in ("", "com.microsoft"):
        return False
    return len(readers.get(node.outputs[0], ())) + (node.outputs[0] in outputs) > 1


def _unused(base: str, taken: set[str], suffix: Iterator[str]) -> str:
    """A name as onnxruntime makes it, which is noted as taken."""
    name = base = f"{base}/duplicated"
    while name in taken:
        name = base + next(suffix)
    taken.add(name)
    return name
