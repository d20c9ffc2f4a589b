"""Cut a long list of nodes at its narrow points, where few values are alive."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence


def narrow_sections(needs: Sequence[Sequence[int]], target: float, most: int) -> list[tuple[int, int]]:
    """Sections (start, end) of about equal size with as few values as possible passing from one to the next. ``needs``
    has for each node, in running order, the positions of the nodes whose values it reads; ``most`` is at least 1.5
    times ``target``, or a size that divides the list into equal parts."""
    size, least = len(needs), max(1, int(target) // 2)
    crossing = values_alive(needs)
    # best[i]: the cheapest way to cut the first i nodes, and where its last section starts.
    best: list[tuple[float, int]] = [(0.0, 0)] + [(math.inf, 0)] * size
    for end in range(least, size + 1):
        for start in range(max(0, end - most), end - least + 1):
            uneven = ((end - start) / target - 1) ** 2
            cost = best[start][0] + (crossing[end] if end < size else 0) + 4 * uneven
            if cost < best[end][0]:
                best[end] = (cost, start)
    cuts = [size]
    while cuts[-1]:
        cuts.append(best[cuts[-1]][1])
    return list(itertools.pairwise(reversed(cuts)))


def values_alive(needs: Sequence[Sequence[int]]) -> list[int]:
    """Nodes before each gap (0: before the first node) whose values are read after it."""
    last: dict[int, int] = {}
    for i, names in enumerate(needs):
        for j in names:
            last[j] = i
    change = [0] * (len(needs) + 1)
    for first, end in last.items():
        change[first + 1] += 1
        change[end + 1] -= 1
    return list(itertools.accumulate(change))
