"""Moving through a run: over, into and out of bodies, back, to another decode step; live and over a recording."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kvviz.debugger.cursor import Cursor, Stop
from kvviz.debugger.state import frontier_after
from kvviz.decode.run_sessions import SingleRun
from kvviz.errors import KvvizError
from kvviz.graph.blocks import blocks
from kvviz.trace.records import Step
from tests.debugger.cursors import ORDER, graph, live, ready, recorded, recording
from tests.engine.graphs import graph_of, numbers

NAMES = ["flat", "bodies", "concat", "merged_if", "tensor_scatter"]
both = pytest.mark.parametrize("make", [live, recorded])
Make = Callable[[str], Cursor]


def node_at(cursor: Cursor) -> str:
    return cursor.step.node if cursor.step else ""


def walked(cursor: Cursor, move: str) -> list[str]:
    seen = []
    while getattr(cursor, move)().reason == "step":
        seen.append(node_at(cursor))
    return seen


@both
def test_into_goes_through_every_op_of_every_body_and_next_takes_a_body_as_a_part_of_its_node(make: Make) -> None:
    cursor = make("bodies")
    assert walked(cursor, "into") == [name for name, _ in ORDER]
    assert [len(step.frame) for step in cursor.trace.steps] == [depth for _, depth in ORDER]
    assert cursor.into() == Stop("end", len(ORDER) - 1)
    assert walked(make("bodies"), "next") == ["a", "b", "pick", "loop", "call", "z"]
    cursor = make("bodies")
    cursor.goto(2)
    assert walked(cursor, "next") == ["u", "pick", "loop", "call", "z"]


@both
def test_out_completes_the_node_whose_body_this_is_or_the_run(make: Make) -> None:
    for start, end in [(2, 4), (3, 4), (5, 11), (8, 11), (12, 14), (0, 15), (15, 15)]:
        cursor = make("bodies")
        cursor.goto(start)
        assert cursor.out() == Stop("step" if start < 15 else "end", end) and cursor.position == end


@both
def test_out_of_a_main_graph_goes_to_the_end_of_block_after_block(make: Make) -> None:
    cursor, run = make("concat"), recording("concat").runs[0]
    owner = {id(node): block.title for block in blocks(recording("concat").graph) for node in block.nodes}
    stops = []
    while cursor.position < run.last - 1:
        start = cursor.position + 1
        stops.append((start, cursor.out().position))
    # then: what was passed is of one block, and what comes next is of another
    told = [owner[id(step.graph_node)] for step in recording("concat").steps[: run.last]]
    assert cursor.position == run.last - 1
    for start, end in stops:
        assert set(told[start : end + 1]) == {told[start]}
        assert end + 1 == run.last or told[end + 1] != told[start]


@both
def test_back_goes_the_way_that_next_came(make: Make) -> None:
    cursor = make("bodies")
    cursor.goto(15)
    assert walked(cursor, "back") == ["call", "loop", "pick", "b", "a"]
    assert (cursor.position, cursor.step, cursor.back()) == (-1, None, Stop("start", -1))
    cursor.goto(9)
    assert (cursor.back().position, node_at(cursor)) == (8, "on")


@both
@pytest.mark.parametrize("name", NAMES)
def test_goto_finds_a_step_by_its_number(make: Make, name: str) -> None:
    cursor, size = make(name), len(recording(name).steps)
    for position in (size // 2, 3, size - 1, 0, -1, size // 3):
        assert cursor.goto(position) == Stop("step" if position >= 0 else "start", position)
        assert cursor.position == position
    assert cursor.goto(size + 5) == Stop("end", size - 1)
    with pytest.raises(KvvizError, match="step -2 does not exist; the first position is -1"):
        cursor.goto(-2)


@pytest.mark.parametrize("name", NAMES[1:])
def test_stepping_past_the_recorded_end_runs_more(name: str) -> None:
    cursor = live(name)
    for position in range(5):
        assert len(cursor.trace.steps) == position and cursor.at_edge
        cursor.into()
    cursor.goto(1)
    assert not cursor.at_edge and len(cursor.trace.steps) == 5
    cursor.into()
    assert len(cursor.trace.steps) == 5
    cursor.goto(7)
    assert len(cursor.trace.steps) == 8
    assert cursor.resume().reason == "end"
    assert [s.node for s in cursor.trace.steps] == [s.node for s in recording(name).steps]
    for output, value in recording(name).outputs.items():
        assert cursor.trace.outputs[output].tobytes() == value.tobytes()


@both
def test_a_loop_that_does_not_run_is_one_op_of_the_frontier(make: Make) -> None:
    inputs = {"x": np.ones(2, np.float32), "n": np.array(0), "c": np.array(True)}
    session = SingleRun(graph("bodies"), inputs)
    cursor = Cursor(session if make is live else session.run_to_end())
    cursor.goto(4)
    assert (cursor.frame(), [n.name for n in cursor.frontier()]) == ((), ["loop"])
    cursor.into()
    assert node_at(cursor) == "loop"
    if make is live:
        assert cursor.frame() == ("call[function]",)


@both
@pytest.mark.parametrize("name", ["concat", "tensor_scatter", "merged_if"])
def test_the_next_decode_step_is_the_same_op_in_the_next_run(make: Make, name: str) -> None:
    cursor = make(name)
    # In a merged decoder the first run takes another branch than the later ones, so begin with the second.
    first = recording(name).runs[1].first if name == "merged_if" else 0
    cursor.goto(first + 7)
    here = cursor.step
    assert here is not None
    stop = cursor.next_decode_step()
    assert cursor.step is not None and stop == Stop("step", cursor.position)
    assert (cursor.step.run, cursor.step.graph_node) == (here.run + 1, here.graph_node)
    assert cursor.decode_step == here.run + 1
    cursor.goto(len(recording(name).steps) - 1)
    assert cursor.next_decode_step().reason == "end"


@both
def test_the_next_decode_step_of_an_op_that_does_not_run_there_is_the_end_of_that_run(make: Make) -> None:
    cursor, runs = make("merged_if"), recording("merged_if").runs
    cursor.goto(5)
    assert cursor.next_decode_step() == Stop("step", runs[1].last - 1)
    assert make is recorded or len(cursor.trace.steps) == runs[1].last
    # and from the start the end of the first run
    cursor, runs = make("concat"), recording("concat").runs
    assert cursor.next_decode_step().position == runs[0].last - 1
    assert cursor.next_decode_step().position == runs[1].last - 1


@pytest.mark.parametrize("name", NAMES)
def test_the_frontier_is_what_is_ready_and_the_same_live_and_recorded(name: str) -> None:
    cursor, seen = live(name), []
    steps: list[Step] = []
    for _ in range(200):
        frontier, path = cursor.frontier(), cursor.frame()
        now = cursor.trace.live
        assert now is not None and frontier == ready(cursor.trace, steps, now.frame)
        assert path == cursor.trace.frames[now.frame].path
        seen.append(([node.name for node in frontier], path))
        cursor.into()
        if not cursor.session or cursor.session.look_ahead() is None:
            break
        steps.append(cursor.trace.steps[-1])
    over = recorded(name)
    for position, (names, path) in enumerate(seen, -1):
        over.position = position
        assert ([node.name for node in over.frontier()], over.frame()) == (names, path)


@pytest.mark.parametrize("name", ["concat", "merged_if"])
def test_the_frontier_after_every_step_of_a_run_is_what_is_ready(name: str) -> None:
    trace = recording(name)
    run, steps = trace.runs[1], list(trace.steps)
    for position in range(run.first, run.last - 1, 7):
        following = steps[position + 1]
        if not following.graph_node.subgraphs:
            frontier = frontier_after(trace, position)
            assert frontier == ready(trace, steps[: position + 1], following.frame_id)
            assert following.graph_node in frontier
    assert frontier_after(trace, len(trace.steps) - 1) == ()


def test_an_op_of_the_frontier_may_be_chosen_to_run_next() -> None:
    cursor = live("flat")
    assert [n.name for n in cursor.frontier()] == ["a", "b"]
    assert cursor.choose("b") == Stop("step", 0)
    assert [n.name for n in cursor.frontier()] == ["a", "d"]
    cursor.choose(cursor.frontier()[1])
    cursor.resume()
    assert [s.node for s in cursor.trace.steps] == ["b", "d", "a", "c", "y"]
    np.testing.assert_array_equal(cursor.trace.outputs["y"], recording("flat").outputs["y"])
    # The first reader must leave x whole for the other one; the last one still may not, for the caller owns it.
    first, last = live("flat"), live("flat")
    first.choose("a"), last.choose("b")
    assert [b.culprit for b in first.trace.steps[0].decision.blockers] == ["b", "the caller"]
    assert [b.culprit for b in last.trace.steps[0].decision.blockers] == ["a", "the caller"]


def test_a_choice_is_refused_where_it_cannot_be_made() -> None:
    cursor = live("flat")
    with pytest.raises(KvvizError, match="'y' cannot run at step 0: it waits for 'c', 'd'; ready are 'a', 'b'"):
        cursor.choose("y")
    cursor.next(), cursor.next()
    with pytest.raises(KvvizError, match="'a' cannot run at step 2: it ran as step 0"):
        cursor.choose("a")
    with pytest.raises(KvvizError, match="'w' is not an op of the graph that runs at step 2; ready are 'c', 'd'"):
        cursor.choose("w")
    cursor.goto(0)
    with pytest.raises(KvvizError, match=r"kvviz\.fork runs another one"):
        cursor.choose("c")
    cursor.resume()
    with pytest.raises(KvvizError, match="nothing is left to run"):
        cursor.choose("y")


def test_ops_may_be_chosen_inside_a_body() -> None:
    cursor = live("bodies")
    cursor.goto(4)
    assert (cursor.frame(), [n.name for n in cursor.frontier()]) == (("loop[body:0]",), ["on", "spin"])
    cursor.choose("spin")
    assert [n.name for n in cursor.frontier()] == ["on", "w"]
    cursor.choose("w"), cursor.choose("on")
    assert cursor.frame() == ("loop[body:1]",)
    cursor.resume()
    assert [s.node for s in cursor.trace.steps[5:8]] == ["spin", "w", "on"]
    np.testing.assert_array_equal(cursor.trace.outputs["z"], recording("bodies").outputs["z"])


@pytest.mark.parametrize(("choice", "order"), [("z", ["z", "q", "o", "y"]), ("y", ["q", "o", "y", "z"])])
def test_where_a_body_comes_next_another_op_may_be_chosen_instead(choice: str, order: list[str]) -> None:
    text = """g (bool c, float[4] x) => (float[4] y, float[4] z) {
        y = If (c) <then_branch = t () => (float[4] o) { q = Exp(x) o = Neg(q) },
                    else_branch = e () => (float[4] p) { p = Neg(x) }>
        z = Abs(x) }"""
    cursor = Cursor(SingleRun(graph_of(text), {"c": np.array(True), "x": numbers(4)}))
    assert [node.name for node in cursor.frontier()] == ["y", "z"]
    cursor.choose(choice)
    walked(cursor, "into")
    assert [step.node for step in cursor.trace.steps] == order
    assert np.array_equal(cursor.trace.value("q", order.index("q")), np.exp(numbers(4)))
