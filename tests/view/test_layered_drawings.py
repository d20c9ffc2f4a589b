"""The built-in layout beside Graphviz's, on the blocks of exported models; its parts on what hypothesis makes up."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvviz
from kvviz.view.drawing.block_layout import Drawing, _with_graphviz, _with_layers
from kvviz.view.drawing.layer_places import taut
from kvviz.view.drawing.layered import ranks
from kvviz.view.drawing.sketch import Sketch
from tests.test_models import graph_of
from tests.view.sketches import any_sketch, sketches_of

NAMES = ["o01_optimum_llama", "o02_optimum1_merged_gpt2", "o04_dynamo_static_llama_op18", "o05_dynamo_llama_op23"]


def crossings(drawing: Drawing) -> int:
    """Pairs of lines that cross, but for those that begin or end at one box."""
    pieces = [
        (source, target, np.array(a), np.array(b))
        for source, target, line in drawing.edges
        for a, b in pairwise(zip(line[0::2], line[1::2]))
    ]

    def side(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
        return float((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))

    found = set()
    for (s, t, a, b), (u, v, c, d) in combinations(pieces, 2):
        if {s, t} & {u, v} or side(a, b, c) * side(a, b, d) >= 0 or side(c, d, a) * side(c, d, b) >= 0:
            continue
        found.add((s, t, u, v))
    return len(found)


def bends(drawing: Drawing) -> int:
    return sum(len(line) // 2 - 2 for *_, line in drawing.edges)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_about_as_good_as_graphviz(name: str) -> None:
    trace = kvviz.decode(graph_of(name), [5, 17, 33], 2)
    sketches = [s for s in dict.fromkeys(sketches_of(trace)) if len(s.sizes) > 2]
    theirs = _with_graphviz(sketches, 60)
    ours = {sketch: _with_layers(sketch) for sketch in sketches}
    assert theirs.keys() == ours.keys()
    assert [ours[s].h for s in sketches] == [theirs[s].h for s in sketches]
    # and over all blocks hardly more crossings, bends and width
    assert sum(map(crossings, ours.values())) <= sum(map(crossings, theirs.values())) + 3
    assert sum(map(bends, ours.values())) <= 1.25 * sum(map(bends, theirs.values()))
    assert sum(d.w for d in ours.values()) <= 1.15 * sum(d.w for d in theirs.values())


@given(any_sketch())
def test_rows_are_such_that_no_single_box_can_move_to_shorten_the_lines(sketch: Sketch) -> None:
    rank = ranks(len(sketch.sizes), sketch.links)
    assert all(rank[a] < rank[b] for a, b in sketch.links)
    assert min(rank) == 0

    def length(places: list[int]) -> int:
        return sum(places[b] - places[a] for a, b in sketch.links)

    for box in range(len(rank)):
        for step in (-1, 1):
            moved = [*rank[:box], rank[box] + step, *rank[box + 1 :]]
            if all(moved[a] < moved[b] for a, b in sketch.links):
                assert length(moved) >= length(rank)


@given(
    st.floats(-50, 50),
    st.lists(st.tuples(st.floats(-60, 60), st.floats(0, 40)), max_size=8),
    st.floats(-50, 50),
)
def test_a_taut_line_stays_in_its_gates_and_is_the_shortest(
    first: float, gates: list[tuple[float, float]], last: float
) -> None:
    stops = [(10.0 * (i + 1), low, low + wide) for i, (low, wide) in enumerate(gates)]
    start, end = (first, 0.0), (last, 10.0 * (len(gates) + 1))
    line = taut(start, stops, end)
    assert line[0] == start and line[-1] == end
    xs, ys = [x for x, _ in line], [y for _, y in line]
    assert ys == sorted(ys)
    assert all(low - 1e-6 <= np.interp(y, ys, xs) <= high + 1e-6 for y, low, high in stops)

    def length(points: list[tuple[float, float]]) -> float:
        return sum(float(np.hypot(b[0] - a[0], b[1] - a[1])) for a, b in pairwise(points))

    # and no corner can be left out, or moved to either side, without leaving a gate or growing longer
    for i in range(1, len(line) - 1):
        x, y = line[i]
        low, high = next((low, high) for at, low, high in stops if at == y)
        for shift in (-0.01, 0.01):
            if low <= x + shift <= high:
                assert length([*line[:i], (x + shift, y), *line[i + 1 :]]) >= length(line) - 1e-9
