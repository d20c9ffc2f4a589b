"""DOT text: numbers and n0, n1 …, whatever the model's names are."""

import pytest

import kvviz
from kvviz.view.drawing.block_layout import dot_source, layout
from kvviz.view.drawing.sketch import (
    HUB_SPAN,
    MAX_PILLS,
    MAX_STUBS,
    MAX_WIDTH,
    MIN_WIDTH,
    PILL,
    Sketch,
    box_size,
    sketch,
)
from tests.engine.graphs import graph_of
from tests.view.conftest import HOSTILE, chain, plain
from tests.view.sketches import sketches_of


def test_names_of_a_model_never_reach_the_dot_text() -> None:
    hostile, tame = (sketches_of(chain(name))[0] for name in (lambda i: HOSTILE[i], plain))
    assert hostile == tame and dot_source(hostile) == dot_source(tame)


def test_a_box_is_as_wide_as_its_text_within_limits() -> None:
    assert [box_size("Add", shape)[0] for shape in ("", "[1,2]")] == [MIN_WIDTH] * 2
    assert box_size("X" * 300, "[1]")[0] == MAX_WIDTH
    # a cache that grows from one digit to two moves nothing
    assert box_size("Concat", "[1,4,9,16]") == box_size("Concat", "[1,4,10,16]")


FAR = HUB_SPAN + 4  # the reader of a value that is too far away for a line
SKETCHED = {
    "values from elsewhere become stubs and weights nothing": (
        "float[4] y) <float[4] w = {1, 2, 3, 4}> { a = Add(x, w) b = Neg(a) y = Add(b, x) }",
        {(0, 1), (1, 2)},
        {(0, "in", 0), (2, "in", 1), (2, "out", 0)},
    ),
    "a value that is read twice by one op is one edge": (
        "float[4] y) { a = Neg(x) y = Mul(a, a) }",
        {(0, 1)},
        {(0, "in", 0), (1, "out", 0)},
    ),
    "a hub is a stub for a far reader and keeps its edge to a near one": (
        f"float[4] z) {{ v0 = Relu(x) {' '.join(f'v{i + 1} = Neg(v{i})' for i in range(FAR - 1))}"
        f"y = Add(v0, v{FAR - 1}) z = Mul(v0, y) }}",
        {(i, i + 1) for i in range(FAR + 1)},
        {(0, "in", 0), (0, "out", 0), (FAR, "in", 0), (FAR + 1, "in", 0), (FAR + 1, "out", 0)},
    ),
}


@pytest.mark.parametrize("name", SKETCHED)
def test_of_a_block_there_are_links_and_stubs(name: str) -> None:
    text, links, stubs = SKETCHED[name]
    graph = graph_of(f"g (float[4] x) => ({text}")
    made = sketch(graph, graph.nodes)
    assert (set(made.links), set(made.stubs)) == (links, stubs)


def test_what_a_body_captures_counts_as_read(looping: kvviz.Trace) -> None:
    # given: both loops capture what the first op makes, and the second reads what the first one ends with
    relu, loop, idle = looping.frames[0].order
    assert "outer" in loop.captures and "outer" in idle.captures and "outer" not in idle.inputs
    assert set(sketch(looping.graph, (relu, loop, idle)).links) == {(0, 1), (0, 2), (1, 2)}


def test_a_reader_that_never_runs_makes_no_stub() -> None:
    graph = graph_of("g (float[4] x) => (float[4] y, float[4] z) { a = Neg(x) y = Relu(a) z = Abs(a) }")
    part = graph.nodes[:2]
    assert (0, "out", 0) in sketch(graph, part).stubs
    assert (0, "out", 0) not in sketch(graph, part, order={0, 1}).stubs


def test_the_past_of_a_cache_is_a_box_in_front_of_its_readers() -> None:
    # given two readers of one value from elsewhere, and a value that is made inside
    graph = graph_of("g (float[4] x) => (float[4] y) { a = Neg(x) b = Add(a, x) y = Mul(b, a) }")
    made = sketch(graph, graph.nodes, pills=("x", "a"))
    assert len(made.sizes) == 4 and made.sizes[0] == PILL and made.pills == ((1, 0),)
    assert set(made.links) == {(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)} and made.stubs == ((3, "out", 0),)
    (drawing,) = layout([made])
    assert drawing.pills == made.pills and len(drawing.boxes) == 4


def summed(count: int, pills: bool) -> Sketch:
    """The block of one op with so many inputs, each of which may be the past of a cache."""
    names = [f"a{i}" for i in range(count)]
    inputs = ", ".join(f"float[1] {name}" for name in names)
    graph = graph_of(f"g ({inputs}) => (float[1] y) {{ y = Sum({', '.join(names)}) }}")
    return sketch(graph, graph.nodes, pills=names if pills else ())


def test_a_box_has_no_more_stubs_or_caches_than_fit() -> None:
    assert [slot for _, side, slot in summed(3 * MAX_STUBS, False).stubs if side == "in"] == list(range(MAX_STUBS))
    many = summed(MAX_PILLS + 1, True)
    assert many.pills == () and len(many.stubs) == MAX_PILLS + 2
