"""If and local functions: values as onnxruntime has them, frames, order of steps, and who owns what goes in and out."""

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from tests.engine.graphs import assert_like_ort, numbers, ort_run, proto_of, run, run_graph, step_of

BRANCHES = """g (float[2, 3] x, bool c) => (float[2, 3] y, float[2, 3] z) <float[3] w = {1, 2, 3}> {
    a = Exp(x)
    [pick] y, z = If (c) <
        then_branch = t () => (float[2, 3] ty, float[2, 3] tz) { [add] ty = Add(a, w) [neg] tz = Neg(x) },
        else_branch = e () => (float[2, 3] ey, float[2, 3] ez) { [mul] ey = Mul(a, a) ez = Identity(ey) }> }"""
NESTED = """g (float[2] x, bool c, bool d) => (float[2] y) {
    a = Exp(x)
    [outer] y = If (c) <
        then_branch = t () => (float[2] ty) {
            b = Neg(a)
            [inner] ty = If (d) <then_branch = tt () => (float[2] tty) { [deep] tty = Mul(b, a) },
                                 else_branch = te () => (float[2] tey) { tey = Add(b, x) }> },
        else_branch = e () => (float[2] ey) { ey = Sqrt(a) }> }"""
FUNCTIONS = """g (float[4] x) => (float[4] y) {
    a = Exp(x) [one] b = local.twice(a) [two] y = local.scaled <by: float = 3.0> (b, b) }
    <domain: "local", opset_import: ["" : 21, "local" : 1]> twice (p) => (q) {
        [call] r, unused = local.both(p) q = Add(r, p) }
    <domain: "local", opset_import: ["" : 21]> both (p) => (q, s) { q = Identity(p) s = Neg(p) }
    <domain: "local", opset_import: ["" : 21]> scaled <by> (p, o) => (q) {
        k = Constant <value_float: float = @by> () m = Mul(p, k) q = Sub(m, o) }"""


def truth(value: bool, *shape: int) -> np.ndarray:
    return np.full(shape, value)


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("value", [True, False])
def test_an_if_runs_one_branch_and_its_condition_may_have_one_element(value: bool, shape: tuple) -> None:
    text = BRANCHES.replace("bool c", "bool[1] c" if shape else "bool c")
    trace = assert_like_ort(text, {"x": numbers(2, 3), "c": truth(value, *shape)})
    taken = ["add", "neg"] if value else ["mul", "ez"]
    assert [s.node for s in trace.steps] == ["a", *taken, "pick"]
    assert {s.frame for s in trace.steps} == {(), (f"pick[{'then' if value else 'else'}_branch]",)}


def test_a_control_node_is_a_step_after_the_steps_of_its_body() -> None:
    trace = assert_like_ort(NESTED, {"x": numbers(2), "c": truth(True), "d": truth(True)})
    assert [(s.node, s.frame) for s in trace.steps] == [
        ("a", ()),
        ("b", ("outer[then_branch]",)),
        ("deep", ("outer[then_branch]", "inner[then_branch]")),
        ("inner", ("outer[then_branch]",)),
        ("outer", ()),
    ]
    frames = trace.frames
    assert [(f.id, f.parent, f.attribute, f.iteration) for f in frames] == [
        (0, None, "", None),
        (1, 0, "then_branch", None),
        (2, 1, "then_branch", None),
    ]
    assert [f.node.name if f.node else "" for f in frames] == ["", "outer", "inner"]


def bindings(trace: Trace, frame: int = 1) -> dict[str, str]:
    return {placed.name: placed.how for placed in trace.frames[frame].bindings}


def test_a_branch_takes_over_what_nobody_needs_outside() -> None:
    text = BRANCHES.replace("Neg(x)", "Neg(w)").replace("float[2, 3] tz)", "float[3] tz)")
    trace = run(text, {"x": numbers(2, 3), "c": truth(True)})
    assert bindings(trace) == {"a": "captured by value", "w": "captured by reference"}
    never = run(text, {"x": numbers(2, 3), "c": truth(True)}, policy="never")
    assert set(bindings(never).values()) == {"captured by reference"}
    assert step_of(trace, "add").decision.taken == ("a",)
    # The value has moved: the If releases nothing of its own, and the branch's output is handed on.
    assert step_of(trace, "pick").freed == ()
    assert step_of(trace, "pick").decision.shares == {"y": "a"}


def test_a_branch_borrows_what_is_still_read_outside_and_leaves_it_whole() -> None:
    text = BRANCHES.replace("float[2, 3] z) <", "float[2, 3] z, float[2, 3] o) <")
    text = text.replace("ez = Identity(ey) }> }", "ez = Identity(ey) }> o = Neg(a) }")
    trace = assert_like_ort(text, {"x": numbers(2, 3), "c": truth(True)})
    assert bindings(trace)["a"] == "captured by reference"
    assert step_of(trace, "add").decision.dispatch == "run"


def test_what_only_the_branch_not_taken_reads_is_freed_with_the_if() -> None:
    text = """g (float[2] x, bool c) => (float[2] y) {
        a = Exp(x) b = Neg(x)
        [pick] y = If (c) <then_branch = t () => (float[2] p) { p = Sqrt(a) },
                           else_branch = e () => (float[2] q) { q = Sqrt(b) }> }"""
    trace = assert_like_ort(text, {"x": numbers(2), "c": truth(True)})
    assert step_of(trace, "pick").freed == (step_of(trace, "b").outs[0].storage,)


def test_a_branch_may_hand_out_a_value_of_the_outer_graph_as_it_is() -> None:
    text = """g (float[2] x, bool c) => (float[2] y, float[2] z) {
        a = Exp(x)
        [pick] y = If (c) <then_branch = t () => (float[2] a) { }, else_branch = e () => (float[2] q) { q = Neg(a) }>
        z = Relu(y) }"""
    trace = run(text, {"x": numbers(2), "c": truth(True)})
    np.testing.assert_array_equal(trace.outputs["y"], np.exp(numbers(2)))
    assert [s.node for s in trace.steps] == ["a", "pick", "z"]
    assert step_of(trace, "pick").outs[0].storage == step_of(trace, "a").outs[0].storage
    # y is an output, so z must not overwrite it, although it is the last reader.
    assert [b.code for b in step_of(trace, "z").decision.blockers] == ["REQUESTED_OUTPUT"]


def test_one_value_may_leave_a_branch_under_two_names() -> None:
    text = """g (float[2] x, bool c) => (float[2] y, float[2] z) {
        p, q = If (c) <then_branch = t () => (float[2] u, float[2] u2) { u = Exp(x) u2 = Identity(u) },
                       else_branch = e () => (float[2] v, float[2] v2) { v = Neg(x) v2 = Abs(x) }>
        y = Neg(p) z = Relu(q) }"""
    trace = assert_like_ort(text, {"x": numbers(2), "c": truth(True)})
    assert [(b.code, b.culprit) for b in step_of(trace, "y").decision.blockers] == [("ALIASED", "q")]
    assert step_of(trace, "z").decision.dispatch == "in_place"


def test_functions_run_in_frames_of_their_own_and_may_call_each_other() -> None:
    trace = assert_like_ort(FUNCTIONS, {"x": numbers(4)})
    assert [(s.node, s.frame) for s in trace.steps] == [
        ("a", ()),
        ("q", ("one[function]", "call[function]")),
        ("s", ("one[function]", "call[function]")),
        ("call", ("one[function]",)),
        ("q", ("one[function]",)),
        ("one", ()),
        ("m", ("two[function]",)),
        ("q", ("two[function]",)),
        ("two", ()),
    ]
    # An argument is passed on where the call is its last reader.
    how = [{placed.name: placed.how for placed in frame.bindings if placed.how != "weight"} for frame in trace.frames]
    assert how == [
        {"x": "borrowed"},
        {"p": "passed"},
        {"p": "captured by reference"},  # the function itself reads p after its call
        {"p": "captured by reference", "o": "captured by reference"},  # one value given twice
    ]


def test_an_argument_that_a_call_leaves_out_is_absent_in_the_body() -> None:
    text = """g (float[4] x) => (float[4] y) { y = local.clip(x, "", x) }
        <domain: "local", opset_import: ["" : 21]> clip (p, low, o) => (q) {
            top = ReduceMax <keepdims = 0> (o) q = Clip(p, low, top) }"""
    np.testing.assert_array_equal(run(text, {"x": numbers(4)}).outputs["y"], numbers(4))


def test_where_both_have_the_operator_the_kernel_runs_and_not_the_models_function() -> None:
    text = """g (float[4] x) => (float[4] y) { [gelu] y = com.microsoft.FastGelu(x) }
        <domain: "com.microsoft", opset_import: ["" : 21]> FastGelu (p) => (q) { q = Neg(p) }"""
    proto = proto_of(text)
    trace = run_graph(kvviz.load(proto), {"x": numbers(4)})
    assert [(s.node, s.frame) for s in trace.steps] == [("gelu", ())]
    np.testing.assert_allclose(trace.outputs["y"], ort_run(proto, {"x": numbers(4)})[0], rtol=1e-5)


def test_an_if_needs_a_condition_of_one_element() -> None:
    text = BRANCHES.replace("bool c", "bool[2] c")
    with pytest.raises(kvviz.KvvizError, match=r"'pick' \(If\) needs a condition of one element, got shape \(2,\)"):
        run(text, {"x": numbers(2, 3), "c": truth(True, 2)})
