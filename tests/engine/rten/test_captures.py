"""What the policy `rten` hands over to a body, who owns it afterwards, and why it was only lent elsewhere."""

from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from tests.decode.small import HEADS, NAMES, SIZE, small
from tests.engine.graphs import numbers, ort_run, proto_of, run, step_of

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


def traced(text: str) -> Trace:
    """Run under rten, with the numbers of onnxruntime."""
    trace = run(text, {"x": numbers(64)}, policy="rten")
    (expected,) = ort_run(proto_of(text), {"x": numbers(64)})
    np.testing.assert_allclose(trace.outputs["y"], expected, rtol=1e-5)
    return trace


def how(trace: Trace, name: str) -> list[str]:
    return [bound.how for frame in trace.frames for bound in frame.bindings if bound.name == name]


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
    # when it runs
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
    trace = run(text, {"x": numbers(64)}, policy=BEFORE)
    (expected,) = ort_run(proto_of(text), {"x": numbers(64)})
    np.testing.assert_allclose(trace.outputs["y"], expected, rtol=1e-5)
    assert set(how(trace, "a")) == {"captured by reference"}
    inner = step_of(trace, "inner")
    assert inner.decision.dispatch == "run" and inner.allocated == BLOCK
    assert {b.code.value for b in inner.decision.blockers} == {"CAPTURED_BY_REFERENCE", "POLICY"}
    assert any("before v0.14.1 rten lent captured values" in b.message for b in inner.decision.blockers)
    assert all(b.fix is None for b in inner.decision.blockers)


def test_the_option_is_kept_with_a_trace_and_others_are_refused(tmp_path: Any) -> None:
    trace = run(BRANCH % "x", {"x": numbers(64)}, policy=BEFORE)
    trace.save(tmp_path / "trace")
    loaded = Trace.load(tmp_path / "trace")
    assert kvviz.policies.of(loaded) == BEFORE == kvviz.policies.of(trace) != kvviz.policies.rten
    assert BEFORE.name == "rten, captures by reference" and BEFORE is kvviz.policies.rten(captures="by_reference")
    with pytest.raises(kvviz.KvvizError, match="'by_value' or 'by_reference', not 'copied'"):
        kvviz.policies.rten(captures="copied")
