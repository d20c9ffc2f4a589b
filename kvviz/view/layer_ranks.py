"""Which row of a layered drawing each box stands in: as short lines as can be, and no line upward."""

from __future__ import annotations

from collections.abc import Sequence

Links = Sequence[tuple[int, int]]

ROUNDS = 8
# A set of boxes that moves together is not followed further than this.
LARGEST_SET = 64


def ranks(n: int, links: Links) -> list[int]:
    """The row of each of ``n`` boxes, from 0 at the top; ``links`` go forward by index.

    First every box stands as far up as the longest path to it allows. Then sets of boxes move as long as that makes the
    lines shorter altogether: a box, and whatever its move pushes on. Rows are what network simplex would find or close
    to it, for a fraction of the code.
    """
    rank = [0] * n
    readers: list[list[int]] = [[] for _ in range(n)]
    feeders: list[list[int]] = [[] for _ in range(n)]
    for source, target in sorted(links):
        rank[target] = max(rank[target], rank[source] + 1)
        readers[source].append(target)
        feeders[target].append(source)
    for _ in range(ROUNDS):
        moved = False
        for item in reversed(range(n)):
            moved |= _move(item, rank, readers, feeders, 1)
        for item in range(n):
            moved |= _move(item, rank, feeders, readers, -1)
        if not moved:
            break
    top = min(rank, default=0)
    rank = [row - top for row in rank]
    _even_out(rank, readers, feeders)
    return rank


def _even_out(rank: list[int], readers: list[list[int]], feeders: list[list[int]]) -> None:
    """Move boxes that may stand in several rows, with lines as long in each, to the row with the fewest boxes."""
    crowd = [0] * (max(rank, default=-1) + 1)
    for row in rank:
        crowd[row] += 1
    for item, row in enumerate(rank):
        if feeders[item] and len(readers[item]) == len(feeders[item]):
            first = max(rank[other] for other in feeders[item]) + 1
            last = min(rank[other] for other in readers[item]) - 1
            crowd[row] -= 1
            rank[item] = min(range(first, last + 1), key=lambda place: (crowd[place], abs(place - row)))
            crowd[rank[item]] += 1


def _move(item: int, rank: list[int], ahead: list[list[int]], behind: list[list[int]], way: int) -> bool:
    """Move a box, and what stands directly in its way, towards ``ahead``, if the lines get shorter by it."""
    together, stack, gain = {item}, [item], 0
    while stack:
        box = stack.pop()
        gain += len(ahead[box]) - len(behind[box])
        for other in ahead[box]:
            if other not in together and (rank[other] - rank[box]) * way == 1:
                together.add(other)
                stack.append(other)
        if len(together) > LARGEST_SET:
            return False
    if gain <= 0:
        return False
    spare = [(rank[o] - rank[box]) * way - 1 for box in together for o in ahead[box] if o not in together]
    room = min(spare, default=0)
    for box in together:
        rank[box] += room * way
    return room > 0
