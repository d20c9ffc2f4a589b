"""What the policy `rten` is given and hands over: inner values of the caller, and values that a body captures."""

from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.errors import InputError
from kvviz.graph.model import Graph
from tests.decode.small import HEADS, NAMES, SIZE, small
from tests.engine.graphs import graph_of, numbers, ort_run, proto_of, run, step_of
from tests.outside.told import differences, loaded

BLOCK = 256  # bytes of float[64]
BRANCH = """g (float[64] x) => (float[64] y) <bool c = {1}> { a = Exp(x)
    [if] y = If (c) <then_branch = t () => (float[64] u) { [inner] p = Neg(a) u = Exp(p) },
                     else_branch = e () => (float[64] v) { v = Neg(%s) }> }"""
NESTED = """g (float[64] x) => (float[64] y) <bool c = {1}> { a = Exp(x)
    [if] y = If (c) <then_branch = t () => (float[64] u) {
        u = If(c) <then_branch = tt () => (float[64] w) { [inner] w = Neg(a) },
                   else_branch = te () => (float[64] z) { z = Exp(x) }> },
                     else_branch = e () => (float[64] v) { v = Neg(x) }> }"""
LOOP = """g (float[64] x) => (float[64] y) <int64 n = {3}, bool c = {1}> { a = Exp(x) i = Neg(x)
    [loop] y = Loop (n, c, i) <body = b (int64 k, bool go, float[64] s) => (bool on, float[64] u) {
        on = Identity(go) [inner] p = Neg(a) u = Add(s, p) }> }"""


def traced(text: str, policy: kvviz.Policy = kvviz.policies.rten) -> Trace:
    """Run under a policy of rten, with the numbers of onnxruntime."""
    trace = run(text, {"x": numbers(64)}, policy=policy)
    (expected,) = ort_run(proto_of(text), {"x": numbers(64)})
    np.testing.assert_allclose(trace.outputs["y"], expected, rtol=1e-5)
    return trace


LENT = {
    "named by both branches": (BRANCH % "a", "counts a captured value once for each body that names it"),
    "two levels down": (NESTED, "hands captured values over by one level only"),
}


@pytest.mark.parametrize(("text", "reason"), LENT.values(), ids=LENT)
def test_a_value_that_rten_lends_to_a_body_outlives_it_and_the_rule_is_named(text: str, reason: str) -> None:
    trace = traced(text)
    lent, rule = step_of(trace, "inner").decision.blockers
    assert (lent.code, lent.culprit) == ("CAPTURED_BY_REFERENCE", "if")
    assert (rule.code, rule.culprit) == ("POLICY", "rten") and reason in rule.message
    # The block lives until the If is done, beside the one that the body made.
    assert step_of(trace, "inner").live_bytes == step_of(trace, "if").live_bytes == 3 * BLOCK + 1


@pytest.mark.parametrize("lengths", [[5, 5], [5, 3]])
def test_a_grouped_past_is_appended_to_where_every_entry_of_the_batch_is_full(lengths: list[int]) -> None:
    # given a batch of two whose pasts are all rows of the block, or of which one holds fewer
    made = small("grouped")
    rows = (2, HEADS, 5, SIZE)
    feeds: dict[str, Any] = {name: kvviz.reserve(numbers(*rows), 2, 12) for name in NAMES}
    feeds |= {"input_ids": np.array([[3], [4]]), "cache_position": np.array([5])}
    feeds |= {"seqlens_k": np.array(lengths, np.int32), "total_sequence_length": np.array(6, np.int32)}
    trace = kvviz.run(kvviz.load(made.proto), feeds, donate=list(NAMES), policy="rten")
    step = next(step for step in trace.steps if step.op_type == "GroupQueryAttention")
    # then rten extends the past only in the first case
    assert [out.how for out in step.outs[1:]] == (["append"] * 2 if lengths == [5, 5] else ["new"] * 2)
    assert step.decision.dispatch == "in_place"


def test_a_past_may_be_taken_by_an_op_that_gives_no_present() -> None:
    # given attention over a past of which only the result is asked for
    wide, rows = f"float[1, 1, {HEADS * SIZE}]", f"float[1, {HEADS}, p, {SIZE}]"
    feeds = {name: numbers(1, 1, HEADS * SIZE, seed=place) for place, name in enumerate("qkv")}
    feeds |= {name: numbers(1, HEADS, 3, SIZE, seed=7) for name in ("pk", "pv")}
    text = f"""g ({wide} q, {wide} k, {wide} v, {rows} pk, {rows} pv) => ({wide} y%s) {{ [attention] y%s =
        com.microsoft.MultiHeadAttention <num_heads = {HEADS}> (q, k, v, , , , pk, pv) }}"""
    grown = rows.replace("p", "t")
    one, three = (proto_of(text % both) for both in (("", ""), (f", {grown} nk, {grown} nv", ", nk, nv")))
    # onnxruntime reads memory that it never wrote where the presents are not asked for
    expected = ort_run(three, feeds)[0]
    trace = kvviz.run(kvviz.load(one), feeds, donate=["pk", "pv"], policy="rten")
    # then it is called in place, and gives the same in memory of its own
    np.testing.assert_allclose(trace.outputs["y"], expected, rtol=1e-4, atol=1e-5)
    step = step_of(trace, "attention")
    assert step.decision.dispatch == "in_place" and [out.how for out in step.outs] == ["new"]


@pytest.mark.parametrize("swapped", [False, True])
def test_both_operands_of_a_sum_are_answered_for_where_the_one_that_is_tried_is_too_small(swapped: bool) -> None:
    """The state of a loop is lent to its first iteration and counts as empty, so the row that moves in is tried."""
    operands = "p, s" if swapped else "s, p"
    text = """g (float[64] x, float[1] row) => (float[64] y) <int64 n = {2}, bool c = {1}> { a = Neg(row)
        [loop] y = Loop (n, c, x) <body = b (int64 k, bool go, float[64] s) => (bool on, float[64] u) {
            on = Identity(go) p = Neg(a) [sum] u = Add(%s) }> }"""
    trace = run(text % operands, {"x": numbers(64), "row": numbers(1)}, policy="rten")
    first = step_of(trace, "sum")
    assert first.decision.dispatch == "in_place" and first.decision.taken == ("p",) and first.allocated == BLOCK
    codes = {name: {b.code.value for b in first.decision.blockers if b.input == name} for name in "sp"}
    assert codes == {"p": {"SHAPE_DIFFERS"}, "s": {"BORROWED_INPUT", "CAPTURED_BY_REFERENCE", "POLICY"}}
    assert any("a Loop of rten never owns its inputs" in b.message for b in first.decision.blockers)


BEFORE = kvviz.policies.rten(captures="by_reference")


@pytest.mark.parametrize("text", [BRANCH % "x", LOOP], ids=["branch", "loop"])
def test_before_the_change_a_body_borrows_what_it_captures_and_the_rule_is_named(text: str) -> None:
    trace = traced(text, BEFORE)
    assert {b.how for frame in trace.frames for b in frame.bindings if b.name == "a"} == {"captured by reference"}
    inner = step_of(trace, "inner")
    assert inner.decision.dispatch == "run" and inner.allocated == BLOCK
    assert {b.code.value for b in inner.decision.blockers} == {"CAPTURED_BY_REFERENCE", "POLICY"}
    assert any("before v0.14.1 rten lent captured values" in b.message for b in inner.decision.blockers)
    assert all(b.fix is None for b in inner.decision.blockers)
    # The option is kept with a trace.
    assert kvviz.policies.of(loaded(trace)) == BEFORE == kvviz.policies.of(trace) != kvviz.policies.rten


def test_the_option_has_a_name_and_others_are_refused() -> None:
    assert BEFORE.name == "rten, captures by reference" and BEFORE is kvviz.policies.rten(captures="by_reference")
    with pytest.raises(kvviz.KvvizError, match="'by_value' or 'by_reference', not 'copied'"):
        kvviz.policies.rten(captures="copied")


X, H = np.array([1, -2, 3], np.float32), np.array([5, -6, 7], np.float32)
THREE = """g (float[3] x, float[3] b) => (float[3] y) {
    [first] h = Neg(x) [second] r = Relu(h) [y] y = Add(r, b) }"""


def test_a_given_inner_value_takes_the_place_of_what_makes_it_and_is_overwritten_as_any_other_input() -> None:
    graph = graph_of(THREE)
    for donate in ([], ["h"]):
        trace = kvviz.run(graph, {"h": H.copy(), "b": X}, donate=donate, policy="rten", poison=True)
        assert [step.node for step in trace.steps] == ["second", "y"]
        assert trace.steps[0].decision.shares == ({"r": "h"} if donate else {})
    # An input that is not read may be given all the same, but one that is read not be left out.
    assert len(kvviz.run(graph, {"x": X, "h": H, "b": X}, policy="rten").steps) == 2
    assert np.array_equal(H, [5, -6, 7])
    with pytest.raises(InputError, match="missing input: b"):
        kvviz.run(graph, {"h": H}, policy="rten")
    with pytest.raises(InputError, match="'h' has dtype int64"):
        kvviz.run(graph, {"h": H.astype(np.int64), "b": X}, policy="rten")
    for policy in ("ideal", "never", "onnxruntime"):
        with pytest.raises(InputError, match=r"no input named 'h' .*only the policy rten"):
            kvviz.run(graph, {"h": H, "b": X}, policy=policy)


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
