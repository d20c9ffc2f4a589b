"""Blocks: a graph's nodes in parts small enough to read, by module where the model says so."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from kvviz.graph.model import Graph, Node
from kvviz.graph.parts.cutter import MOST, Cutter, Layer
from kvviz.graph.parts.module_paths import Scope, common_path

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


__all__ = ["MOST", "Block", "blocks", "repeats"]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    title: str  # e.g. ``"layer 1 · self_attn"``
    path: Scope  # module path that all its nodes have in common
    nodes: tuple[Node, ...]
    key: str  # equal for blocks of equal structure; names and attribute values do not count
    stack: Layer | None = None  # which of several modules with a number each it lies in


def blocks(graph: Graph, order: Sequence[Node] | None = None) -> tuple[Block, ...]:
    """Cut a graph into blocks of at most ``MOST`` nodes, ``order`` being the nodes as a schedule ran them.

    Every node is in exactly one block. Blocks come in the order of their first node, but after those whose values they
    read (but for rare modules that need each other). Layers (numbered modules) are never mixed. A graph without module
    paths is cut where few values are alive.
    """
    nodes = graph.nodes if order is None else tuple(order)
    if not nodes:
        return ()
    cutter = Cutter(nodes)
    found: list[Block] = []
    for group in cutter.split((), range(len(nodes))):
        path = common_path([nodes[i].scope for i in group.members])
        title = cutter.title(group, path)
        layer = cutter.layer(path)
        sections = cutter.sections(group.members, scoped=bool(path or group.labels))
        for count, section in enumerate(sections, 1):
            if title:
                name = title if len(sections) == 1 else f"{title} {count}/{len(sections)}"
            elif len(section) == 1:
                name = nodes[section[0]].op_type
            else:
                often = Counter(nodes[i].op_type for i in section).most_common(1)[0][0]
                name = f"nodes {section[0]}–{section[-1]} · {often}…"
            members = tuple(nodes[i] for i in section)
            found.append(Block(name, path, members, structural_key(members, graph.weights), layer))
    order_of_blocks = cutter.ordered([[cutter.place[id(node)] for node in block.nodes] for block in found])
    return tuple(found[k] for k in order_of_blocks)


def repeats(parts: Iterable[Block]) -> dict[str, list[int]]:
    """Structural key to the positions of the blocks that have it, in order."""
    found: dict[str, list[int]] = {}
    for i, block in enumerate(parts):
        found.setdefault(block.key, []).append(i)
    return found
