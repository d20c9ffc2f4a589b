"""The built-in layout, for machines without Graphviz and for blocks too large for it.

Rows by the shortest lines, order by crossings, places by averaging, long lines as straight as the boxes allow.
Deterministic: the same sketch gives the same places on every machine.
"""

from __future__ import annotations

from itertools import pairwise

from kvviz.view.layer_order import best_order
from kvviz.view.layer_places import corridors, places, taut
from kvviz.view.layer_ranks import ranks
from kvviz.view.sketch import Sketch

GAP_Y = 24
# Where all edges together span more layers than the first number, one over more than the second is drawn straight: its
# bends would cost more than they help.
MOST_BENDS, LONGEST_BEND = 2000, 12

Places = tuple[list[tuple[float, float]], list[list[tuple[float, float]]]]


def layered(sketch: Sketch) -> Places:
    """Left-top corner of every box, and for every link its poly-line from box to box, in px."""
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
