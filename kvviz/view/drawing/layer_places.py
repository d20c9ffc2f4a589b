"""Positions of the boxes in each row of a layered drawing, and the routes of its long lines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Point = tuple[float, float]

GAP_X = 14
PASSES, SETTLING = 12, 24
# How strongly a line aligns its ends, by how many of its ends are bends: long lines should be straight.
PULL = (1.0, 2.0, 8.0)
# How strongly a box without lines keeps its position.
ALONE = 0.01
# The clearance of a line from a box, and of two lines from the middle between them.
CLEAR, APART = 7.0, 3.0


def places(rows: list[list[int]], widths: list[int], above: list[list[int]], below: list[list[int]]) -> list[float]:
    """The centre of every item: near its neighbours, and at least a gap away from the next item in its row. The first
    passes align a row with the means of the previous row, which finds the shape. The later passes align it with the
    medians of both sides, which straightens lines. Items of width 0 are bends of long lines."""
    centre = [0.0] * len(widths)
    bend = [int(not width) for width in widths]
    for row in rows:
        x = 0.0
        for item in row:
            centre[item] = x + widths[item] / 2
            x += widths[item] + GAP_X
    for turn in range(PASSES + SETTLING):
        down = turn % 2 == 0
        for row in rows if down else reversed(rows):
            middle = sum(centre[item] for item in row) / len(row)
            want = []
            for item in row:
                if turn < PASSES:
                    near = (above if down else below)[item] or (below if down else above)[item]
                else:
                    near = above[item] + below[item]
                pulls = [(centre[j], PULL[bend[item] + bend[j]]) for j in near]
                weight = sum(pull for _, pull in pulls)
                if not near:
                    wish = middle
                elif turn < PASSES:
                    wish = sum(place * pull for place, pull in pulls) / weight
                else:
                    wish = _median(pulls, weight, centre[item])
                want.append((wish, weight or ALONE))
            _spread(row, want, widths, centre)
    _close_up(rows, widths, centre, above, below)
    return centre


def _close_up(
    rows: list[list[int]], widths: list[int], centre: list[float], above: list[list[int]], below: list[list[int]]
) -> None:
    """Move each disconnected part next to the largest one, since no line has pulled it there."""
    part = [-1] * len(widths)
    parts: list[list[int]] = []
    for first in range(len(widths)):
        stack = [first] if part[first] < 0 else []
        if stack:
            part[first] = len(parts)
            parts.append([])
        while stack:
            item = stack.pop()
            parts[-1].append(item)
            for other in (*above[item], *below[item]):
                if part[other] < 0:
                    part[other] = len(parts) - 1
                    stack.append(other)
    if len(parts) < 2:
        return
    middle = [sum(centre[item] for item in items) / len(items) for items in parts]
    anchor = middle[max(range(len(parts)), key=lambda i: len(parts[i]))]
    for number in sorted(range(len(parts)), key=lambda i: abs(middle[i] - anchor)):
        way = 1 if middle[number] < anchor else -1
        free = [
            abs(centre[b] - centre[a]) - (widths[a] + widths[b]) / 2 - GAP_X
            for row in rows
            for a, b in pairwise(row)
            if part[a] != part[b] and part[a if way > 0 else b] == number
        ]
        if free:
            for item in parts[number]:
                centre[item] += way * max(min(free), 0.0)


def _median(pulls: list[tuple[float, float]], weight: float, here: float) -> float:
    """The weighted median; between two of them, the value nearest to the item's present position."""
    pulls.sort()
    passed = 0.0
    for i, (place, pull) in enumerate(pulls):
        passed += pull
        if passed > weight / 2:
            return place
        if passed == weight / 2:
            return min(max(here, place), pulls[i + 1][0])
    return here


def _spread(row: list[int], want: list[tuple[float, float]], widths: list[int], centre: list[float]) -> None:
    """The positions nearest to the wanted ones that keep order and gaps (pool adjacent violators)."""
    # Offsets turn "keep a gap" into "do not decrease"; runs of equal places are then averaged.
    offset, x = [], 0.0
    for i, item in enumerate(row):
        if i:
            x += (widths[row[i - 1]] + widths[item]) / 2 + GAP_X
        offset.append(x)
    runs: list[tuple[float, float, int]] = []
    for (wish, pull), shift in zip(want, offset):
        mean, weight, count = wish - shift, pull, 1
        while runs and runs[-1][0] > mean:
            last, pulled, more = runs.pop()
            mean = (mean * weight + last * pulled) / (weight + pulled)
            weight, count = weight + pulled, count + more
        runs.append((mean, weight, count))
    found = [mean for mean, _, count in runs for _ in range(count)]
    for item, place, shift in zip(row, found, offset):
        centre[item] = place + shift


def corridors(rows: list[list[int]], widths: list[int], centre: list[float]) -> dict[int, tuple[float, float]]:
    """The range in which each bend of a line may lie: up to the boxes beside it, and halfway to other lines."""
    found = {}
    for row in rows:
        for i, item in enumerate(row):
            if not widths[item]:
                low, high = float("-inf"), float("inf")
                if i:
                    low = _edge(row[i - 1], item, widths, centre, 1)
                if i + 1 < len(row):
                    high = _edge(row[i + 1], item, widths, centre, -1)
                found[item] = (min(low, centre[item]), max(high, centre[item]))
    return found


def _edge(other: int, item: int, widths: list[int], centre: list[float], way: int) -> float:
    if widths[other]:
        return centre[other] + way * (widths[other] / 2 + CLEAR)
    return (centre[other] + centre[item]) / 2 + way * APART


def taut(start: Point, gates: Sequence[tuple[float, float, float]], end: Point) -> list[Point]:
    """The shortest poly-line from a point down to another through gates ``(y, from, to)``."""
    stops = [*gates, (end[1], end[0], end[0])]
    line, at = [start], 0
    while line[-1] != end:
        x, y = line[-1]
        low, high = (float("-inf"), at), (float("inf"), at)
        for i in range(at, len(stops)):
            depth, left, right = stops[i]
            steepest = max(depth - y, 0.1)
            a, b = (left - x) / steepest, (right - x) / steepest
            # The gate is out of sight of the earlier ones: the line bends around the one in the way.
            if b < low[0]:
                line.append((stops[low[1]][1], stops[low[1]][0]))
                at = low[1] + 1
                break
            if a > high[0]:
                line.append((stops[high[1]][2], stops[high[1]][0]))
                at = high[1] + 1
                break
            low, high = max(low, (a, i)), high if high[0] < b else (b, i)
        else:
            line.append(end)
    return line
