"""Whose memory an op may write to, what is handed back, and what a bound output overwrites."""

import numpy as np
import pytest

import kvviz
from kvviz.engine.sessions.io_binding import bind
from kvviz.errors import InputError
from tests.engine.graphs import graph_of, numbers, run, run_graph

TWO = "g (float[4] x, float[4] y) => (float[4] p, float[4] q) { p = Neg(x) q = Exp(y) }"


@pytest.mark.parametrize("policy", ["ideal", "rten", "onnxruntime"])
def test_an_array_whose_elements_share_memory_cannot_be_donated(policy: str) -> None:
    for strides in ((0, 4), (4, 4)):
        x = np.lib.stride_tricks.as_strided(numbers(8), (2, 4), strides)
        graph = graph_of("g (float[2, 4] x) => (float[2, 4] y) <float[4] w = {1, 2, 3, 4}> { y = Add(x, w) }")
        np.testing.assert_array_equal(
            kvviz.run(graph, {"x": x}, policy=policy).outputs["y"], x + np.arange(1, 5, dtype=np.float32)
        )
        with pytest.raises(InputError, match="'x' is donated, but elements of its array share memory; pass a copy"):
            kvviz.run(graph, {"x": x}, donate=["x"], policy=policy)


def overlap(kind: str) -> tuple[np.ndarray, np.ndarray]:
    block = numbers(6)
    first, memory = block[:4], bytearray(block[:4].tobytes())
    return {
        "same": (first, first),
        "slices": (first, block[2:]),
        "two buffers": (np.frombuffer(memory, np.float32), np.frombuffer(memory, np.float32)),
        "wrapped": (first, np.asarray(first.data)),
    }[kind]


@pytest.mark.parametrize("kind", ["same", "slices", "two buffers", "wrapped"])
@pytest.mark.parametrize("swap", [False, True])
def test_memory_that_is_borrowed_too_is_borrowed_and_one_that_is_donated_twice_waits_for_the_last_reader(
    kind: str, swap: bool
) -> None:
    x, y = overlap(kind)[:: -1 if swap else 1]
    before, minus, exp = y.copy(), -x, np.exp(y)
    # Of a weight's name is what no op reads.
    unread = "g (float[4] x, float[4] y) => (float[4] p) <float[4] y = {1, 2, 3, 4}> { p = Neg(x) }"
    for text, codes in ((unread, ["BORROWED_INPUT"]), (TWO, ["BORROWED_INPUT", "ALIASED"])):
        trace = kvviz.run(graph_of(text), {"x": x, "y": y}, donate=["x"], poison=True)
        np.testing.assert_array_equal(y, before)
        assert [b.code for b in trace.steps[0].decision.blockers] == codes
    np.testing.assert_array_equal(trace.outputs["q"], exp)
    trace = kvviz.run(graph_of(TWO), {"x": x, "y": y}, donate=["x", "y"], poison=True)
    np.testing.assert_array_equal(trace.outputs["p"], minus)
    np.testing.assert_array_equal(trace.outputs["q"], exp)
    first, second = trace.steps
    assert [(b.code, b.culprit) for b in first.decision.blockers] == [("ALIASED", "y")]
    assert second.decision.dispatch == "in_place"


HANDED = {
    "the input itself": "(float[4] x) => (float[4] y) { y = Identity(x) }",
    "a view of the input": "(float[4] x) => (float[2, 2] y) <int64[2] s = {2, 2}> { y = Reshape(x, s) }",
    "an input that passes an If": """(float[4] x) => (float[4] y) <bool c = {1}> {
        y = If (c) <then_branch = t () => (float[4] u) { u = Identity(x) },
                    else_branch = e () => (float[4] v) { v = Neg(x) }> }""",
    "a part of a sequence": "(float[4] x) => (seq(float[4]) y) { z = Neg(x) y = SequenceConstruct(x, z) }",
    "a weight": "(float[4] x) => (float[4] y) <float[4] y = {1, 2, 3, 4}> { z = Neg(x) }",
}


@pytest.mark.parametrize("text", HANDED.values(), ids=HANDED)
def test_an_output_that_lies_in_a_borrowed_input_or_a_weight_is_a_copy(text: str) -> None:
    graph, x = graph_of(f"g {text}"), np.arange(1, 5, dtype=np.float32)
    output = kvviz.run(graph, {"x": x}).outputs["y"]
    for array in output if isinstance(output, list) else [output]:
        assert not any(np.shares_memory(array, other) for other in (x, *graph.weights.values()))
        array.flags.writeable = True
    np.testing.assert_array_equal(np.ravel(output[0] if isinstance(output, list) else output), x)


@pytest.mark.parametrize("body", ["p = Relu(x) q = Identity(p)", "q = Relu(x) p = Reshape(q, s)"])
@pytest.mark.parametrize("policy", ["ideal", "rten", "onnxruntime"])
def test_an_output_keeps_its_numbers_in_the_next_run_and_when_another_one_is_donated(body: str, policy: str) -> None:
    text = f"g (float[4] x) => (float[4] p, float[4] q) <int64[1] s = {{4}}> {{ {body} }}"
    x = numbers(4)
    graph = graph_of(text)
    outputs = kvviz.run(graph, {"x": x}, policy=policy).outputs
    kvviz.run(graph, {"x": numbers(4, seed=1)}, policy=policy)
    np.testing.assert_array_equal(outputs["p"], np.maximum(x, 0))
    kvviz.run(graph_of("n (float[4] p) => (float[4] r) { r = Neg(p) }"), {"p": outputs["p"]}, donate=["p"])
    np.testing.assert_array_equal(outputs["q"], np.maximum(x, 0))


def test_a_value_given_for_a_weight_is_let_go_after_its_last_reading() -> None:
    graph = graph_of("g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { a = Mul(x, w) y = Exp(a) }")
    x, w = numbers(2), np.array([3, 4], np.float32)
    np.testing.assert_array_equal(run_graph(graph, {"x": x}).outputs["y"], np.exp(x * np.array([1, 2], np.float32)))
    trace = run_graph(graph, {"x": x, "w": w.copy()}, donate=["w"])
    assert trace.steps[0].decision.shares == {"a": "w"}
    assert [(bound.name, bound.how) for bound in trace.frames[0].bindings] == [("x", "borrowed"), ("w", "donated")]
    np.testing.assert_array_equal(trace.outputs["y"], np.exp(x * w))


PARTS = {
    "made": ("g (float[64] x) => (float[64] y)", "a = Exp(x) b = Neg(x) s = SequenceConstruct(a, b)"),
    "inserted": (
        "g (float[64] x) => (float[64] y)",
        "a = Exp(x) b = Neg(x) r = SequenceConstruct(a) s = SequenceInsert(r, b)",
    ),
    "split": ("g (float[128] x) => (float[64] y)", "w = Neg(x) s = SplitToSequence <axis = 0> (w, half)"),
}


@pytest.mark.parametrize("kind", PARTS)
def test_a_part_dies_with_its_sequence_and_lives_on_where_it_was_taken_out(kind: str) -> None:
    # given a sequence of which one part is taken out, by the sequence's last reader, and read on
    head, body = PARTS[kind]
    constants = "<int64 one = {1}, int64[2] half = {64, 64}>"
    text = f"{head} {constants} {{ {body} c = SequenceAt(s, one) d = Exp(c) y = Neg(d) }}"
    x = numbers(128 if kind == "split" else 64)
    trace = run(text, {"x": x})
    np.testing.assert_array_equal(trace.outputs["y"], -np.exp(-x[-64:]))
    # then the sequence and its other part go with that reader, and the part belongs to the run alone
    taking, after, last = trace.steps[-3:]
    freed = {storage.name for storage in trace.storages if storage.id in taking.freed}
    assert freed == {"made": {"s", "a"}, "inserted": {"s", "a"}, "split": {"s"}}[kind]
    assert (after.decision.taken, last.decision.taken) == (("c",), ("d",))
    # and nothing that the run made is held at the end but what holds the output
    left = {storage.name for storage in trace.storages if storage.freed is None and storage.origin == "run"}
    assert left == {"w" if kind == "split" else "b"}


@pytest.mark.parametrize("donate", [[], ["s"]])
def test_parts_of_a_given_sequence_stay_alive_with_it(donate: list[str]) -> None:
    text = "g (seq(float[64]) s) => (float[64] y) <int64 one = {1}> { c = SequenceAt(s, one) d = Exp(c) y = Neg(d) }"
    parts = [numbers(64), numbers(64, seed=1)]
    trace = kvviz.run(graph_of(text), {"s": parts}, donate=donate, poison=True)
    np.testing.assert_array_equal(trace.outputs["y"], -np.exp(numbers(64, seed=1)))
    assert [step.live_bytes for step in trace.steps] == [8 + 2 * 256, 8 + 3 * 256, 8 + 3 * 256]
    assert not any(step.freed for step in trace.steps)


def test_an_element_of_a_sequence_belongs_to_the_input_that_it_views_though_it_lies_elsewhere() -> None:
    # given: in onnxruntime a Reshape is a view, which NumPy has to copy where the caller's array has gaps
    text = """g (float[2, 3] x) => (float[6] y, float[6] z) <int64[1] m = {-1}, int64 o = {0}> {
        v = Reshape(x, m) s = SequenceConstruct(v, v) e = SequenceAt(s, o) z = Neg(e) y = Mul(v, z) }"""
    x = numbers(3, 2).T
    trace = kvviz.run(graph_of(text), {"x": x}, policy="onnxruntime", poison=True)
    np.testing.assert_array_equal(trace.outputs["y"], -np.square(x.ravel()))
    np.testing.assert_array_equal(trace.outputs["z"], -x.ravel())


def test_an_op_in_place_writes_where_its_input_lies_though_a_view_of_it_lies_elsewhere() -> None:
    # given: a reversed array, of which NumPy has to copy what onnxruntime views
    text = """g (float[4, 2] x) => (float[4, 2] y, float[8] z) <int64[1] m = {-1}> {
        y = Softplus(x) v = Reshape(x, m) z = Softplus(v) }"""
    x = numbers(11, 2)[4:0:-1]
    before = x.copy()
    trace = kvviz.run(graph_of(text), {"x": x}, donate=["x"], policy="onnxruntime")
    made = {out.name: out for step in trace.steps for out in step.outs}
    assert (made["y"].how, made["y"].storage, made["y"].offset) == ("in place", made["v"].storage, 32)
    np.testing.assert_allclose(trace.outputs["y"], np.log1p(np.exp(before)), rtol=1e-6)
    np.testing.assert_array_equal(trace.outputs["z"], trace.outputs["y"].ravel())


READ_AGAIN = """g (float[2, 3] past) => (float[2, 3] present, float before) {
    present = Neg(past) before = ReduceSum <keepdims = 0> (past) }"""
TURNED = """g (float[2, 3] past) => (float[2, 3] present) {
    a = Transpose(past) c = Neg(a) present = Transpose(c) }"""
GROWS = "g (float[N, 3] past, float[2, 3] new) => (float[M, 3] present) { present = Concat <axis = 0> (past, new) }"
ORT = kvviz.policies.onnxruntime


@pytest.mark.parametrize(("text", "policy"), [(READ_AGAIN, kvviz.policies.ideal), (READ_AGAIN, ORT), (TURNED, ORT)])
def test_a_bound_output_overwrites_what_a_later_op_still_reads(text: str, policy: kvviz.Policy) -> None:
    past, under = numbers(2, 3), bind(policy, {"present": "past"})
    trace = run(text, {"past": past.copy()}, donate=["past"], policy=under)
    (given,) = trace.frames[0].bindings
    (present,) = [out for step in trace.steps for out in step.outs if out.name == "present"]
    assert (present.storage, present.nbytes) == (given.storage, past.nbytes)
    np.testing.assert_allclose(trace.outputs["present"], -past)
    if policy is not ORT:  # whose order reads before it writes
        np.testing.assert_allclose(trace.outputs["before"], -past.sum(), rtol=1e-6)
    if text == READ_AGAIN:
        assert trace.bytes_allocated == trace.outputs["before"].nbytes


def test_a_present_that_is_longer_than_its_past_does_not_go_there() -> None:
    feeds = {"past": numbers(4, 3), "new": numbers(2, 3)}
    (step,) = run(GROWS, feeds, donate=["past"], policy=bind(ORT, {"present": "past"})).steps
    assert step.outs[0].how == "new" and step.allocated == 6 * 3 * 4


GROUPED = """g (float[1, 1, 8] q, {0} k, {0} v, int32[1] last, int32 n) => (float[1, 1, 8] y{1}) {{
    y{2} = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2> (q, q, q, k, v, last, n) {3} }}"""


def test_a_buffer_that_is_read_again_is_overwritten_only_for_a_binding() -> None:
    rows = "float[1, 2, 8, 4]"
    late = GROUPED.format(rows, f", {rows} nk, {rows} nv, {rows} both", ", nk, nv", "both = Add(k, nk)")
    feeds = {"q": numbers(1, 1, 8), "k": numbers(1, 2, 8, 4), "v": numbers(1, 2, 8, 4)}
    feeds |= {"last": np.array([4], np.int32), "n": np.array(5, np.int32)}
    for policy, how in ((ORT, "new"), (bind(ORT, {"nk": "k", "nv": "v"}), "in place")):
        given = {name: value.copy() for name, value in feeds.items()}
        trace = run(late, given, donate=["k", "v"], policy=policy)
        assert [out.how for out in trace.steps[0].outs[1:]] == [how] * 2
        assert [hazard.broken for hazard in kvviz.hazards(trace)] == [True] * (how == "in place")
    # Without presents there is nothing to share.
    (step,) = run(GROUPED.format(rows, "", "", ""), feeds, donate=["k", "v"], policy=ORT).steps
    assert not step.decision.taken
