"""Loop and Scan against onnxruntime: trips, conditions, carried values, scan outputs, axes and directions."""

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from tests.engine.graphs import assert_like_ort, numbers, ort_run, proto_of, run, run_graph, step_of
from tests.graph.build import model, node


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


def test_a_carried_value_is_overwritten_from_the_second_iteration_on() -> None:
    trace = assert_like_ort(loop("n", "c", STEP), feeds())
    decisions = [s.decision for s in trace.steps if s.node == "w"]
    assert [d.dispatch for d in decisions] == ["run", "in_place", "in_place", "in_place"]
    assert [b.code for b in decisions[0].blockers] == ["BORROWED_INPUT"]
    assert len({s.outs[0].storage for s in trace.steps if s.node == "w"}) == 1


def test_an_initial_value_that_nobody_else_reads_is_passed_in_and_overwritten() -> None:
    text = loop("n", "c", STEP, carried="a", more="a = Exp(x)")
    trace = assert_like_ort(text, feeds())
    assert [s.decision.dispatch for s in trace.steps if s.node == "w"] == ["in_place"] * 4
    text = text.replace("float[2] y)", "float[2] y, float[2] z)").replace("> }", "> z = Neg(a) }")
    trace = assert_like_ort(text, feeds())
    first = step_of(trace, "w").decision
    assert [(b.code, b.culprit) for b in first.blockers] == [("CAPTURED_BY_REFERENCE", "z")]


def test_a_value_that_is_carried_and_scanned_is_not_overwritten() -> None:
    body = "bool on, float[2] w, float[2] u) { on = Identity(go) [w] w = Sin(v) u = Identity(w) }"
    text = loop("n", "c", body, results="y, s", outs=", float[k, 2] s")
    trace = assert_like_ort(text, feeds())
    assert [s.decision.dispatch for s in trace.steps if s.node == "w"] == ["run"] * 4
    blockers = step_of(trace, "w", 1).decision.blockers
    assert [(b.code, b.culprit) for b in blockers] == [("ALIASED", "u")]


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


SCAN = """g (float[2] x, {shape} u) => (float[2] y, {out} s) {{
    [scan] y, s = Scan <num_scan_inputs = 1{more}, body = b (float[2] v, float[2] e) => (float[2] w, float[2] t) {{
        w = Add(v, e) p = Mul(w, e) t = Sin(p) }}> (x, u) }}"""


def test_scan_inputs_of_different_lengths_are_refused() -> None:
    text = """g (float[3] u, float[4] v) => (float[3] s) {
        [scan] s = Scan <num_scan_inputs = 2, body = b (float p, float q) => (float t) { t = Add(p, q) }> (u, v) }"""
    with pytest.raises(kvviz.KvvizError, match=r"'scan' \(Scan\) has scan inputs of different lengths: \[3, 4\]"):
        run(text, {"u": numbers(3), "v": numbers(4)})


def scan_8(lengths: bool, backward: bool) -> tuple[Trace, list]:
    body = proto_of(SCAN.format(shape="float[5, 2]", out="float[5, 2]", more="")).graph.node[0].attribute[1].g
    scan = node(
        "Scan", "n x u" if lengths else "- x u", "y s", num_scan_inputs=1, body=body, directions=[int(backward)]
    )
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


def test_scan_outputs_whose_shapes_differ_between_iterations_are_refused() -> None:
    text = """g (float[2] x, int64 n) => (float[2] y, float[j, k] s) <float h = {3}, int64[1] z = {0}> {
        y, s = Loop (n, "", x) <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] w, float[k] u) {
            on = Identity(go) w = Sin(v) o = Unsqueeze(i, z) u = Expand(h, o) }> }"""
    with pytest.raises(kvviz.KvvizError, match="scan output 'u' has different shapes in different iterations"):
        run(text, {"x": numbers(2), "n": np.array(4)})


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
