"""Runs that are given inner values by name, as rten takes them: the graph begins there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kvviz
from kvviz.errors import InputError
from kvviz.explain.diagnose import explain
from kvviz.graph.model import Graph
from tests.graph.build import model, node

X = np.array([1, -2, 3], np.float32)
H = np.array([5, -6, 7], np.float32)


def three() -> Graph:
    nodes = [node("Neg", "x", "h", name="first"), node("Relu", "h", "r", name="second"), node("Add", "r b", "y")]
    return kvviz.load(model(nodes, ["x float 3", "b float 3"], ["y"]))


def test_a_given_inner_value_takes_the_place_of_what_makes_it() -> None:
    trace = kvviz.run(three(), {"h": H, "b": X}, policy="rten")
    assert [step.node for step in trace.steps] == ["second", "y"]
    assert np.array_equal(trace.outputs["y"], np.maximum(H, 0) + X)
    assert np.array_equal(H, [5, -6, 7])


def test_an_input_that_is_not_read_may_be_given_all_the_same_but_not_one_that_is_read_be_left_out() -> None:
    assert len(kvviz.run(three(), {"x": X, "h": H, "b": X}, policy="rten").steps) == 2
    with pytest.raises(InputError, match="missing input: b"):
        kvviz.run(three(), {"h": H}, policy="rten")


@pytest.mark.parametrize("donated", [False, True])
def test_a_donated_inner_value_is_overwritten_as_any_other_input(donated: bool) -> None:
    given = H.copy()
    trace = kvviz.run(three(), {"h": given, "b": X}, donate=["h"] if donated else [], policy="rten", poison=True)
    assert trace.steps[0].decision.dispatch == ("in_place" if donated else "run")
    assert trace.steps[0].decision.shares == ({"r": "h"} if donated else {})
    assert np.array_equal(trace.outputs["y"], np.maximum(H, 0) + X)


def test_runs_one_after_the_other_begin_where_each_is_told_to() -> None:
    graph = three()
    for _ in range(2):
        whole = kvviz.run(graph, {"x": X, "b": X}, policy="rten")
        part = kvviz.run(graph, {"h": H, "b": X}, policy="rten")
        late = kvviz.run(graph, {"r": H, "b": X}, policy="rten")
        assert [len(trace.steps) for trace in (whole, part, late)] == [3, 2, 1]
        assert np.array_equal(late.outputs["y"], H + X) and np.array_equal(whole.outputs["y"], np.maximum(-X, 0) + X)


def test_two_inner_values_may_be_given_and_one_be_asked_for() -> None:
    trace = kvviz.run(three(), {"h": H, "r": X, "b": X}, ["h", "y"], policy="rten")
    assert [step.node for step in trace.steps] == ["y"]
    assert np.array_equal(trace.outputs["h"], H) and np.array_equal(trace.outputs["y"], X + X)


def test_an_inner_value_of_another_type_is_refused() -> None:
    with pytest.raises(InputError, match="'h' has dtype int64"):
        kvviz.run(three(), {"h": H.astype(np.int64), "b": X}, policy="rten")


@pytest.mark.parametrize("policy", ["ideal", "never", "onnxruntime"])
def test_other_policies_say_that_they_do_not_take_inner_values(policy: str) -> None:
    with pytest.raises(InputError, match=r"no input named 'h' .*only the policy rten"):
        kvviz.run(three(), {"h": H, "b": X}, policy=policy)


def test_an_op_that_must_run_for_another_output_is_named() -> None:
    nodes = [node("Split", "x", "p q", name="cut", num_outputs=2), node("Relu", "p", "y"), node("Neg", "q", "z")]
    graph = kvviz.load(model(nodes, ["x float 4"], ["y", "z"]))
    with pytest.raises(InputError, match="'p' is given, but node 'cut'"):
        kvviz.run(graph, {"x": np.ones(4, np.float32), "p": np.ones(2, np.float32)}, policy="rten")
    assert len(kvviz.run(graph, {"p": X[:2], "q": X[:2]}, policy="rten").steps) == 2
    assert len(kvviz.run(graph, {"p": X[:2]}, ["y"], policy="rten").steps) == 1


def test_readers_take_such_a_trace_as_any_other(tmp_path: Path) -> None:
    # given
    trace = kvviz.run(three(), {"h": H, "b": X}, policy="rten")
    # when
    trace.save(tmp_path / "trace")
    saved = kvviz.Trace.load(tmp_path / "trace")
    # then
    assert [step.node for step in saved.steps] == ["second", "y"]
    assert kvviz.hazards(saved) == kvviz.hazards(trace)
    (missed,) = [one for one in explain(trace).missed if one.node == "second"]
    fixed = missed.blockers[0].fix.apply()
    assert fixed.steps[0].decision.dispatch == "in_place"
    assert np.array_equal(fixed.outputs["y"], trace.outputs["y"])
