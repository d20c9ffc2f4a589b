"""Pairs of nodes that another order swaps and whose bytes meet: found from tensors, without a trace or its hazards."""

from collections.abc import Sequence
from itertools import combinations

from kvviz.ggml.graph.op_effects import effects
from kvviz.ggml.graph.tensor import Tensor
from kvviz.trace.schema.regions import Level, overlap


def swapped_pairs(
    nodes: Sequence[Tensor], order: Sequence[Tensor], level: Level = "exact"
) -> list[tuple[str, Tensor, Tensor, Tensor, int]]:
    """(kind, first, second, root, bytes) of each, in the order of the first list."""
    new = {node: i for i, node in enumerate(order)}
    touched = {node: effects(node) for node in nodes}
    found: dict[tuple[str, Tensor, Tensor, Tensor], int] = {}
    for first, second in combinations(nodes, 2):
        for one in touched[first] if new[first] > new[second] else ():
            for two in touched[second]:
                root = one.tensor.root
                if (one.writes or two.writes) and root is two.tensor.root:
                    kind = "WAW" if one.writes and two.writes else "RAW" if one.writes else "WAR"
                    count = overlap(one.region, two.region, level, root.nbytes)
                    if count:
                        found[kind, first, second, root] = found.get((kind, first, second, root), 0) + count
    return [(*key, count) for key, count in found.items()]
