"""What happens to state, KV caches and recurrent state, in the order of a graph and from graph to graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from kvviz.ggml.address_lives import ancestors
from kvviz.ggml.compute_graph import ComputeGraph
from kvviz.ggml.op_effects import effects
from kvviz.ggml.tensor import Tensor
from kvviz.trace.regions import Region, overlap


class StateAccess(NamedTuple):
    """Bytes of state that a node of a graph reads or writes."""

    graph: int
    place: int
    writes: bool
    region: Region


def reads_before_overlapping_write(graph: ComputeGraph) -> int:
    """Pairs of a node that reads state and a later one that overwrites these bytes, between which no path leads.

    In an attention cache that is a stale read: rows are written first, and then read. A recurrent state is read, and
    then replaced.
    """
    before = ancestors(graph.nodes)
    found: set[tuple[int, int]] = set()
    for accesses in _by_root([graph]).values():
        for early, late in combinations(accesses, 2):
            unordered = early.place < late.place and not before[late.place] >> early.place & 1
            if unordered and not early.writes and late.writes and overlap(early.region, late.region):
                found.add((early.place, late.place))
    return len(found)


def across_graphs(graphs: Sequence[ComputeGraph]) -> dict[str, int]:
    """Pairs of nodes of different graphs that touch the same bytes of state, by kind: what keeps the graphs in order.

    A row that a graph writes is read in all that follow (RAW), and what a graph reads is overwritten in later ones
    (WAR, WAW). Nothing but the order of the calls keeps them apart.
    """
    found: set[tuple[str, StateAccess, StateAccess]] = set()
    for accesses in _by_root(graphs).values():
        for early, late in combinations(accesses, 2):
            if early.graph < late.graph and (early.writes or late.writes) and overlap(early.region, late.region):
                kind = "WAR" if not early.writes else "WAW" if late.writes else "RAW"
                # A pair of nodes counts once, through however many views they meet.
                found.add((kind, early._replace(region=_NOWHERE), late._replace(region=_NOWHERE)))
    return dict(Counter(kind for kind, _, _ in found))


_NOWHERE = Region(0, (), (), "uint8")


def _by_root(graphs: Sequence[ComputeGraph]) -> dict[Tensor, list[StateAccess]]:
    found: dict[Tensor, list[StateAccess]] = {}
    for number, graph in enumerate(graphs):
        for root, access in _accesses(number, graph):
            found.setdefault(root, []).append(access)
    return {root: accesses for root, accesses in found.items() if any(access.writes for access in accesses)}


def _accesses(number: int, graph: ComputeGraph) -> Iterator[tuple[Tensor, StateAccess]]:
    executed = set(graph.executed)
    for place, node in enumerate(graph.nodes):
        for effect in effects(node) if node in executed else ():
            if effect.tensor.root.role == "state":
                yield effect.tensor.root, StateAccess(number, place, effect.writes, effect.region)
