"""Why an op ran in place or did not: every reason, its culprit, and that nothing else stood in the way."""

import numpy as np
import pytest

import kvviz
from kvviz.decode.run_sessions import SingleRun
from kvviz.trace.blockers import BlockerCode
from tests.engine.blocked import CASES, LATER, Case, X
from tests.engine.graphs import graph_of, numbers, run, step_of

LOOP = """g (float[2, 3] x) => (float[2, 3] z, float[?, 2, 3] t) <int64 n = {2}> {
    a = Exp(x)
    [loop] %s = Loop (n, ""%s) <body = b (int64 i, bool go%s) => (bool on%s, float[2, 3] u) {
        on = Identity(go) [target] u = Relu(a) }> %s }"""


def fresh(inputs: dict) -> dict:
    """Arrays of its own for one run, which may overwrite the donated ones."""
    return {name: value() if callable(value) else value.copy() for name, value in inputs.items()}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_one_reason_is_found_with_its_culprit_and_without_it_the_op_runs_in_place(case: Case) -> None:
    trace = run(case.text, fresh(case.inputs), opset=case.opset, **case.options)
    step = step_of(trace, "target")
    assert step.decision.dispatch == "run" and step.decision.taken == ()
    found = [b for b in step.decision.blockers if b.input == case.input]
    # An op that reads a value twice is asked about each of the two positions.
    assert [b.position for b in found] == [i for i, name in enumerate(step.inputs) if name == case.input]
    for blocker in found:
        assert (blocker.code, blocker.culprit) == (case.code, case.culprit)
        assert blocker.message.endswith(case.message) and blocker.bytes > 0
        if case.code != "POLICY":
            assert step.op_type in blocker.message and case.input in blocker.message
        if case.code in ("NOT_LAST_USE", "REQUESTED_OUTPUT", "CAPTURED_BY_REFERENCE", "ALIASED", "POLICY"):
            assert case.culprit in blocker.message
    # when the culprit is gone
    inputs = fresh({**case.inputs, **case.cured_inputs})
    names = {value.name for value in graph_of(case.cure or case.text, case.opset).inputs}
    inputs = {name: value for name, value in inputs.items() if name in names}
    cured = run(case.cure or case.text, inputs, opset=case.opset, **case.cured_options)
    step = step_of(cured, "target")
    assert step.decision.dispatch == "in_place"
    assert step.decision.taken == (case.input,)
    assert step.decision.shares == {step.outputs[0]: case.input}
    assert not [b for b in step.decision.blockers if b.input == case.input]
    assert step.allocated == 0
    np.testing.assert_array_equal(cured.outputs["t"], trace.outputs["t"])


def test_a_loop_body_borrows_what_its_next_iteration_needs_until_it_is_carried() -> None:
    captured = LOOP % ("t", "", "", "", "z = Neg(x)")
    carried = LOOP.replace("Relu(a)", "Relu(s) s_out = Exp(s)") % (
        "last, t", ", a", ", float[2, 3] s", ", float[2, 3] s_out", "z = Neg(x)"
    )  # fmt: skip
    (blocker,) = step_of(run(captured, X), "target").decision.blockers
    assert (blocker.code, blocker.culprit) == ("CAPTURED_BY_REFERENCE", "the next iteration of loop")
    # Carried, the value belongs to the body: only the op after it in the same body is in the way now.
    (blocker,) = step_of(run(carried, X), "target").decision.blockers
    assert blocker.code == "NOT_LAST_USE"
    assert step_of(run(carried, X), "s_out").decision.dispatch == "in_place"


def test_all_reasons_are_collected_for_each_operand() -> None:
    text = """g (float[2, 2] x) => (float[2, 2] t, float[2, 2] v, float[2, 2] z) {
        v = Transpose <perm = [1, 0]> (x) [target] t = Add(v, v) [later] z = Sub(v, x) }"""
    blockers = step_of(run(text, {"x": numbers(2, 2)}), "target").decision.blockers
    expected = {
        "SAME_OP_TWICE": "target",
        "REQUESTED_OUTPUT": "the caller",
        "NOT_LAST_USE": "later",
        "ALIASED": "x",
        "BORROWED_INPUT": "the caller",
        "NOT_CONTIGUOUS": "v",
    }
    for position in (0, 1):
        assert {b.code: b.culprit for b in blockers if b.position == position} == expected
    assert len(blockers) == 12
    text = "g (float[2, 3] x) => (float[2, 3] t) <float[3] w = {1, 2, 3}> { [target] t = Add(x, w) }"
    found = {(b.input, b.code) for b in step_of(run(text, X), "target").decision.blockers}
    assert found == {("x", "BORROWED_INPUT"), ("w", "CONSTANT"), ("w", "SHAPE_DIFFERS")}


LONE = {
    "an op that never runs in place": (
        "(float[2, 3] x) => (float[2, 2] t) { a = Transpose(x) [target] t = MatMul(x, a) }",
        ("OP_CANNOT", "", "MatMul", -1),
        "MatMul never runs in place",
    ),
    "a Cast that is no view": (
        "(float[2, 3] x) => (float16[2, 3] t) { [target] t = Cast <to = 10> (x) }",
        ("DTYPE_DIFFERS", "x", "x", 0),
        "it holds float32, the output float16",
    ),
    "a Reshape that had to copy": (
        """(float[2, 3] x) => (float[6] t) <int64[1] flat = {-1}> {
        a = Transpose <perm = [1, 0]> (x) [target] t = Reshape(a, flat) }""",
        ("NOT_CONTIGUOUS", "a", "a", 0),
        "",
    ),
    "an alias that is still needed beside one that is not": (
        """(float[2, 3] x) => (float[2, 3] t, float[6] y, float[3, 2] z) <int64[1] n = {-1}, int64[2] s = {3, 2}> {
        a = Exp(x) needed = Reshape(a, n) spent = Reshape(a, s) z = Neg(spent) [target] t = Relu(a)
        y = Abs(needed) }""",
        ("ALIASED", "a", "needed", 0),
        "",
    ),
    "a Dropout in training, which is no copy": (
        """(float[2, 3] x) => (float[2, 3] t) <float share = {0.5}, bool train = {1}> {
        [target] t = Dropout <seed = 3> (x, share, train) }""",
        ("OP_CANNOT", "", "Dropout", -1),
        "",
    ),
}


@pytest.mark.parametrize(("text", "reason", "message"), LONE.values(), ids=LONE)
def test_the_one_reason_is_true(text: str, reason: tuple, message: str) -> None:
    step = step_of(run(f"g {text}", X), "target")
    (b,) = step.decision.blockers
    assert (b.code, b.input, b.culprit, b.position) == reason and b.message.endswith(message)
    assert step.copied == (24 if step.op_type == "Reshape" else 0)


def test_the_second_operand_is_taken_where_the_first_cannot_be() -> None:
    text = "g (float[2, 3] x) => (float[2, 3] t) { a = Exp(x) [target] t = Sub(x, a) }"
    trace = run(text, X)
    assert step_of(trace, "target").decision.taken == ("a",)
    np.testing.assert_array_equal(trace.outputs["t"], X["x"] - np.exp(X["x"]))


def test_a_reader_that_has_not_run_yet_is_a_culprit_by_its_name() -> None:
    session = SingleRun(graph_of(LATER % "a"), X)
    session.advance(), session.advance()
    (blocker,) = session.trace.steps[1].decision.blockers
    assert (blocker.code, blocker.culprit) == ("NOT_LAST_USE", "later")


def test_every_code_that_the_two_policies_can_give_is_shown_here() -> None:
    shown = {case.code for case in CASES.values()} | {"OP_CANNOT"}
    assert {str(code) for code in BlockerCode} - shown == {"OTHER_INPUT_BUSY"}


@pytest.mark.parametrize("policy", ["ideal", "rten", "onnxruntime"])
def test_nothing_stands_against_an_op_that_made_a_view(policy: str) -> None:
    text = """g (float[2, 1, 3] x) => (float[2, 3] y) <int64[1] axis = {1}> {
        r = Relu(x) [target] flat = Squeeze(r, axis) y = Neg(flat) }"""
    step = step_of(run(text, {"x": numbers(2, 1, 3)}, policy=policy), "target")
    assert (step.outs[0].how, step.written, step.decision.blockers) == ("view", 0, ())


def test_attention_that_only_computes_is_not_said_to_find_its_keys_out_of_order() -> None:
    """Only its presents can be views of its inputs, and here there are none."""
    text = """g (float[1, 2, 4, 8] cache, float[1, 2, 1, 8] k, int64[1] at, float[1, 2, 1, 8] q, float[1, 2, 4, 8] v,
        int64[1] n) => (float[1, 2, 1, 8] y) {
        keys = TensorScatter(cache, k, at) y = Attention(q, keys, v, , , , n) }"""
    rows = np.ones((1, 2, 4, 8), np.float32)
    feeds = {"cache": rows, "v": rows, "k": rows[:, :, :1], "q": rows[:, :, :1]}
    feeds |= {"at": np.array([1]), "n": np.array([2])}
    (blocker,) = kvviz.run(graph_of(text, 24), feeds, donate=["cache"]).steps[1].decision.blockers
    assert (blocker.code, blocker.input) == (BlockerCode.OP_CANNOT, "")
    assert blocker.message == "Attention has no input here that could hold what it computes"


@pytest.mark.parametrize(("rows", "room", "told"), [
    (2, None, ": it holds 2 rows along axis 2, and 3 are needed"),
    (2, 2, ": it holds 2 rows along axis 2, and 3 are needed"),
    (0, None, ""),
])  # fmt: skip
def test_the_room_of_a_past_is_compared_with_its_present(rows: int, room: int | None, told: str) -> None:
    text = """g (float[1, 1, 1, 8] q, float[1, 1, 1, 8] k, float[1, 1, 1, 8] v, float[1, 1, p, 8] pk,
        float[1, 1, p, 8] pv) => (float[1, 1, 1, 8] y, float[1, 1, t, 8] tk, float[1, 1, t, 8] tv) {
        y, tk, tv = Attention(q, k, v, , pk, pv) }"""
    new, past = np.ones((1, 1, 1, 8), np.float32), np.ones((1, 1, rows, 8), np.float32)
    pasts = [kvviz.reserve(past, 2, room) if room else past.copy() for _ in range(2)]
    feeds = {"q": new, "k": new, "v": new, "pk": pasts[0], "pv": pasts[1]}
    trace = kvviz.run(graph_of(text, 23), feeds, donate=["pk", "pv"])
    (first, second) = (b.message for b in trace.steps[0].decision.blockers if b.code is BlockerCode.NO_CAPACITY)
    assert first == f"Attention cannot append to pk: its buffer has no room reserved{told}"
    assert second == first.replace("pk", "pv")
