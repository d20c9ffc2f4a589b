"""Runs that are given inner values by name, as rten takes them: the graph begins there."""

import numpy as np
import pytest

import kvviz
from kvviz.errors import InputError
from kvviz.graph.model import Graph
from tests.graph.build import model, node
from tests.outside.told import differences, loaded

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


def test_an_inner_value_of_another_type_is_refused() -> None:
    with pytest.raises(InputError, match="'h' has dtype int64"):
        kvviz.run(three(), {"h": H.astype(np.int64), "b": X}, policy="rten")


@pytest.mark.parametrize("policy", ["ideal", "never", "onnxruntime"])
def test_other_policies_say_that_they_do_not_take_inner_values(policy: str) -> None:
    with pytest.raises(InputError, match=r"no input named 'h' .*only the policy rten"):
        kvviz.run(three(), {"h": H, "b": X}, policy=policy)


def cut(*readers: str) -> Graph:
    """A Split, whose first half each of these ops reads, and whose second one Neg."""
    halves = [node("Split", "x", "p q", name="cut", num_outputs=2), node("Neg", "q", "z", name="neg")]
    nodes = [*halves[:1], *(node(op, "p", f"y{i}", name=f"r{i}") for i, op in enumerate(readers)), *halves[1:]]
    return kvviz.load(model(nodes, ["x float 4"], [*(f"y{i}" for i in range(len(readers))), "z"]))


X4, P = np.array([1, 2, 3, 4], np.float32), np.array([-7, 8], np.float32)
OWN = np.array([1, 2], np.float32)


@pytest.mark.parametrize("lent", [True, False])
def test_an_op_that_must_run_for_another_output_makes_the_given_value_again(lent: bool) -> None:
    # Split cannot run in place, so it goes first; Relu then takes over what it made, whatever was given.
    trace = kvviz.run(cut("Relu"), {"x": X4, "p": P.copy()}, donate=[] if lent else ["p"], policy="rten")
    assert [step.node for step in trace.steps] == ["cut", "r0", "neg"]
    assert trace.steps[1].inputs == ("p#2",) and trace.steps[1].decision.dispatch == "in_place"
    assert np.array_equal(trace.outputs["y0"], OWN) and np.array_equal(trace.outputs["z"], [-3, -4])


@pytest.mark.parametrize(("lent", "second"), [(True, -P), (False, -OWN)], ids=["lent", "donated"])
def test_what_has_read_it_by_then_runs_once_more(lent: bool, second: np.ndarray) -> None:
    """``Graph::run_plan``: what is not taken over is looked for among the caller's views first; what was donated is
    replaced by what the Split made."""
    nodes = [
        node("Split", "x", "p q", name="cut", num_outputs=2),
        node("Unsqueeze", "q a", "u", name="u"),
        node("Sum", "p", "s", name="sum"),
        node("Neg", "s", "y", name="neg"),
    ]
    graph = kvviz.load(model(nodes, ["x float 4"], ["y", "u"], a=np.array([0])))
    trace = kvviz.run(graph, {"x": X4, "p": P.copy()}, donate=[] if lent else ["p"], policy="rten", poison=True)
    assert [step.node for step in trace.steps] == ["sum#1", "cut", "sum", "neg", "u"]
    assert np.array_equal(trace.outputs["y"], second) and np.array_equal(trace.outputs["u"], [[3, 4]])
    assert [step.graph_node.index % 10**6 for step in trace.steps] == [2, 0, 2, 3, 1]


def test_a_donated_value_that_is_made_again_is_not_overwritten_before() -> None:
    # The second half is late, so the Relu reads what was given, and once more what the Split makes.
    nodes = [
        node("Neg", "x", "n", name="first"),
        node("Split", "n", "p q", name="cut", num_outputs=2),
        node("Relu", "p", "y", name="relu"),
        node("Neg", "q", "z", name="last"),
    ]
    graph = kvviz.load(model(nodes, ["x float 4"], ["y", "z"]))
    trace = kvviz.run(graph, {"x": X4, "p": P.copy()}, donate=["p"], policy="rten", poison=True)
    assert [step.node for step in trace.steps] == ["relu#1", "first", "cut", "relu", "last"]
    (blocker,) = trace.steps[0].decision.blockers
    assert "makes that value again" in blocker.message and trace.steps[3].decision.dispatch == "in_place"
    assert np.array_equal(trace.outputs["y"], [0, 0]) and np.array_equal(trace.outputs["z"], [3, 4])


def test_a_given_value_that_is_wanted_is_the_callers() -> None:
    trace = kvviz.run(cut("Relu"), {"x": X4, "p": P}, ["p", "z"], policy="rten")
    assert np.array_equal(trace.outputs["p"], P) and np.array_equal(trace.outputs["z"], [-3, -4])
    with pytest.raises(InputError, match="'p' is donated and wanted as an output"):
        kvviz.run(cut("Relu"), {"x": X4, "p": P.copy()}, ["p", "z"], ["p"], policy="rten")


def test_a_trace_in_which_an_op_runs_twice_goes_through_all_readers() -> None:
    trace = kvviz.run(cut("Neg", "Sum"), {"x": X4, "p": P}, policy="rten")
    assert sorted(step.node for step in trace.steps) == ["cut", "neg", "r0", "r1", "r1#1"]
    assert differences(trace, loaded(trace)) == [] and "r1#1" in trace.to_html()
    (cut_step,) = [step.index for step in trace.steps if step.node == "cut"]
    assert np.array_equal(trace.value("p#2", cut_step), OWN)
