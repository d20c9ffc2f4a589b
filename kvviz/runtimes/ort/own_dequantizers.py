"""A DequantizeLinear of its own for every node that reads one: onnxruntime adds copies before it does anything else.

Its kernels for quantized types need a DequantizeLinear that nobody else reads. Copies are added at every optimisation
level; only the session option ``session.disable_quant_qdq`` prevents it. Source: ``EnsureUniqueDQForNodeUnit`` of
onnxruntime 1.31.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from kvviz.graph.model import MAX_NODES, Graph, Node
from kvviz.runtimes.ort.ort_walk import walk


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
