"""Structural keys: equal for groups of nodes that look alike, whatever their names."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Sequence

from kvviz.graph.model import Node

_COMMUTATIVE = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "Sum", "BitwiseAnd", "BitwiseOr"})


def structural_key(nodes: Sequence[Node], weights: Container[str]) -> str:
    """A hash (16 hexadecimal digits) of the operators and the wiring of some nodes.

    Each node is described by everything that leads to it and everything that follows from it inside the group
    (Weisfeiler-Lehman colouring along a directed acyclic graph), so the order of independent nodes does not matter.
    Names, attribute values, shapes and the order of operands of commutative operators do not count; subgraphs do, and
    so does whether a value from outside is a weight.
    """
    maker = {name: (i, k) for i, node in enumerate(nodes) for k, name in enumerate(node.outputs) if name}
    reads = [(*node.inputs, *node.captures) for node in nodes]
    kinds = [_kind(node) for node in nodes]
    sorts = [node.op_type in _COMMUTATIVE for node in nodes]
    # A value from elsewhere is known by who reads it, so one value read twice differs from two values.
    readers: dict[str, list[str]] = {}
    for i, names in enumerate(reads):
        for position, name in enumerate(names):
            readers.setdefault(name, []).append(f"{kinds[i]}@{0 if sorts[i] else position}")
    above: list[str] = []
    below: dict[int, list[str]] = {}
    for i, names in enumerate(reads):
        said = []
        for name in names:
            if name in maker and maker[name][0] < i:
                said.append(f"{above[maker[name][0]]}.{maker[name][1]}")
            elif not name:
                said.append("")
            else:
                said.append(("weight" if name in weights else "value") + _digest(sorted(readers[name])))
        above.append(_digest([kinds[i], *(sorted(said) if sorts[i] else said)]))
    colours = []
    for i in reversed(range(len(nodes))):
        own = _digest([kinds[i], *sorted(below.get(i, []))])
        for position, name in enumerate(reads[i]):
            if name in maker and maker[name][0] < i:
                below.setdefault(maker[name][0], []).append(f"{maker[name][1]}>{0 if sorts[i] else position}{own}")
        colours.append(above[i] + own)
    return _digest(sorted(colours))


def _kind(node: Node) -> str:
    outputs = "".join("01"[bool(name)] for name in node.outputs)
    inner = [f"{name}={structural_key(graph.nodes, graph.weights)}" for name, graph in sorted(node.subgraphs.items())]
    return " ".join([node.qualified_op, outputs, *inner])


def _digest(parts: Sequence[str]) -> str:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
