"""The built-in layout, for machines without Graphviz and for blocks too large for it.

Layers by longest path, order by barycentres, places by a few passes of averaging.
Deterministic: the same sketch gives the same places on every machine.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from itertools import pairwise

from kvviz.view.sketch import Sketch

GAP_X, GAP_Y = 14, 28
SWEEPS, PASSES = 24, 24
# Where all edges together span more layers than the first number, one over more than the second is drawn straight: its
# bends would cost more than they help.
MOST_BENDS, LONGEST_BEND = 2000, 12

Places = tuple[list[tuple[float, float]], list[list[tuple[float, float]]]]


def layered(sketch: Sketch) -> Places:
    """Left-top corner of every box, and for every link its poly-line from box to box, in px."""
    sizes = sketch.sizes
    layer = _layers(len(sizes), sketch.links)
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
    _order(rows, above, below)
    centre = _places(rows, widths, above, below)

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
        # Straight through a row from its top to its bottom, so that no line cuts the corner of a box there.
        bends = [
            (round(centre[i] - left, 1), tops[layer[i]] + dy) for i in chain[1:-1] for dy in (0.0, tallest[layer[i]])
        ]
        start = (round(centre[source] - left, 1), corners[source][1] + sizes[source][1])
        lines.append([start, *bends, (round(centre[target] - left, 1), corners[target][1])])
    return corners, lines


def _layers(n: int, links: tuple[tuple[int, int], ...]) -> list[int]:
    """Longest path from the top; then what nothing else holds up there moves down next to its first reader: sources,
    trees of their own below them, and nodes with more readers than inputs. Links go forward by index."""
    layer = [0] * n
    readers: list[list[int]] = [[] for _ in range(n)]
    feeders: list[list[int]] = [[] for _ in range(n)]
    for source, target in sorted(links):
        layer[target] = max(layer[target], layer[source] + 1)
        readers[source].append(target)
        feeders[target].append(source)
    loose = [False] * n
    for item in range(n):
        loose[item] = all(loose[i] and len(readers[i]) == 1 for i in feeders[item])
    for item in reversed(range(n)):
        if readers[item] and (loose[item] or len(readers[item]) > len(feeders[item])):
            layer[item] = min(layer[reader] for reader in readers[item]) - 1
    return layer


def _order(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Sort each row by the barycentres of its neighbours, down and up in turn; the best order that was seen stays."""
    position = [0.0] * len(above)
    for row in rows:
        _number(row, position)
    best, fewest = [list(row) for row in rows], _crossings(rows, below, position)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        near = above if down else below
        for row in rows if down else reversed(rows):
            key = {i: sum(position[j] for j in near[i]) / len(near[i]) if near[i] else position[i] for i in row}
            row.sort(key=key.__getitem__)
            _number(row, position)
        crossings = _crossings(rows, below, position)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    rows[:] = best


def _number(row: list[int], position: list[float]) -> None:
    for i, item in enumerate(row):
        position[item] = i


def _crossings(rows: list[list[int]], below: list[list[int]], position: list[float]) -> int:
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


def _places(rows: list[list[int]], widths: list[int], above: list[list[int]], below: list[list[int]]) -> list[float]:
    """Centre of every item: near the mean of its neighbours, never closer than a gap to the next in its row."""
    centre = [0.0] * len(widths)
    for row in rows:
        x = 0.0
        for item in row:
            centre[item] = x + widths[item] / 2
            x += widths[item] + GAP_X
    for turn in range(PASSES):
        down = turn % 2 == 0
        for row in rows if down else reversed(rows):
            want = []
            for item in row:
                near = (above if down else below)[item] or (below if down else above)[item]
                want.append(sum(centre[j] for j in near) / len(near) if near else centre[item])
            _spread(row, want, widths, centre)
    return centre


def _spread(row: list[int], want: list[float], widths: list[int], centre: list[float]) -> None:
    """The places nearest to the wished ones that keep order and gaps (pool adjacent violators)."""
    # Offsets turn "keep a gap" into "do not decrease"; runs of equal places are then averaged.
    offset, x = [], 0.0
    for i, item in enumerate(row):
        if i:
            x += (widths[row[i - 1]] + widths[item]) / 2 + GAP_X
        offset.append(x)
    runs: list[list[float]] = []
    for wish, shift in zip(want, offset):
        runs.append([wish - shift, 1.0])
        while len(runs) > 1 and runs[-2][0] > runs[-1][0]:
            mean, weight = runs.pop()
            last = runs[-1]
            last[0] = (last[0] * last[1] + mean * weight) / (last[1] + weight)
            last[1] += weight
    places = [mean for mean, weight in runs for _ in range(int(weight))]
    for item, place, shift in zip(row, places, offset):
        centre[item] = place + shift
