"""The built-in layout, for machines without Graphviz and for blocks too large for it.

Boxes are assigned to rows for short lines, ordered for few crossings, and positioned by averaging; long lines run as
straight as the boxes allow. Deterministic: the same sketch gives the same positions on every machine.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random

from kvviz.view.drawing.layer_places import corridors, places, taut
from kvviz.view.drawing.sketch import Sketch

GAP_Y = 24
# If all edges together span more layers than the first number, an edge over more layers than the second number is drawn
# straight: its bends would cost more than they help.
MOST_BENDS, LONGEST_BEND = 2000, 12

Places = tuple[list[tuple[float, float]], list[list[tuple[float, float]]]]


def layered(sketch: Sketch) -> Places:
    """The top left corner of every box, and the poly-line of every link, in px."""
    sizes = sketch.sizes
    layer = ranks(len(sizes), sketch.links)
    widths = [width for width, _ in sizes]
    spans = sum(layer[target] - layer[source] for source, target in sketch.links)
    longest = LONGEST_BEND if spans > MOST_BENDS else spans
    chains: list[list[int]] = []
    for source, target in sketch.links:
        chain = [source]
        if layer[target] - layer[source] <= longest:
            for between in range(layer[source] + 1, layer[target]):
                chain.append(len(widths))
                widths.append(0)
                layer.append(between)
        chains.append([*chain, target])
    rows: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for item, level in enumerate(layer):
        rows[level].append(item)
    above: list[list[int]] = [[] for _ in widths]
    below: list[list[int]] = [[] for _ in widths]
    for chain in chains:
        for a, b in pairwise(chain):
            above[b].append(a)
            below[a].append(b)
    best_order(rows, above, below)
    centre = places(rows, widths, above, below)
    free = corridors(rows, widths, centre)

    tallest = [max((sizes[i][1] for i in row if i < len(sizes)), default=0) for row in rows]
    tops, y = [], 0.0
    for height in tallest:
        tops.append(y)
        y += height + GAP_Y
    left = min((centre[i] - widths[i] / 2 for i in range(len(widths))), default=0.0)
    corners = [(round(centre[i] - w / 2 - left, 1), tops[layer[i]]) for i, (w, _) in enumerate(sizes)]
    lines = []
    for chain in chains:
        source, target = chain[0], chain[-1]
        gates = [
            (tops[layer[i]] + dy, free[i][0] - left, free[i][1] - left)
            for i in chain[1:-1]
            for dy in (0.0, tallest[layer[i]])
        ]
        start = (centre[source] - left, corners[source][1] + sizes[source][1])
        line = taut(start, gates, (centre[target] - left, corners[target][1]))
        lines.append([(round(x, 1), round(y, 1)) for x, y in line])
    return corners, lines


# The row of each box in a layered drawing: lines are as short as possible, and none leads upward.


Links = Sequence[tuple[int, int]]

ROUNDS = 8
LARGEST_SET = 64


def ranks(n: int, links: Links) -> list[int]:
    """The row of each of ``n`` boxes, from 0 at the top; ``links`` go forward by index. First every box is placed as
    far up as the longest path to it allows. Then a box moves, together with the boxes that it pushes, while this
    shortens the lines in total. The result nearly equals that of network simplex, with a fraction of the code."""
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
    """Move boxes that fit several rows with the same line length to the row with the fewest boxes."""
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


# The order of the boxes in each row of a layered drawing, with as few crossing lines as can be found.


Rows = list[list[int]]
Near = list[list[int]]

SWEEPS = 16
# Drawings with up to this many boxes and bends also exchange neighbours and try more initial orders.
LARGEST_EXCHANGE, LARGEST_TRIED = 1500, 400
SHUFFLES = 6


def best_order(rows: Rows, above: Near, below: Near) -> None:
    """Sort each row so that few lines between the rows cross. For each of several initial orders, rows are sorted by
    the means of their neighbours' positions, downward and upward in turn. Then neighbours are exchanged where that
    helps (Gansner and others, "A Technique for Drawing Directed Graphs", 1993). The best order found is kept."""
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
    """Initial orders: the given one, the orders of a walk from the top and from the bottom, and shuffled ones."""
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
    """The rows in the order in which a walk finds their boxes, which keeps connected boxes together."""
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
    """Sort all rows by the means of their neighbours' positions; every other pair of sweeps reverses ties."""
    down = sweep % 2 == 1
    near = above if down else below
    for row in rows if down else reversed(rows):
        key = {i: sum(position[j] for j in near[i]) / len(near[i]) if near[i] else position[i] for i in row}
        if sweep % 4 > 1:
            row.reverse()
        row.sort(key=key.__getitem__)
        _number(row, position)


def _exchange(rows: Rows, above: Near, below: Near, position: list[float]) -> None:
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
    """Pairs of ends that cross while the item of ``first`` is on the left; both lists are sorted."""
    return sum(bisect_left(second, end) for end in first)


def _number(row: list[int], position: list[float]) -> None:
    for i, item in enumerate(row):
        position[item] = i


def _crossings(rows: Rows, below: Near, position: list[float]) -> int:
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
