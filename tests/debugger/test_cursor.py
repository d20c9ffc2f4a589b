"""The headless cursor: every way to move, recorded and at the live edge, in a decode and in bodies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

import kvviz
from kvviz.debugger import Cursor
from kvviz.debugger.state import frontier_after
from kvviz.decode.loop import DecodeSession
from kvviz.decode.single import SingleRun

MODELS = Path(__file__).parents[2] / "assets" / "models"
BRANCH = """branch (bool c, float[4] x) => (float[4] z) {
    a = Relu(x)
    y = If (c) <
        then_branch = yes () => (float[4] o) { t = Sigmoid(a)  o = Neg(t) },
        else_branch = no () => (float[4] p) { p = Identity(a) }>
    z = Abs(y) }"""
LOOP = """loop (int64 n, bool go, float[4] x) => (float[4] y) {
    y = Loop (n, go, x) <body = once (int64 i, bool c, float[4] v) => (bool d, float[4] w) {
        d = Identity(c)  w = Neg(v) }> }"""


def model(text: str) -> Any:
    return kvviz.load(parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>\n' + text))


def branch(condition: bool = True) -> SingleRun:
    return SingleRun(model(BRANCH), {"c": np.array(condition), "x": np.arange(4, dtype=np.float32)})


def loop(trips: int = 2) -> SingleRun:
    return SingleRun(model(LOOP), {"n": np.array(trips), "go": np.array(True), "x": np.ones(4, np.float32)})


def decode(tokens: int = 3) -> DecodeSession:
    graph = kvviz.load(MODELS / "o05_dynamo_llama_op23" / "model.onnx")
    return DecodeSession(graph, [5, 17], tokens, kv_capacity=8)


def names(cursor: Cursor) -> list[str]:
    return [step.node for step in cursor.trace.steps]


def at(cursor: Cursor) -> str:
    assert cursor.step is not None
    return cursor.step.node


@pytest.mark.parametrize("recorded", [False, True])
def test_into_completes_one_op_wherever_it_is(recorded: bool) -> None:
    session = branch()
    cursor = Cursor(session.run_to_end() if recorded else session)
    seen = []
    while cursor.into().reason == "step":
        seen.append((at(cursor), cursor.step.frame if cursor.step else None))
    inside = ("y[then_branch]",)
    assert seen == [("a", ()), ("t", inside), ("o", inside), ("y", ()), ("z", ())]
    assert cursor.into().reason == "end"


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("move", ["next", "over"])
def test_next_takes_a_body_as_part_of_its_node(recorded: bool, move: str) -> None:
    session = branch()
    cursor = Cursor(session.run_to_end() if recorded else session)
    seen = []
    while getattr(cursor, move)().reason == "step":
        seen.append(at(cursor))
    assert seen == ["a", "y", "z"]
    cursor.goto(1)
    assert at(cursor) == "t"
    assert [at(cursor) for _ in range(2) if getattr(cursor, move)()] == ["o", "y"], "inside a body it stays inside"


@pytest.mark.parametrize("recorded", [False, True])
def test_into_enters_the_body_that_comes_next_and_out_leaves_it(recorded: bool) -> None:
    session = branch()
    cursor = Cursor(session.run_to_end() if recorded else session)
    cursor.goto(0)
    cursor.into()
    assert at(cursor) == "t" and cursor.frame() == ("y[then_branch]",)
    cursor.out()
    assert at(cursor) == "y" and cursor.frame() == ()


def test_out_of_the_main_graph_runs_to_the_end_of_the_run() -> None:
    cursor = Cursor(decode())
    cursor.next()
    cursor.out()
    assert cursor.position == cursor.trace.runs[0].last - 1
    cursor.out()
    assert cursor.position == cursor.trace.runs[1].last - 1


def test_back_goes_to_the_op_before_in_this_frame_and_stops_at_the_start() -> None:
    cursor = Cursor(branch())
    cursor.goto(4)
    assert [cursor.back().position for _ in range(2)] == [3, 0], "a body is passed as a whole"
    assert (cursor.back().reason, cursor.position) == ("start", -1)
    assert cursor.back().reason == "start"
    cursor.goto(2)
    assert cursor.back().position == 1
    assert names(cursor) == ["a", "t", "o", "y", "z"], "going back forgets nothing"


def test_goto_past_the_recorded_end_executes_more() -> None:
    cursor = Cursor(decode())
    assert cursor.goto(150).position == 150
    assert len(cursor.trace.steps) == 151 and len(cursor.trace.runs) == 2
    assert cursor.goto(10).position == 10
    assert len(cursor.trace.steps) == 151
    with pytest.raises(kvviz.KvvizError, match="-1"):
        cursor.goto(-2)


def test_next_decode_step_finds_the_same_op_in_the_next_run_and_previous_in_the_one_before() -> None:
    cursor = Cursor(decode())
    cursor.goto(40)
    here = cursor.step
    cursor.next_decode_step()
    there = cursor.step
    assert here is not None and there is not None
    assert (there.node, there.run) == (here.node, 1)
    assert cursor.decode_step == 1
    cursor.previous_decode_step()
    assert cursor.position == 40


def test_a_decode_that_is_stepped_to_its_end_gives_the_same_tokens() -> None:
    stepped = decode()
    cursor = Cursor(stepped)
    while cursor.next().reason != "end":
        pass
    assert cursor.trace.tokens == decode().run_to_end().tokens
    assert cursor.trace.live is None


def test_choosing_a_frontier_op_runs_that_one_and_changes_no_result() -> None:
    rng = np.random.default_rng(3)
    plain = decode(2).run_to_end()
    cursor = Cursor(decode(2))
    while frontier := cursor.frontier():
        cursor.choose(frontier[rng.integers(len(frontier))])
    assert names(cursor) != [step.node for step in plain.steps]
    assert sorted(names(cursor)) == sorted(step.node for step in plain.steps)
    assert all(np.array_equal(a, b) for a, b in zip(cursor.trace.logits, plain.logits, strict=True))


def test_a_choice_away_from_the_live_edge_or_of_an_op_that_is_not_ready_is_refused() -> None:
    cursor = Cursor(decode())
    cursor.goto(20)
    waiting = cursor.frontier()[0]
    cursor.goto(5)
    with pytest.raises(kvviz.KvvizError, match="go to step 20"):
        cursor.choose(waiting)
    cursor.goto(20)
    with pytest.raises(kvviz.KvvizError, match="cannot run next"):
        cursor.choose(cursor.trace.graph.nodes[-1])
    assert len(cursor.trace.steps) == 21
    with pytest.raises(kvviz.KvvizError, match="nothing is left"):
        Cursor(decode(1).run_to_end()).choose(waiting)


def test_loop_iterations_are_frames_of_their_own() -> None:
    cursor = Cursor(loop(3))
    frames = []
    while cursor.into().reason == "step":
        frames.append(cursor.frame())
    assert frames == [
        ("y[body:0]",),
        ("y[body:1]",),
        ("y[body:1]",),
        ("y[body:2]",),
        ("y[body:2]",),
        ("y[body:2]",),
        (),
    ]


def test_a_loop_without_iterations_is_a_step_of_its_own() -> None:
    cursor = Cursor(loop(0))
    assert [node.name for node in cursor.frontier()] == ["y"]
    cursor.next()
    assert names(cursor) == ["y"] and cursor.next().reason == "end"


@pytest.mark.parametrize("make", [branch, loop, decode])
def test_the_frontier_holds_exactly_the_ops_that_are_ready(make: Any) -> None:
    # given
    trace = make().run_to_end()
    cursor = Cursor(trace)
    rows = list(trace.steps)
    for position in range(-1, len(rows) - 1):
        # when
        frontier = {node.name for node in frontier_after(trace, position)}
        # then: recomputed from the steps alone
        cursor.position = position
        path = cursor.frame()
        frame = next(f for f in reversed(trace.frames) if f.path == path and f.run == rows[position + 1].run)
        mine = [s for s in rows[: position + 1] if s.frame_id == frame.id]
        done = {s.node for s in mine}
        made = {name for s in mine for name in s.outputs}
        inner = {name for node in frame.order for name in node.outputs}
        ready = {
            node.name
            for node in frame.order
            if node.name not in done and all(n in made or n not in inner for n in (*node.inputs, *node.captures))
        }
        assert frontier == ready, position


def test_watched_values_tell_where_they_live() -> None:
    cursor = Cursor(branch())
    cursor.watches = ["a", "t", "z"]
    cursor.goto(0)
    assert cursor.watched()["t"] is None
    cursor.goto(1)
    t, a = cursor.watched()["t"], cursor.watched()["a"]
    assert t is not None and a is not None
    assert (t.storage, t.generation) == (a.storage, 1)
