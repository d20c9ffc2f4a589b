"""DOT text: numbers and n0, n1 …, whatever the model's names are."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

import kvviz
from kvviz.graph.model import Graph
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
from tests.graph.build import model, node
from tests.view.conftest import HOSTILE, chain, plain
from tests.view.sketches import sketches_of

HARMLESS = re.compile(r'^[\w\s{}\[\]=;">.-]*$')


def sketch_of(trace: kvviz.Trace) -> Sketch:
    frame = trace.frames[0]
    return sketch(frame.graph, frame.order)


def test_names_of_a_model_never_reach_the_dot_text() -> None:
    hostile, tame = sketch_of(chain(lambda i: HOSTILE[i])), sketch_of(chain(plain))
    assert hostile == tame
    assert dot_source(hostile) == dot_source(tame)


def test_dot_text_holds_only_node_numbers_and_sizes(trace: kvviz.Trace) -> None:
    for each in sketches_of(trace):
        source = dot_source(each)
        assert HARMLESS.match(source)
        assert len(re.findall(r"^\tn\d+ \[", source, re.M)) == len(each.sizes)
        assert len(re.findall(r"^\tn\d+ -> n\d+$", source, re.M)) == len(each.links)


@pytest.mark.parametrize(
    ("op", "shape", "least"), [("Add", "", MIN_WIDTH), ("Add", "[1,2]", MIN_WIDTH), ("X" * 300, "[1]", MAX_WIDTH)]
)
def test_a_box_is_as_wide_as_its_text_within_limits(op: str, shape: str, least: int) -> None:
    width, _ = box_size(op, shape)
    assert width == least


def test_a_cache_that_grows_from_one_digit_to_two_moves_nothing() -> None:
    assert box_size("Concat", "[1,4,9,16]") == box_size("Concat", "[1,4,10,16]")


def loaded(nodes: list, outputs: list[str]) -> Graph:
    return kvviz.load(model(nodes, ["x float 4"], outputs, w=[1.0, 2.0, 3.0, 4.0]))


def test_values_from_elsewhere_become_stubs_and_weights_nothing() -> None:
    graph = loaded([node("Add", "x w", "a"), node("Neg", "a", "b"), node("Add", "b x", "y")], ["y float 4"])
    made = sketch(graph, graph.nodes)
    assert made.links == ((0, 1), (1, 2))
    assert made.stubs == ((0, "in", 0), (2, "in", 1), (2, "out", 0))


def test_a_hub_far_away_becomes_a_stub_and_a_near_reader_keeps_its_edge() -> None:
    # given a value that is read near by, and again far below
    names = [f"v{i}" for i in range(HUB_SPAN + 4)]
    nodes = [node("Relu", "x", names[0])]
    nodes += [node("Neg", a, b) for a, b in pairwise(names)]
    nodes += [node("Add", f"{names[0]} {names[-1]}", "y"), node("Mul", f"{names[0]} y", "z")]
    graph = loaded(nodes, ["z float 4"])
    made = sketch(graph, graph.nodes)
    last = len(nodes) - 1
    assert (0, 1) in made.links
    assert (0, last) not in made.links and (0, last - 1) not in made.links
    assert (last, "in", 0) in made.stubs and (0, "out", 0) in made.stubs


def test_a_value_read_twice_by_one_op_is_one_edge() -> None:
    graph = loaded([node("Neg", "x", "a"), node("Mul", "a a", "y")], ["y float 4"])
    assert sketch(graph, graph.nodes).links == ((0, 1),)


def test_what_a_body_captures_counts_as_read(looping: kvviz.Trace) -> None:
    # given: both loops capture what the first op makes, and the second reads what the first one ends with
    relu, loop, idle = looping.frames[0].order
    assert "outer" in loop.captures and "outer" in idle.captures and "outer" not in idle.inputs
    assert set(sketch(looping.graph, (relu, loop, idle)).links) == {(0, 1), (0, 2), (1, 2)}


def test_a_box_has_no_more_stubs_than_fit() -> None:
    names = [f"a{i}" for i in range(3 * MAX_STUBS)]
    inputs = [f"{name} float 1" for name in names]
    graph = kvviz.load(model([node("Sum", " ".join(names), "y")], inputs, ["y float 1"]))
    made = sketch(graph, graph.nodes)
    assert [slot for _, side, slot in made.stubs if side == "in"] == list(range(MAX_STUBS))


def test_a_reader_that_never_runs_makes_no_stub() -> None:
    graph = loaded([node("Neg", "x", "a"), node("Relu", "a", "y"), node("Abs", "a", "z")], ["y float 4", "z float 4"])
    part = graph.nodes[:2]
    assert (0, "out", 0) in sketch(graph, part).stubs
    assert (0, "out", 0) not in sketch(graph, part, order={0, 1}).stubs


def test_the_past_of_a_cache_is_a_box_in_front_of_its_readers() -> None:
    # given two readers of one value from elsewhere, and a value that is made inside
    graph = loaded([node("Neg", "x", "a"), node("Add", "a x", "b"), node("Mul", "b a", "y")], ["y float 4"])
    made = sketch(graph, graph.nodes, pills=("x", "a"))
    # then it is the first box, with a line to each, and no stub
    assert len(made.sizes) == 4
    assert made.sizes[0] == PILL
    assert made.pills == ((1, 0),)
    assert set(made.links) == {(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)}
    assert made.stubs == ((3, "out", 0),)
    # and the layout knows it as well
    (drawing,) = layout([made])
    assert drawing.pills == made.pills
    assert len(drawing.boxes) == 4


def test_an_op_that_reads_many_caches_has_them_as_stubs() -> None:
    names = [f"a{i}" for i in range(MAX_PILLS + 1)]
    graph = kvviz.load(model([node("Sum", " ".join(names), "y")], [f"{name} float 1" for name in names], ["y float 1"]))
    made = sketch(graph, graph.nodes, pills=names)
    assert made.pills == ()
    assert len(made.stubs) == len(names) + 1
