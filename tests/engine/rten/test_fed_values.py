"""Runs that are given inner values by name, as rten takes them: the graph begins there."""

import numpy as np
import pytest

import kvviz
from kvviz.errors import InputError
from kvviz.graph.model import Graph
from tests.engine.graphs import graph_of
from tests.outside.told import differences, loaded

X = np.array([1, -2, 3], np.float32)
H = np.array([5, -6, 7], np.float32)


def three() -> Graph:
    return graph_of("""g (float[3] x, float[3] b) => (float[3] y) {
        [first] h = Neg(x) [second] r = Relu(h) [y] y = Add(r, b) }""")


def test_a_given_inner_value_takes_the_place_of_what_makes_it() -> None:
    trace = kvviz.run(three(), {"h": H, "b": X}, policy="rten")
    assert [step.node for step in trace.steps] == ["second", "y"]
    assert np.array_equal(H, [5, -6, 7])
    # An input that is not read may be given all the same, but one that is read not be left out.
    assert len(kvviz.run(three(), {"x": X, "h": H, "b": X}, policy="rten").steps) == 2
    with pytest.raises(InputError, match="missing input: b"):
        kvviz.run(three(), {"h": H}, policy="rten")
    with pytest.raises(InputError, match="'h' has dtype int64"):
        kvviz.run(three(), {"h": H.astype(np.int64), "b": X}, policy="rten")
    for policy in ("ideal", "never", "onnxruntime"):
        with pytest.raises(InputError, match=r"no input named 'h' .*only the policy rten"):
            kvviz.run(three(), {"h": H, "b": X}, policy=policy)


@pytest.mark.parametrize("donated", [False, True])
def test_a_donated_inner_value_is_overwritten_as_any_other_input(donated: bool) -> None:
    trace = kvviz.run(three(), {"h": H.copy(), "b": X}, donate=["h"] * donated, policy="rten", poison=True)
    assert trace.steps[0].decision.dispatch == ("in_place" if donated else "run")
    assert trace.steps[0].decision.shares == ({"r": "h"} if donated else {})
    assert np.array_equal(trace.outputs["y"], np.maximum(H, 0) + X)


def cut(*readers: str) -> Graph:
    """A Split, whose first half each of these ops reads, and whose second one Neg."""
    made = ", ".join(f"float[2] y{i}" for i in range(len(readers)))
    nodes = " ".join(f"[r{i}] y{i} = {op}(p)" for i, op in enumerate(readers))
    return graph_of(f"""g (float[4] x) => ({made}, float[2] z) {{
        [cut] p, q = Split <num_outputs = 2> (x) {nodes} [neg] z = Neg(q) }}""")


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
    graph = graph_of("""g (float[4] x) => (float[2] y, float[1, 2] u) <int64[1] a = {0}> {
        [cut] p, q = Split <num_outputs = 2> (x) [u] u = Unsqueeze(q, a) [sum] s = Sum(p) [neg] y = Neg(s) }""")
    trace = kvviz.run(graph, {"x": X4, "p": P.copy()}, donate=[] if lent else ["p"], policy="rten", poison=True)
    assert [step.node for step in trace.steps] == ["sum#1", "cut", "sum", "neg", "u"]
    assert np.array_equal(trace.outputs["y"], second) and np.array_equal(trace.outputs["u"], [[3, 4]])
    assert [step.graph_node.index % 10**6 for step in trace.steps] == [2, 0, 2, 3, 1]


def test_a_donated_value_that_is_made_again_is_not_overwritten_before() -> None:
    # The second half is late, so the Relu reads what was given, and once more what the Split makes.
    graph = graph_of("""g (float[4] x) => (float[2] y, float[2] z) {
        [first] n = Neg(x) [cut] p, q = Split <num_outputs = 2> (n) [relu] y = Relu(p) [last] z = Neg(q) }""")
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
