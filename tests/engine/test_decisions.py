"""Why an op ran in place or did not: every reason, its culprit, and that nothing else stood in the way."""

import numpy as np
import pytest

import kvviz
from kvviz.decode.run_sessions import SingleRun
from kvviz.trace.blockers import BlockerCode
from tests.engine.blocked import CASES, LATER, Case, X
from tests.engine.graphs import graph_of, numbers, run, step_of
from tests.graph.build import model, node

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


def test_all_reasons_are_collected_not_only_the_first() -> None:
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


def test_the_alias_that_is_named_is_one_that_is_still_needed() -> None:
    text = """g (float[2, 3] x) => (float[2, 3] t, float[6] y, float[3, 2] z) <int64[1] n = {-1}, int64[2] s = {3, 2}> {
        a = Exp(x) needed = Reshape(a, n) spent = Reshape(a, s) z = Neg(spent) [target] t = Relu(a) y = Abs(needed) }"""
    (blocker,) = step_of(run(text, X), "target").decision.blockers
    assert (blocker.code, blocker.culprit) == ("ALIASED", "needed")


def test_each_operand_has_reasons_of_its_own() -> None:
    text = """g (float[2, 3] x) => (float[2, 3] t) <float[3] w = {1, 2, 3}> { [target] t = Add(x, w) }"""
    found = {(b.input, b.code) for b in step_of(run(text, X), "target").decision.blockers}
    assert found == {("x", "BORROWED_INPUT"), ("w", "CONSTANT"), ("w", "SHAPE_DIFFERS")}


def test_an_op_that_never_runs_in_place_says_so() -> None:
    text = "g (float[2, 3] x) => (float[2, 2] t) { a = Transpose(x) [target] t = MatMul(x, a) }"
    (blocker,) = step_of(run(text, X), "target").decision.blockers
    assert (blocker.code, blocker.input, blocker.culprit, blocker.position) == ("OP_CANNOT", "", "MatMul", -1)
    assert blocker.message == "MatMul never runs in place"


def test_a_reshape_that_had_to_copy_names_the_layout_of_its_input() -> None:
    text = """g (float[2, 3] x) => (float[6] t) <int64[1] flat = {-1}> {
        a = Transpose <perm = [1, 0]> (x) [target] t = Reshape(a, flat) }"""
    step = step_of(run(text, X), "target")
    (blocker,) = step.decision.blockers
    assert (blocker.code, blocker.input, blocker.bytes) == ("NOT_CONTIGUOUS", "a", 24)
    assert (step.copied, step.decision.shares) == (24, {})


def test_a_view_shares_without_being_in_place_and_without_blockers() -> None:
    text = "g (float[2, 3] x) => (float[3, 2] t) <int64[2] s = {3, 2}> { a = Exp(x) [target] t = Reshape(a, s) }"
    decision = step_of(run(text, X), "target").decision
    assert (decision.dispatch, decision.taken, decision.shares, decision.blockers) == ("run", (), {"t": "a"}, ())


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


def test_a_cast_that_is_no_view_says_that_its_type_is_why() -> None:
    cast = run("g (float[2, 3] x) => (float16[2, 3] t) { [target] t = Cast <to = 10> (x) }", X)
    (blocker,) = step_of(cast, "target").decision.blockers
    assert (blocker.code, blocker.input) == ("DTYPE_DIFFERS", "x")
    assert blocker.message.endswith("it holds float32, the output float16")


@pytest.mark.parametrize("policy", ["ideal", "rten", "onnxruntime"])
def test_nothing_stands_against_an_op_that_made_a_view(policy: str) -> None:
    trace = run(
        "agraph (float[2,1,3] x) => (float[2,3] y) "
        "{ axis = Constant <value_ints = [1]> () r = Relu (x) flat = Squeeze (r, axis) y = Neg (flat) }",
        {"x": np.ones((2, 1, 3), np.float32)},
        policy=policy,
    )
    step = next(step for step in trace.steps if step.op_type == "Squeeze")
    assert (step.outs[0].how, step.written, step.decision.blockers) == ("view", 0, ())


# ---- reasons that are true ------------------------------------------------------------------------------------------


def test_attention_that_only_computes_is_not_said_to_find_its_keys_out_of_order() -> None:
    """Only its presents can be views of its inputs, and here there are none."""
    nodes = [node("TensorScatter", "cache k at", "keys"), node("Attention", "q keys v - - - n", "y")]
    inputs = ["cache float 1 2 4 8", "k float 1 2 1 8", "at int64 1", "q float 1 2 1 8", "v float 1 2 4 8", "n int64 1"]
    rows = np.ones((1, 2, 4, 8), np.float32)
    feeds = {
        "cache": rows,
        "v": rows,
        "k": rows[:, :, :1],
        "q": rows[:, :, :1],
        "at": np.array([1]),
        "n": np.array([2]),
    }
    trace = kvviz.run(kvviz.load(model(nodes, inputs, ["y"], opset=24)), feeds, donate=["cache"])
    (blocker,) = trace.steps[1].decision.blockers
    assert (blocker.code, blocker.input) == (BlockerCode.OP_CANNOT, "")
    assert blocker.message == "Attention has no input here that could hold what it computes"


def test_a_dropout_in_training_is_no_copy_of_its_input() -> None:
    nodes = [node("Dropout", "x share train", "y", seed=3)]
    weights = {"share": np.float32(0.5), "train": np.array(True)}
    trace = kvviz.run(kvviz.load(model(nodes, ["x float 8"], ["y"], **weights)), {"x": np.ones(8, np.float32)})
    (step,) = trace.steps
    assert [blocker.code for blocker in step.decision.blockers] == [BlockerCode.OP_CANNOT]
    assert (step.written, step.copied) == (32, 0) and not kvviz.explain(trace).missed


@pytest.mark.parametrize(("rows", "room", "told"), [
    (2, None, ": it holds 2 rows along axis 2, and 3 are needed"),
    (2, 2, ": it holds 2 rows along axis 2, and 3 are needed"),
    (0, None, ""),
])  # fmt: skip
def test_the_room_of_a_past_is_compared_with_its_present(rows: int, room: int | None, told: str) -> None:
    nodes = [node("Attention", "q k v - pk pv", "y tk tv")]
    inputs = [*(f"{name} float 1 1 1 8" for name in ("q", "k", "v")), "pk float 1 1 p 8", "pv float 1 1 p 8"]
    new, past = np.ones((1, 1, 1, 8), np.float32), np.ones((1, 1, rows, 8), np.float32)
    pasts = [kvviz.reserve(past, 2, room) if room else past.copy() for _ in range(2)]
    feeds = {"q": new, "k": new, "v": new, "pk": pasts[0], "pv": pasts[1]}
    trace = kvviz.run(kvviz.load(model(nodes, inputs, ["y", "tk", "tv"], opset=23)), feeds, donate=["pk", "pv"])
    (first, second) = (b.message for b in trace.steps[0].decision.blockers if b.code is BlockerCode.NO_CAPACITY)
    assert first == f"Attention cannot append to pk: its buffer has no room reserved{told}"
    assert second == first.replace("pk", "pv")
