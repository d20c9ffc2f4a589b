"""Topological order of nodes, and the frontier: which of them can run next."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from kvviz.graph.model import Node

Names = Sequence[Sequence[str]]


def topological(needs: Sequence[Collection[int]]) -> list[int] | None:
    """Order in which nodes can run, by the positions of those that must run before each; None if there is a cycle.
    Among the possible next nodes the earliest of the given order comes first, so a sorted list stays as it is."""
    sorter = TopologicalSorter(dict(enumerate(needs)))
    try:
        sorter.prepare()
    except CycleError:
        return None
    ready = list(sorter.get_ready())
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        sorter.done(order[-1])
        for node in sorter.get_ready():
            heapq.heappush(ready, node)
    return order


def find_cycle(needs: Sequence[Collection[int]]) -> list[int]:
    """Positions of nodes along one cycle, each before one that waits for it, the first node last; empty if none."""
    try:
        TopologicalSorter(dict(enumerate(needs))).prepare()
    except CycleError as error:
        circle: list[int] = error.args[1][:-1]
        last = circle.index(min(circle)) + 1
        return circle[last:] + circle[:last]
    return []


def needs_of(reads: Names, makes: Names) -> list[set[int]]:
    """For each node the positions of the nodes that make its inputs; names that no node makes count as given."""
    maker = {name: i for i, names in enumerate(makes) for name in names if name}
    return [{maker[name] for name in names if name in maker} for names in reads]


def needs_between(nodes: Sequence[Node]) -> list[list[int]]:
    reads = [(*node.inputs, *node.captures) for node in nodes]
    return [sorted(needs) for needs in needs_of(reads, [node.outputs for node in nodes])]


def frontier(needs: Iterable[Collection[int]], done: Sequence[int]) -> list[int]:
    """The ready set, called frontier everywhere else: positions, in order, of the nodes that have not run and whose
    needs all have. ``needs``: for each node the positions of those that must run before it. ``done``: for each node
    whether it has run."""
    return [at for at, before in enumerate(needs) if not done[at] and all(done[one] for one in before)]
