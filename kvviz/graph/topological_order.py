"""Topological order of nodes: stable, and clear about cycles."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def topological(reads: Sequence[Sequence[str]], makes: Sequence[Sequence[str]]) -> list[int] | None:
    """Order in which nodes can run, by the value names they read and make; None where they depend on each other in a
    circle. Among the nodes that could come next the earliest of the given order does, so a list that is sorted already
    stays as it is. Names that no node makes are taken as given."""
    waits, followers = _dependencies(reads, makes)
    left = [len(w) for w in waits]
    ready = [i for i, count in enumerate(left) if not count]
    order: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for j in followers[i]:
            left[j] -= 1
            if not left[j]:
                heapq.heappush(ready, j)
    return order if len(order) == len(left) else None


def find_cycle(reads: Sequence[Sequence[str]], makes: Sequence[Sequence[str]]) -> list[int]:
    """Positions of nodes along one circle; empty where there is none."""
    waits, followers = _dependencies(reads, makes)
    left = [len(w) for w in waits]
    ready = [i for i, count in enumerate(left) if not count]
    while ready:
        for j in followers[ready.pop()]:
            left[j] -= 1
            if not left[j]:
                ready.append(j)
    stuck = {i for i, count in enumerate(left) if count}
    if not stuck:
        return []
    # Every stuck node waits for a stuck node, so walking back must meet a node twice.
    path: list[int] = []
    seen: dict[int, int] = {}
    node = min(stuck)
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        node = min(waits[node] & stuck)
    return path[seen[node] :][::-1]


def _dependencies(
    reads: Sequence[Sequence[str]], makes: Sequence[Sequence[str]]
) -> tuple[list[set[int]], list[list[int]]]:
    maker = {name: i for i, names in enumerate(makes) for name in names if name}
    waits = [{maker[name] for name in names if name in maker} for names in reads]
    followers: list[list[int]] = [[] for _ in waits]
    for i, w in enumerate(waits):
        for j in w:
            followers[j].append(i)
    return waits, followers
