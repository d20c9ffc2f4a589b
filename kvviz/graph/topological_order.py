"""Topological order of nodes: stable, and clear about cycles."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

Names = Sequence[Sequence[str]]


def topological(reads: Names, makes: Names) -> list[int] | None:
    """Order in which nodes can run, by the value names they read and make; None where they depend on each other in a
    circle. Among the nodes that could come next the earliest of the given order does, so a list that is sorted already
    stays as it is. Names that no node makes are taken as given."""
    sorter = _sorter(reads, makes)
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


def find_cycle(reads: Names, makes: Names) -> list[int]:
    """Positions of nodes along one circle, each before one that waits for it, the first node last; empty for none."""
    try:
        _sorter(reads, makes).prepare()
    except CycleError as error:
        circle: list[int] = error.args[1][:-1]
        last = circle.index(min(circle)) + 1
        return circle[last:] + circle[:last]
    return []


def _sorter(reads: Names, makes: Names) -> TopologicalSorter[int]:
    maker = {name: i for i, names in enumerate(makes) for name in names if name}
    return TopologicalSorter({i: {maker[name] for name in names if name in maker} for i, names in enumerate(reads)})
