"""Hazards: pairs of ops that only the schedule keeps in order, judged by running the other orders."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import kvviz
from kvviz.engine.sessions.io_binding import bind
from kvviz.graph.model import Graph
from kvviz.lessons.legal_orders import legal_orders, orders
from kvviz.report.faces.hazard_table import hazards
from kvviz.trace.index.hazards import path_between
from tests.engine.graphs import graph_of, numbers, run
from tests.engine.random_graphs import Example, examples

bound = bind(kvviz.policies.ideal, {"present": "past"})


def scatter() -> Graph:
    """A TensorScatter and another reader of its past, with nothing between them that says who goes first."""
    text = """g (float[1,2,4,3] past, float[1,2,1,3] update, int64[1] at) => (float[1,2,4,3] present, float before) {
        [write] present = TensorScatter <axis = 2> (past, update, at)
        [read] before = ReduceSum <keepdims = 0> (past) }"""
    return graph_of(text, 24)


FEEDS = {"past": np.zeros((1, 2, 4, 3), np.float32), "update": np.ones((1, 2, 1, 3), np.float32), "at": np.array([1])}


def test_one_buffer_on_both_sides_of_a_scatter_makes_the_order_decide_and_the_hazard_names_both_ops() -> None:
    # without a binding every legal order is right
    found = orders(scatter(), FEEDS, donate=["past"])
    assert [order.nodes for order in found] == [("write", "read"), ("read", "write")]
    assert not any(order.wrong for order in found)
    assert [order.trace.steps[order.nodes.index("write")].decision.dispatch for order in found] == ["run", "in_place"]
    first, second = orders(scatter(), FEEDS, donate=["past"], policy=bound)
    assert first.wrong == ("before",) and second.wrong == ()
    assert [(h.kind, h.broken) for h in first.hazards] == [("WAR", True)]
    assert [(h.kind, h.broken) for h in second.hazards] == [("WAR", False)]
    assert "ReduceSum read reads past after TensorScatter write has overwritten it" in first.hazards[0].sentence
    assert "only the schedule runs ReduceSum read first" in second.hazards[0].sentence
    assert not FEEDS["past"].any(), "the inputs survive trying every order"


def test_a_body_comes_after_what_its_condition_needs() -> None:
    text = """g (float[2] x) => (float[2] z) { n = ReduceSum <keepdims = 0> (x) c = Cast <to = 9> (n) y = Neg (x)
        z = If (c) <then_branch = yes () => (float[2] t) { t = Relu (y) },
                    else_branch = no () => (float[2] e) { e = Sin (y) }> }"""
    trace = run(text, {"x": np.ones(2, np.float32)})
    inner = next(step.index for step in trace.steps if step.frame)
    assert path_between(trace, trace.steps[0].index, inner)
    assert not path_between(trace, 0, next(step.index for step in trace.steps if step.node_index == 2))


def test_legal_orders_are_counted_right_and_more_than_the_limit_refused() -> None:
    graph = graph_of("g (float[2] x) => (float[2] d, float[2] e) { a = Neg(x) b = Relu(x) d = Add(a, b) e = Sin(b) }")
    # a, b, d, e with a < d, b < d, b < e: five of the 24 permutations.
    assert len(set(legal_orders(graph, ("d", "e")))) == 5
    with pytest.raises(kvviz.KvvizError, match="more than 4 legal orders"):
        orders(graph, {"x": np.ones(2, np.float32)}, limit=4)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(example=examples())
def test_a_run_that_is_right_has_no_broken_hazard(example: Example) -> None:
    graph = kvviz.load(example.model)
    given_arrays = {name: array.copy() for name, array in example.inputs.items()}
    for policy in ("ideal", "rten"):
        trace = kvviz.run(graph, {k: v.copy() for k, v in given_arrays.items()}, donate=example.donate, policy=policy)
        assert not [h for h in hazards(trace) if h.broken]
        for hazard in hazards(trace):
            assert not path_between(trace, hazard.first, hazard.second)
            assert hazard.first < hazard.second


def test_reading_what_an_ancestor_has_overwritten_is_a_broken_war_in_every_order() -> None:
    # given a sum that needs both the cache as it was and the op that was told to overwrite it
    text = """g (float[3] past) => (float[3] present, float[3] sum) {
        [write] present = Neg(past) [both] sum = Add(past, present) }"""
    (order,) = orders(graph_of(text), {"past": np.ones(3, np.float32)}, donate=["past"], policy=bound)
    assert order.wrong == ("sum",)
    assert [(h.kind, h.broken, h.value) for h in order.hazards] == [("WAR", True, "past")]
    assert "after Neg write has overwritten it" in order.hazards[0].sentence


NONE: dict[str, tuple[str, dict[str, np.ndarray]]] = {
    "an element of a sequence is what was put there": (
        """g (float[4] x, int64 i) => (float[4] y) {
        a = Exp(x) s = SequenceConstruct(a) e = SequenceAt(s, i) y = Neg(e) }""",
        {"x": numbers(4), "i": np.array(0)},
    ),
    "a slice of a scan shows what was made before the scan": (
        """g (float[3, 2] x, float[2] s) => (float[2] y, float[3, 2] z) { e = Exp(x) a = Neg(e)
        y, z = Scan <num_scan_inputs = 1, body = b (float[2] v, float[2] r) => (float[2] w, float[2] o)
            { w = Add(v, r) o = Relu(r) }> (s, a) }""",
        {"x": numbers(3, 2), "s": numbers(2)},
    ),
    "of the target of a cast the type alone is asked": (
        "g (float[4] x, int32[4] i) => (float[4] c, float[4] z) { y = Neg (x) c = CastLike (i, y) z = Relu (y) }",
        {"x": numbers(4), "i": np.arange(4, dtype=np.int32)},
    ),
}


@pytest.mark.parametrize("name", NONE)
def test_what_touches_no_bytes_that_another_op_writes_is_no_hazard(name: str) -> None:
    text, feeds = NONE[name]
    assert any(step.decision.taken for step in run(text, feeds).steps)
    for policy in ("ideal", "never", "rten", "onnxruntime"):
        assert hazards(run(text, feeds, policy=policy), "root") == ()


# A product that is summed up, beside a chain of others that nothing but the schedule keeps behind it.
TEXT = """g (float[8, 8] x) => (float s, float[8, 8] y) {
    a = MatMul(x, x) c = MatMul(x, x) s = ReduceSum <keepdims = 0> (a)
    d = MatMul(x, c) e = MatMul(x, d) y = MatMul(x, e) }"""


@pytest.mark.parametrize("policy", ["rten", "onnxruntime"])
def test_a_block_from_the_pool_begins_anew(policy: str) -> None:
    # given a block that is handed out again after its last reader, which no edge puts before the next writer
    trace = run(TEXT, {"x": numbers(8, 8)}, policy=policy)
    made = {out.name: out for step in trace.steps for out in step.outs}
    assert made["a"].storage in {made[name].storage for name in ("d", "e") if made[name].how == "pool"}
    # then the two lives of the block are no hazard for each other
    assert hazards(trace) == ()
