"""Blocks: a graph's nodes in parts small enough to read, by module where the model says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvviz.graph.cutter import MOST, Cutter
from kvviz.graph.model import Graph, Node
from kvviz.graph.module_paths import Scope, common_path
from kvviz.graph.structural_keys import structural_key

__all__ = ["MOST", "Block", "blocks", "repeats"]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    title: str  # e.g. ``"layer 1 · self_attn"``
    path: Scope  # module path that all its nodes have in common
    nodes: tuple[Node, ...]
    key: str  # equal for blocks of equal structure; names and attribute values do not count


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
            found.append(Block(name, path, members, structural_key(members, graph.weights)))
    order_of_blocks = cutter.ordered([[cutter.place[id(node)] for node in block.nodes] for block in found])
    return tuple(found[k] for k in order_of_blocks)


def repeats(parts: Iterable[Block]) -> dict[str, list[int]]:
    """Structural key to the positions of the blocks that have it, in order."""
    found: dict[str, list[int]] = {}
    for i, block in enumerate(parts):
        found.setdefault(block.key, []).append(i)
    return found
