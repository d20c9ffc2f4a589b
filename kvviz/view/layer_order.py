"""The order of the boxes in each row of a layered drawing: as few crossing lines as can be found."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from random import Random

Rows = list[list[int]]
Near = list[list[int]]

SWEEPS = 16
# Neighbours change places, and more first orders are tried, in drawings up to so many boxes and bends.
LARGEST_EXCHANGE, LARGEST_TRIED = 1500, 400
SHUFFLES = 6


def best_order(rows: Rows, above: Near, below: Near) -> None:
    """Sort each row so that few lines between the rows cross.

    From several first orders: rows are sorted by the means of their neighbours' places, down and up in turn, and then
    neighbours change places where that helps (Gansner and others, "A Technique for Drawing Directed Graphs", 1993). The
    best order that was seen stays.
    """
    position = [0.0] * len(above)
    best, fewest = rows, -1
    for start in _starts(rows, above, below):
        for sweep in range(SWEEPS):
            if sweep:
                _sort(start, above, below, position, sweep)
            else:
                for row in start:
                    _number(row, position)
            if len(above) <= LARGEST_EXCHANGE:
                _exchange(start, above, below, position)
            crossings = _crossings(start, below, position)
            if fewest < 0 or crossings < fewest:
                best, fewest = [list(row) for row in start], crossings
            if not fewest:
                rows[:] = best
                return
    rows[:] = best


def _starts(rows: Rows, above: Near, below: Near) -> Iterator[Rows]:
    """First orders: the given one, those in which a walk from the top or the bottom finds the boxes, shuffled ones."""
    yield [list(row) for row in rows]
    yield _walked(rows, above, below)
    if len(above) <= LARGEST_TRIED:
        yield _walked(rows[::-1], above, below)[::-1]
        for seed in range(SHUFFLES):
            shuffled = [list(row) for row in rows]
            dice = Random(seed)
            for row in shuffled:
                dice.shuffle(row)
            yield shuffled


def _walked(rows: Rows, above: Near, below: Near) -> Rows:
    """The rows in the order in which a walk finds their boxes: what hangs together stands together."""
    found: Rows = [[] for _ in rows]
    level = {item: i for i, row in enumerate(rows) for item in row}
    seen: set[int] = set()
    for row in rows:
        for first in row:
            stack = [first]
            while stack:
                item = stack.pop()
                if item in seen:
                    continue
                seen.add(item)
                found[level[item]].append(item)
                stack += reversed([*above[item], *below[item]])
    return found


def _sort(rows: Rows, above: Near, below: Near, position: list[float], sweep: int) -> None:
    """Sort all rows by the means of their neighbours' places; every other pair of sweeps, equal ones change order."""
    down = sweep % 2 == 1
    near = above if down else below
    for row in rows if down else reversed(rows):
        key = {i: sum(position[j] for j in near[i]) / len(near[i]) if near[i] else position[i] for i in row}
        if sweep % 4 > 1:
            row.reverse()
        row.sort(key=key.__getitem__)
        _number(row, position)


def _exchange(rows: Rows, above: Near, below: Near, position: list[float]) -> None:
    """Let neighbours change places as long as that leaves fewer crossings."""
    waiting = set(range(len(rows)))
    for _ in range(4 * len(rows)):
        if not waiting:
            return
        level = min(waiting)
        waiting.discard(level)
        row = rows[level]
        changed = False
        for i in range(len(row) - 1):
            a, b = row[i], row[i + 1]
            won = 0
            for near in (above, below):
                first, second = sorted(position[j] for j in near[a]), sorted(position[j] for j in near[b])
                won += _inversions(first, second) - _inversions(second, first)
            if won > 0:
                row[i], row[i + 1] = b, a
                position[b], position[a] = i, i + 1
                changed = True
        if changed:
            waiting |= {near for near in (level - 1, level, level + 1) if 0 <= near < len(rows)}


def _inversions(first: list[float], second: list[float]) -> int:
    """Pairs of ends that cross while the item of ``first`` stands left; both sorted."""
    return sum(bisect_left(second, end) for end in first)


def _number(row: list[int], position: list[float]) -> None:
    for i, item in enumerate(row):
        position[item] = i


def _crossings(rows: Rows, below: Near, position: list[float]) -> int:
    """Pairs of lines between neighbouring rows that cross."""
    found = 0
    for row in rows:
        ends: list[float] = []
        for item in row:
            # Lines from one item do not cross each other, so they are counted before any of them is added.
            here = sorted(position[j] for j in below[item])
            found += sum(len(ends) - bisect_right(ends, end) for end in here)
            for end in here:
                insort(ends, end)
    return found
