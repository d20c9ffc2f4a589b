"""Lanes of a debugger, without a browser: forks, what the page is told of each, and what it asks for."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.explain.difference import align
from kvviz.view.page_data.payload import decode
from kvviz.view.page_data.payload_lanes import unpack_lanes
from kvviz.widget import Debugger, Pair
from tests.decode.small import small
from tests.engine.graphs import graph_of
from tests.widget.asking import ask

PROMPT = [5, 7, 3]


@pytest.fixture(scope="module")
def story() -> tuple[kvviz.Trace, kvviz.Trace]:
    """The same decode without and with room for its caches; the second one token shorter."""
    graph = kvviz.load(small("concat").proto)
    return kvviz.decode(graph, PROMPT, 3), kvviz.decode(graph, PROMPT, 2, kv_capacity=8)


@pytest.fixture
def debugger(story: tuple[kvviz.Trace, kvviz.Trace]) -> Debugger:
    return Debugger(story[0])


def place(trace: kvviz.Trace, step: int) -> tuple[Any, ...]:
    found = trace.steps[step]
    return found.run, found.frame, found.node


def check_figures(told: dict[str, Any], *traces: kvviz.Trace) -> None:
    """What is told of two lanes is what their traces come to."""
    for figures, trace in zip(told["figures"], traces, strict=True):
        assert [figures["peak"], figures["copied"]] == [trace.peak_bytes, trace.bytes_copied]
        assert [figures["allocated"], figures["steps"]] == [trace.bytes_allocated, len(trace.steps)]


def steps_of(payload: bytes) -> int:
    return len(decode(payload)[1]["step.node"])


def test_a_fork_is_a_lane_at_the_same_op(debugger: Debugger, tmp_path: Path) -> None:
    first = debugger.trace
    debugger.cursor = 40
    assert ask(debugger, do="fork", step=0, change={"policy": "rten"}) == []
    assert debugger.trace.label == "rten" and debugger.trace.tokens == first.tokens
    assert place(debugger.trace, debugger.cursor) == place(first, 40)
    assert (debugger.lane, debugger.main) == (1, 1)
    assert list(debugger.traces.values()) == [first, debugger.trace]
    assert steps_of(debugger.payload) == len(debugger.trace.steps)
    assert {name: steps_of(raw) for name, raw in unpack_lanes(debugger.branches).items()} == {"0": len(first.steps)}
    told = debugger.lanes[1]
    assert (told["label"], told["of"], told["step"], told["note"]) == ("rten", 0, 0, "")
    check_figures(told, first, debugger.trace)
    assert "rten" not in debugger.offers["policies"] and "ideal" in debugger.offers["policies"]
    page = debugger.to_html(tmp_path / "lanes.html")
    assert (tmp_path / "lanes.html").read_text("utf-8") == page
    assert 'id="kvviz-branches"' in page and '"lane": 1' in page and '"label": "rten"' in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_closing_its_lane_undoes_a_fork(debugger: Debugger) -> None:
    first = debugger.trace
    debugger.fork(kv_capacity=8)
    second = debugger.trace
    debugger.fork(policy="rten")
    debugger.cursor = 60
    at = place(debugger.trace, 60)
    assert [lane["of"] for lane in debugger.lanes] == [None, 0, 1]
    ask(debugger, do="close_lane", lane=debugger.lane)
    assert debugger.trace is second and place(second, debugger.cursor) == at
    # and lanes of a lane that is closed have left the one before it
    third = debugger.fork(policy="rten")
    debugger.close_lane(1)
    assert [(lane["id"], lane["of"]) for lane in debugger.lanes] == [(0, None), (3, 0)]
    assert debugger.lanes[1]["figures"][0]["copied"] == first.bytes_copied and debugger.trace is third
    # and a lane that is not shown goes without a move
    debugger.lane = 0
    before = debugger.cursor
    debugger.close_lane(3)
    assert (debugger.trace, debugger.cursor, len(debugger.lanes)) == (first, before, 1)
    assert debugger.branches == b"" and steps_of(debugger.payload) == len(first.steps)
    (answer,) = ask(debugger, do="close_lane", lane=0)
    assert "cannot be closed" in answer["error"]


def test_setting_the_lane_shows_it_at_the_same_op(debugger: Debugger) -> None:
    debugger.fork(policy="rten")
    there, back = align(debugger._lanes[0].trace, debugger._lanes[1].trace)
    for step in (3, 40, len(there) - 1):
        debugger.lane, debugger.cursor = 0, step
        debugger.lane = 1
        assert debugger.cursor == there[step]
        debugger.lane = 0
        assert debugger.cursor == back[there[step]] == step
    with pytest.raises(kvviz.KvvizError, match="there is no lane 7; there are 0, 1"):
        debugger.lane = 7
    # what the page moved is not moved again: it shows the other lane, at a step of its own
    debugger.lane = 1
    debugger.set_state({"lane": 0, "cursor": 11})
    assert (debugger.lane, debugger.cursor, debugger.main) == (0, 11, 1)
    assert debugger.trace.policy.name == "ideal"
    # and what runs or is looked up now is of that lane
    softmax = next(s for s in debugger.trace.steps if s.op_type == "Softmax")
    (answer,) = ask(debugger, do="value", id=3, step=softmax.index, value=softmax.outputs[0])
    assert np.allclose(np.sum(answer["rows"], axis=1), 1, atol=1e-5)


def test_another_op_of_a_recorded_step_runs_in_a_lane(debugger: Debugger) -> None:
    first = debugger.trace
    debugger.cursor = 43
    name = debugger.frontier()[-1]
    assert name != first.steps[44].node
    nodes = [node.name for node in first.frames[first.log[44].frame].graph.nodes]
    assert ask(debugger, do="fork", step=44, change={"run": {"node": nodes.index(name)}}) == []
    assert debugger.cursor == 44 and debugger.trace.steps[44].node == name
    assert [place(debugger.trace, i) for i in range(44)] == [place(first, i) for i in range(44)]
    assert debugger.lanes[1]["step"] == 44 and debugger.lanes[1]["label"].endswith("at step 44")
    assert debugger.lanes[1]["first"]["step"] == 44
    debugger.lane, debugger.cursor = 0, 43
    debugger.choose(first.steps[44].node)
    assert (debugger.lane, debugger.cursor) == (0, 44)


def test_a_message_that_comes_before_the_traits_is_of_the_lane_and_step_that_it_names(debugger: Debugger) -> None:
    # given a page that shows the first lane, of which Python has not heard yet
    debugger.fork(policy="rten")
    first = debugger._lanes[0].trace
    step = next(s for s in first.steps if s.op_type == "Softmax")
    (answer,) = ask(debugger, do="value", id=3, shown=0, step=step.index, value=step.outputs[0])
    assert debugger.lane == 0 and answer["info"].startswith("float32")
    ask(debugger, do="fork", shown=0, at=44, step=45, change={"policy": "never"})
    assert debugger.lanes[-1]["of"] == 0
    assert place(debugger.trace, debugger.cursor) == place(first, 44)


LIVE = """live (float[4] x) => (float[4] y) {
    [a] a = Exp (x) [b] b = Neg (x) [c] c = Sin (a) [d] d = Abs (b) [y] y = Add (c, d) }"""


def test_a_lane_that_left_at_the_live_edge_goes_on_from_its_own_and_there_are_eight_at_most() -> None:
    debugger = kvviz.debug(graph_of(LIVE), {"x": np.arange(4, dtype=np.float32)})
    debugger.goto(2)
    debugger.goto(0)
    debugger.choose("c")
    assert debugger.frontier() == ("b",) and debugger.lanes[1]["live"]
    debugger.lane = 0
    debugger.resume()
    assert debugger.main == 0 and [step.node for step in debugger.trace.steps] == ["a", "b", "c", "d", "y"]
    assert steps_of(debugger.payload) == 5
    debugger.lane = 1
    debugger.resume()
    assert [step.node for step in debugger.trace.steps] == ["a", "c", "b", "d", "y"]
    assert debugger.lanes[1]["figures"][1]["steps"] == 5 and not debugger.lanes[1]["live"]
    for _ in range(6):
        debugger.fork(policy="never")
    labels = [lane["label"] for lane in debugger.lanes]
    assert labels[2:4] == ["never", "never (2)"] and len(set(labels)) == 8
    with pytest.raises(kvviz.KvvizError, match="there are 8 lanes already: close one of them first"):
        debugger.fork(policy="rten")


def test_a_fork_of_a_decode_that_goes_on_comes_as_far_as_it_has_come(story: tuple[kvviz.Trace, kvviz.Trace]) -> None:
    debugger = kvviz.debug(story[0].graph, prompt=PROMPT, max_new_tokens=3)
    whole = kvviz.decode(story[0].graph, PROMPT, 2, policy="rten")
    after = debugger.fork(policy="rten")
    assert len(after.steps) == len(whole.steps) and after.live is not None
    assert debugger.lanes[1]["figures"][1]["copied"] == whole.bytes_copied
    debugger.resume()
    assert after.tokens == story[0].tokens


def test_two_traces_are_lanes_named_by_what_differs(story: tuple[kvviz.Trace, kvviz.Trace]) -> None:
    graph = story[0].graph
    assert Pair(*story).labels == ("no kv_capacity, 3 tokens", "kv_capacity=8, 2 tokens")
    assert Pair(story[0], kvviz.decode(graph, [5], 1, policy="rten")).labels == ("ideal", "rten")
    assert Pair(story[0], kvviz.fork(story[0], kv_capacity=8)).labels == ("ideal", "kv_capacity=8")
    assert Pair(story[0], story[0]).labels == ("the first", "the second")


def test_the_page_is_told_the_figures_of_the_runs_that_both_have(story: tuple[kvviz.Trace, kvviz.Trace]) -> None:
    # given the first trace as it would be without the run that only it has
    pair = Pair(*story, labels=("tight", "with room"))
    shorter = kvviz.decode(story[0].graph, PROMPT, 2)
    assert [lane["label"] for lane in pair.lanes] == ["tight", "with room"]
    told = pair.lanes[1]
    assert told["note"] == "figures of the 2 runs that both have finished" and told["runs"] == 2
    assert told["note"] in pair._repr_mimebundle_()[0]["text/html"]
    assert told["first"]["step"] < len(shorter.steps)
    check_figures(told, shorter, story[1])
    # and an op that the other lane has not shows the nearest one before it
    pair.cursor = pair.trace.runs[-1].first + 10
    pair.lane = 1
    assert pair.cursor == len(story[1].steps) - 1
