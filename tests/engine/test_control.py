"""If, local functions, Loop and Scan: values as onnxruntime has them, frames, order of steps, and who owns what."""

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.trace.records import Step
from tests.engine.graphs import assert_like_ort, numbers, ort_run, proto_of, run, run_graph, step_of
from tests.graph.build import model, node

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
    told = [(f.id, f.parent, f.node.name if f.node else "", f.attribute, f.iteration) for f in trace.frames]
    assert told == [
        (0, None, "", "", None),
        (1, 0, "outer", "then_branch", None),
        (2, 1, "inner", "then_branch", None),
    ]


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


def loop(
    trip: str, condition: str, body: str, results: str = "y", carried: str = "x", outs: str = "", more: str = ""
) -> str:
    """A Loop over ``x`` whose body is given; ``i``, ``go`` and ``v`` are its inputs, ``on`` the next condition."""
    return f"""g (float[2] x, int64 n, bool c) => (float[2] y{outs}) <int64 three = {{3}}> {{
        {more} [loop] {results} = Loop ({trip}, {condition}, {carried}) <
            body = b (int64 i, bool go, float[2] v) => ({body}> }}"""


def feeds(n: int = 4, c: bool = True) -> dict:
    return {"x": numbers(2), "n": np.array(n), "c": np.array(c)}


STEP = "bool on, float[2] w) { on = Identity(go) [w] w = Sin(v) }"
STOP = "bool on, float[2] w) { on = Less(i, three) w = Sin(v) }"


TRIPS: list[tuple[str, str, str, int, bool, int]] = [
    ("n", '""', STEP, 4, True, 4),
    ("n", "c", STEP, -1, True, 0),
    ("n", "c", STOP, 9, True, 4),
    ('""', "c", STOP, 0, False, 0),
    ('""', '""', STOP, 0, True, 4),
]


@pytest.mark.parametrize(("trip", "condition", "body", "n", "c", "iterations"), TRIPS)
def test_a_loop_runs_while_trips_are_left_and_its_condition_holds(
    trip: str, condition: str, body: str, n: int, c: bool, iterations: int
) -> None:
    text = loop(trip, condition, body)
    inputs = feeds(n, c)
    for name, declared in (("n", "int64 n"), ("c", "bool c")):
        if name not in (trip, condition):
            text = text.replace(f", {declared}", "")
            del inputs[name]
    trace = assert_like_ort(text, inputs)
    assert [f.iteration for f in trace.frames[1:]] == list(range(iterations))
    assert [f.path for f in trace.frames[1:]] == [(f"loop[body:{k}]",) for k in range(iterations)]
    assert trace.steps[-1].node == "loop" and len(trace.steps) == 1 + 2 * iterations


SCANNED = """float[2] x, int64 n) => (float[2] y, int64[a] s, float[b, 2] r, float[d, 2, 3] m)
    <float[3, 1] k = {1, 2, 3}> {
    [loop] y, s, r, m = Loop (n, "", x) <body = b (int64 i, bool go, float[2] v) => (
        bool on, float[2] w, int64 si, float[2] ri, float[2, 3] mi) {
        on = Identity(go) w = Sin(v) si = Mul(i, i) ri = Identity(w)
        o = Mul(k, v) mi = Transpose <perm = [1, 0]> (o) }> }"""


def test_scan_outputs_are_stacked_which_is_copying_and_of_no_trips_they_are_empty() -> None:
    step = step_of(run(f"g ({SCANNED}", {"x": numbers(2), "n": np.array(4)}), "loop")
    stacked = 4 * 8 + 4 * 2 * 4 + 4 * 6 * 4
    counters = 4 * (8 + 1)
    assert (step.copied, step.written, step.allocated) == (stacked, stacked, stacked + counters)
    trace = run(f"g ({SCANNED}", {"x": numbers(2), "n": np.array(0)})
    np.testing.assert_array_equal(trace.outputs["y"], numbers(2))
    assert [trace.outputs[name].shape for name in "srm"] == [(0,), (0, 2), (0, 2, 3)]
    assert [trace.outputs[name].dtype for name in "srm"] == [np.int64, np.float32, np.float32]
    assert [s.node for s in trace.steps] == ["loop"]


def test_a_scan_output_that_nobody_names_costs_nothing() -> None:
    text = f"g ({SCANNED}".replace("y, s, r, m = Loop", 'y, s, "", m = Loop').replace(", float[b, 2] r", "")
    inputs = {"x": numbers(2), "n": np.array(4)}
    trace = run(text, inputs)
    # onnxruntime does not take an empty name here, so it computes them all.
    for have, want in zip(trace.outputs.values(), ort_run(proto_of(f"g ({SCANNED}"), inputs, "ysm"), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5)
    assert step_of(trace, "loop").allocated == 4 * 8 + 4 * 6 * 4 + 4 * 9
    alive = sum(s.capacity for s in trace.storages if s.freed is None)
    assert alive == sum(trace.outputs[name].nbytes for name in "ysm") + sum(s.capacity for s in trace.storages[:3])


def test_a_carried_value_is_overwritten_where_it_is_nobody_elses() -> None:
    def carried(text: str) -> list[Step]:
        return [step for step in assert_like_ort(text, feeds()).steps if step.node == "w"]

    def reasons(step: Step) -> list[tuple[str, str]]:
        return [(blocker.code, blocker.culprit) for blocker in step.decision.blockers]

    steps = carried(loop("n", "c", STEP))
    assert [step.decision.dispatch for step in steps] == ["run", "in_place", "in_place", "in_place"]
    assert reasons(steps[0]) == [("BORROWED_INPUT", "the caller")]
    assert len({step.outs[0].storage for step in steps}) == 1
    # An initial value that nobody else reads is passed in, and one that is read again is lent.
    text = loop("n", "c", STEP, carried="a", more="a = Exp(x)")
    assert [step.decision.dispatch for step in carried(text)] == ["in_place"] * 4
    text = text.replace("float[2] y)", "float[2] y, float[2] z)").replace("> }", "> z = Neg(a) }")
    assert reasons(carried(text)[0]) == [("CAPTURED_BY_REFERENCE", "z")]
    # What is scanned as well stays as it is.
    body = "bool on, float[2] w, float[2] u) { on = Identity(go) [w] w = Sin(v) u = Identity(w) }"
    steps = carried(loop("n", "c", body, results="y, s", outs=", float[k, 2] s"))
    assert [step.decision.dispatch for step in steps] == ["run"] * 4
    assert reasons(steps[1]) == [("ALIASED", "u")]


def test_an_if_in_a_loop_in_an_if_has_the_path_of_all_three() -> None:
    text = """g (float[2] x, int64 n, bool c) => (float[2] y) <int64 one = {1}, int64 two = {2}> {
        a = Exp(x)
        [out] y = If (c) <then_branch = t () => (float[2] r) {
            [loop] r = Loop (n, "", x) <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] w) {
                on = Identity(go) m = Mod(i, two) odd = Equal(m, one)
                [in] w = If (odd) <then_branch = p () => (float[2] pw) { [deep] pw = Add(v, a) },
                                   else_branch = q () => (float[2] qw) { qw = Mul(v, a) }> }> },
            else_branch = e () => (float[2] s) { s = Neg(a) }> }"""
    trace = assert_like_ort(text, feeds())
    frames = [s.frame for s in trace.steps if s.node == "deep"]
    assert frames == [("out[then_branch]", f"loop[body:{k}]", "in[then_branch]") for k in (1, 3)]
    # The body's own value is taken; what every iteration captures is not.
    assert [s.decision.taken for s in trace.steps if s.node in ("deep", "qw")] == [(), ("v",), ("v",), ("v",)]
    assert {(b.input, b.code) for b in step_of(trace, "qw").decision.blockers} == {
        ("v", "BORROWED_INPUT"),
        ("a", "CAPTURED_BY_REFERENCE"),
    }


def scan_8(lengths: bool, backward: bool) -> tuple[Trace, list]:
    body = (
        proto_of("""g (float[2] x, float[5, 2] u) => (float[2] y, float[5, 2] s) {
        y, s = Scan <num_scan_inputs = 1, body = b (float[2] v, float[2] e) => (float[2] w, float[2] t) {
            w = Add(v, e) p = Mul(w, e) t = Sin(p) }> (x, u) }""")
        .graph.node[0]
        .attribute[1]
        .g
    )
    given_to = "n x u" if lengths else "- x u"
    scan = node("Scan", given_to, "y s", num_scan_inputs=1, body=body, directions=[int(backward)])
    inputs = ["x float 3 2", "u float 3 5 2", *["n int64 3"] * lengths]
    proto = model([scan], inputs, ["y float 3 2", "s float 3 5 2"], opset=8)
    proto.ir_version = 8
    given = {"x": numbers(3, 2), "u": numbers(3, 5, 2)} | ({"n": np.array([5, 2, 3])} if lengths else {})
    return run_graph(kvviz.load(proto), given), ort_run(proto, given)


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("backward", [False, True])
def test_a_scan_of_opset_8_runs_each_item_of_its_batch_from_its_own_state(lengths: bool, backward: bool) -> None:
    trace, expected = scan_8(lengths, backward)
    for have, want in zip(trace.outputs.values(), expected, strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
    assert len(trace.frames) == 1 + (10 if lengths else 15)
    # Each state dies once, whether it is the last one of its item or not; what is left is the caller's.
    died = [storage for step in trace.steps for storage in step.freed]
    assert len(died) == len(set(died))
    left = {storage.name for storage in trace.storages if storage.freed is None and storage.origin == "run"}
    assert left <= {"y", "s"}


REFUSED = {
    "scan output 'u' has different shapes in different iterations": """(float[3] x, int64 n) => (float[j, k] s)
        <float h = {3}, int64[1] z = {0}> { s = Loop (n, "") <body = b (int64 i, bool go) => (bool on, float[k] u) {
            on = Identity(go) o = Unsqueeze(i, z) u = Expand(h, o) }> }""",
    r"'scan' \(Scan\) has scan inputs of different lengths: \[3, 4\]": """(float[3] x, float[4] n) => (float[3] s) {
        [scan] s = Scan <num_scan_inputs = 2, body = b (float p, float q) => (float t) { t = Add(p, q) }> (x, n) }""",
}


@pytest.mark.parametrize(("message", "text"), REFUSED.items())
def test_what_cannot_be_stacked_or_taken_apart_is_refused(message: str, text: str) -> None:
    with pytest.raises(kvviz.KvvizError, match=message):
        run(f"g {text}", {"x": numbers(3), "n": np.array(4) if "Loop" in text else numbers(4)})


@pytest.mark.parametrize("policy", ["rten", "onnxruntime"])
def test_what_a_loop_puts_into_a_block_of_the_pool_says_so(policy: str) -> None:
    # given: five blocks are free when the Loop stacks as many bytes, or copies what it carried
    text = """g (float[64] x, int64 n) => (float[1] y, float[1] z) <int64[1] o = {0}> {
        a1 = Exp(x) a2 = Sin(x) a3 = Cos(x) a4 = Neg(x) a5 = Abs(x) a6 = Sum(a1, a2, a3, a4, a5) d = ReduceSum(a6, o)
        x2 = Add(x, d) f, s = Loop (n, "", x2) <
            body = b (int64 i, bool go, float[64] v) => (bool on, float[64] w, float[64] p) {
                on = Identity(go) w = Sin(v) p = Cos(v) }>
        e = ReduceSum(f, o) y = Add(d, e) z = ReduceSum(s, o) }"""
    trace = run(text, {"x": numbers(64), "n": np.array(1)}, policy=policy)
    freed: set[int] = set()
    for step in trace.steps:
        reused = {out.how for out in step.outs if out.storage in freed}
        assert reused <= {"pool"}
        freed = freed - {out.storage for out in step.outs} | set(step.freed)
