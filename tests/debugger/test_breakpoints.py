"""Breakpoints of every kind: what they match, how often, and what a bad one says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import parser

import kvviz
from kvviz.debugger import Breakpoint, Cursor
from kvviz.decode.single import SingleRun

TEXT = """chain (float[4] x, float[4] w) => (float[4] y, float[2,2] v) {
    a = Relu(x)  b = Sigmoid(a)  c = Add(b, w)  s = Relu(c)  v = Reshape <allowzero = 0> (c, shape)  y = Neg(s) }"""


@pytest.fixture
def session() -> SingleRun:
    text = TEXT.replace("=> (float[4] y, float[2,2] v) {", "=> (float[4] y, float[2,2] v) <int64[2] shape = {2, 2}> {")
    graph = kvviz.load(parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>\n' + text))
    return SingleRun(graph, {"x": np.ones(4, np.float32), "w": np.ones(4, np.float32)})


CASES: list[tuple[str, Any, list[str]]] = [
    ("node", "c", ["c"]),
    ("op", "Relu", ["a", "s"]),
    ("decision", "in_place", ["b", "c", "y"]),
    ("decision", "missed", ["a", "s"]),
    ("decision", "view", ["v"]),
    ("condition", "step.op_type == 'Neg' and step.written == 16", ["y"]),
    ("condition", lambda step: "NOT_LAST_USE" in {b.code for b in step.decision.blockers}, ["s"]),
]


@pytest.mark.parametrize(("kind", "value", "stops"), CASES)
def test_a_breakpoint_stops_where_it_matches_and_nowhere_else(
    session: SingleRun, kind: str, value: Any, stops: list[str]
) -> None:
    cursor = Cursor(session)
    cursor.breakpoints = [Breakpoint(kind, value)]
    seen = []
    while (stop := cursor.resume()).reason == "breakpoint":
        assert stop.breakpoint is cursor.breakpoints[0]
        seen.append(cursor.trace.steps[stop.position].node)
    assert seen == stops
    assert cursor.breakpoints[0].hits == len(stops)


def test_a_buffer_breakpoint_stops_when_it_is_written_shared_or_freed(session: SingleRun) -> None:
    trace = session.run_to_end()
    buffer = trace.steps[0].outs[0].storage
    touched = [s.index for s in trace.steps if buffer in s.freed or any(o.storage == buffer for o in s.outs)]
    cursor = Cursor(trace)
    cursor.breakpoints = [Breakpoint("buffer", f"B{buffer}.2")]
    seen = []
    while cursor.resume().reason == "breakpoint":
        seen.append(cursor.position)
    assert seen == touched and len(seen) >= 4


def test_reverse_stops_at_the_breakpoint_before(session: SingleRun) -> None:
    cursor = Cursor(session.run_to_end())
    cursor.breakpoints = [Breakpoint("op", "Relu")]
    cursor.goto(len(cursor.trace.steps) - 1)
    assert cursor.trace.steps[cursor.reverse().position].node == "s"
    assert cursor.trace.steps[cursor.reverse().position].node == "a"
    assert cursor.reverse().reason == "start"


def test_ignored_hits_are_passed_and_disabled_breakpoints_too(session: SingleRun) -> None:
    cursor = Cursor(session)
    cursor.breakpoints = [Breakpoint("op", "Relu", ignore=1), Breakpoint("op", "Sigmoid", enabled=False)]
    assert cursor.trace.steps[cursor.resume().position].node == "s"
    assert [b.hits for b in cursor.breakpoints] == [2, 0]


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        ("weather", "rain", "no breakpoint of kind"),
        ("decision", "maybe", "no decision 'maybe'"),
        ("condition", "step.", "not a Python expression"),
    ],
)
def test_a_bad_breakpoint_is_refused_with_one_sentence(kind: str, value: str, told: str) -> None:
    with pytest.raises(kvviz.KvvizError, match=told):
        Breakpoint(kind, value)


def test_a_condition_that_fails_names_itself_and_the_step(session: SingleRun) -> None:
    cursor = Cursor(session)
    cursor.breakpoints = [Breakpoint("condition", "step.wings > 2")]
    with pytest.raises(kvviz.KvvizError, match=r"'step.wings > 2' failed at step 0"):
        cursor.resume()


def test_a_condition_cannot_reach_for_builtins(session: SingleRun) -> None:
    cursor = Cursor(session)
    cursor.breakpoints = [Breakpoint("condition", "__import__('os').getcwd()")]
    with pytest.raises(kvviz.KvvizError, match="NameError"):
        cursor.resume()
