"""Bytes allocated, written, copied and alive, under every policy, who may write where, and how it may lie."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import kvviz
from kvviz import Policy
from kvviz.memory.storage import POISON, Pool
from tests.engine.graphs import graph_of, numbers, run, step_of
from tests.engine.random_graphs import Example, assert_same_bits, examples, feeds
from tests.ops.kernels import run_kernel

X = {"x": numbers(4, 8)}
SIZE = 4 * 8 * 4
CHAIN = "g (float[4, 8] x) => (float[4, 8] y) { a = Exp(x) b = Neg(a) c = Tanh(b) y = Relu(c) }"


def test_a_chain_in_place_needs_one_block_beside_its_input() -> None:
    trace = run(CHAIN, X)
    columns = [(s.allocated, s.written, s.copied, s.live_bytes) for s in trace.steps]
    assert columns == [(SIZE, SIZE, 0, 2 * SIZE), *[(0, SIZE, 0, 2 * SIZE)] * 3]
    assert (trace.bytes_allocated, trace.bytes_written, trace.bytes_copied) == (SIZE, 4 * SIZE, 0)
    assert trace.peak_bytes == trace.runs[0].peak_bytes == 2 * SIZE


def test_the_place_of_a_view_is_known_through_other_views() -> None:
    text = """g (float[4, 8] x) => (float[3] y)
        <int64[1] z = {0}, int64[1] o = {1}, int64[1] f = {4}, int64[1] n = {-1}> {
        a = Exp(x) s = Slice(a, o, f) p, q, r = Split <axis = 0, num_outputs = 3> (s) t = Reshape(q, n)
        u = Transpose(t) v = Identity(u) w = Slice(v, o, f, z) y = Relu(w) }"""
    trace = run(text, X)
    offsets = {out.name: out.offset for step in trace.steps for out in step.outs}
    # Rows of 32 bytes: s begins at row 1, q is row 1 of s, and w begins at its second element.
    assert offsets == {"a": 0, "s": 32, "p": 32, "q": 64, "r": 96, "t": 64, "u": 64, "v": 64, "w": 68, "y": 68}


def test_a_part_of_a_reserved_block_is_not_taken_for_the_block() -> None:
    text = """g (float[1, 2, N, 4] past, float[1, 1, 1, 4] new) => (float[1, 1, M, 4] y)
        <int64[1] zero = {0}, int64[1] one = {1}> {
        head = Slice(past, zero, one, one) y = Concat <axis = 2> (head, new) }"""
    past, new = numbers(1, 2, 3, 4), numbers(1, 1, 1, 4, seed=1)
    trace = run(text, {"past": kvviz.reserve(past, 2, 8), "new": new}, donate=["past"])
    np.testing.assert_array_equal(trace.outputs["y"], np.concatenate([past[:, :1], new], 2))
    assert [b.code for b in trace.steps[-1].decision.blockers] == ["NO_CAPACITY"]


def pooled(smallest: int = 0) -> Policy:
    return Policy("pooled", in_place=kvviz.policies.never.in_place, pool=lambda: Pool(smallest))


def test_a_pool_hands_freed_storages_out_again_passes_small_requests_by_and_takes_the_best_fit() -> None:
    trace = run(CHAIN, X, policy=pooled())
    places = [(s.outs[0].storage, s.outs[0].generation, s.outs[0].how, s.allocated) for s in trace.steps]
    assert places == [(1, 0, "new", SIZE), (2, 0, "new", SIZE), (1, 1, "pool", 0), (2, 1, "pool", 0)]
    assert trace.peak_bytes == max(s.live_bytes for s in trace.steps) == 3 * SIZE
    np.testing.assert_array_equal(trace.outputs["y"], run(CHAIN, X).outputs["y"])
    assert run(CHAIN, X, policy=pooled(SIZE + 1)).bytes_allocated == 4 * SIZE
    assert run(CHAIN, X, policy=pooled(SIZE)).bytes_allocated == trace.bytes_allocated == 2 * SIZE
    text = """g (float[4, 8] x) => (float[1] y) <int64[1] z = {0}, int64[1] o = {1}> {
        a = Concat <axis = 0> (x, x) b = Exp(x) c = ReduceMax(a, z) d = ReduceMax(b, z) e = Neg(c) f = Mul(d, e)
        g = ReduceMax <keepdims = 0> (f) y = Unsqueeze(g, z) }"""
    trace = run(text, X, policy=pooled())
    # e could move into the storages of a (256 bytes) or of b (128 bytes).
    assert step_of(trace, "e").outs[0].storage == step_of(trace, "b").outs[0].storage


def test_a_pooled_storage_forgets_the_room_that_it_had_in_its_last_life() -> None:
    text = """g (float[2, 2] x, float[1, 2] n) => (float[3, 2] y) <int64[1] o = {1}, float[1, 2] k = {1, 2}> {
        s = ReduceSum(x, o) e = MatMul(s, k) y = Concat <axis = 0> (e, n) }"""
    x, new = numbers(2, 2), numbers(1, 2)
    expected = run(text, {"x": x, "n": new}).outputs["y"]
    policy = Policy("pooled", pool=Pool)
    trace = run(text, {"x": kvviz.reserve(x, 0, 6), "n": new}, donate=["x"], policy=policy)
    # e moves into the block of x, which had room for six rows; an append would write behind e.
    assert step_of(trace, "e").outs[0].storage == trace.frames[0].bindings[-1].storage
    assert [b.code for b in step_of(trace, "y").decision.blockers] == ["NO_CAPACITY"]
    np.testing.assert_array_equal(trace.outputs["y"], expected)


def test_a_dead_storage_is_overwritten_with_a_pattern_in_poison_mode() -> None:
    text = "g (float[4, 8] x) => (float[8] y) <int64[1] z = {0}> { y = ReduceSum <keepdims = 0> (x, z) }"
    for x in (X["x"].copy(), kvviz.reserve(X["x"], 0, 6), np.asfortranarray(X["x"])):
        trace = kvviz.run(graph_of(text), {"x": x}, donate=["x"], poison=True)
        assert set(x.tobytes()) == {POISON}
        np.testing.assert_allclose(trace.outputs["y"], X["x"].sum(0), rtol=1e-5)


def test_a_block_that_the_pool_of_rten_thinks_is_larger_becomes_larger() -> None:
    """rten holds a bool in four bytes: its buffer has room for as many floats, NumPy's has not."""
    # given: c is free when y needs as many elements
    text = """g (bool[64] x, float[64] v) => (float[1] s, float[64] y) <int64[1] o = {0}> {
        c = And(x, x) w = Where(c, v, v) s = ReduceSum(w, o) y = Sign(v) }"""
    trace = run(text, {"x": numbers(64) > 0, "v": numbers(64)}, policy="rten")
    assert [step.outs[0].how for step in trace.steps][-1] == "pool"
    for step in trace.steps:
        for out in step.outs:
            assert out.offset + out.nbytes <= trace.storages[out.storage].capacity


POLICIES = ["ideal", "never", "rten", "onnxruntime"]
MATRIX = {"x": numbers(8, 8)}
SCATTERED = {**MATRIX, "at": np.array([[1], [3]]), "u": numbers(2, 8)}
APPENDED = {"past": numbers(1, 5, 8), "n": numbers(1, 2, 8)}
NORMED = {"x": numbers(4, 8), "s": numbers(8)}
# A node, inputs, how many bytes it copies where its output is new, and by how its output came: bytes written.
COSTS: dict[str, tuple[str, dict[str, Any], int, dict[str, int]]] = {
    "Concat": (
        "(float[1, s, 8] past, float[1, 2, 8] n) => (float[1, t, 8] y) { [op] y = Concat <axis = 1> (past, n) }",
        APPENDED,
        5 * 8 * 4,
        {"new": 7 * 8 * 4, "append": 2 * 8 * 4},
    ),
    "Transpose": (
        "(float[8, 8] x) => (float[8, 8] y) { p = Exp(x) [op] t = Transpose(p) y = Neg(t) }",
        MATRIX,
        256,
        {"new": 256, "view": 0},
    ),
    "Slice": (
        """(float[8, 8] x) => (float[4, 8] y) <int64[1] a = {2}, int64[1] b = {6}> {
        p = Exp(x) [op] t = Slice(p, a, b) y = Neg(t) }""",
        MATRIX,
        128,
        {"new": 128, "view": 0, "in place": 128},
    ),
    "Expand": (
        "(float[1, 8] x) => (float[8, 8] y) <int64[2] n = {8, 8}> { p = Exp(x) [op] t = Expand(p, n) y = Neg(t) }",
        {"x": numbers(1, 8)},
        256,
        {"new": 256, "view": 0},
    ),
    "ScatterND": (
        "(float[8, 8] x, int64[2, 1] at, float[2, 8] u) => (float[8, 8] y) { p = Exp(x) [op] y = ScatterND(p, at, u) }",
        SCATTERED,
        256,
        {"new": 256 + 64, "in place": 64},
    ),
    "Add": (
        "(float[8, 8] x) => (float[8, 8] y) { p = Exp(x) q = Neg(p) [op] y = Add(q, x) }",
        MATRIX,
        0,
        {"new": 256, "in place": 256, "pool": 256},
    ),
    "LayerNormalization": (
        """(float[4, 8] x, float[8] s) => (float[4, 8] y, float[4, 1] m, float[4, 1] i) {
        a = Exp(x) [op] y, m, i = LayerNormalization(a, s) }""",
        NORMED,
        0,
        {"new": 128 + 16 + 16, "in place": 128 + 16 + 16, "pool": 160},
    ),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("op", COSTS)
def test_an_op_writes_what_it_makes_and_copies_what_was_there_before(op: str, policy: str) -> None:
    text, inputs, moved, written = COSTS[op]
    given = {name: array.copy() for name, array in inputs.items()}
    if op == "Concat":
        given["past"] = kvviz.reserve(given["past"], 1, 16)
    trace = kvviz.run(graph_of(f"g {text}"), given, donate=[*given.keys() & {"past"}], policy=policy)
    step = step_of(trace, "op")
    first = step.outs[0].how
    moves = first == "new" or (op, first) == ("Slice", "in place")
    assert (step.written, step.copied) == (written[first], moved if moves else 0)
    assert step.allocated == sum(out.nbytes for out in step.outs if out.how == "new")
    if policy in ("ideal", "never"):
        best = {"Concat": "append", "Transpose": "view", "Slice": "view", "Expand": "view"}.get(op, "in place")
        never = best if best == "view" else "new"
        assert first == (best if policy == "ideal" else never)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(example=examples())
def test_a_pool_changes_no_bit_and_allocates_no_more(example: Example) -> None:
    graph = kvviz.load(example.model)
    plain = kvviz.run(graph, feeds(example), donate=example.donate)
    reused = kvviz.run(graph, feeds(example), donate=example.donate, policy=Policy("pooled", pool=Pool), poison=True)
    assert_same_bits(plain, reused)
    assert reused.bytes_allocated <= plain.bytes_allocated
    assert reused.bytes_written == plain.bytes_written
    assert reused.peak_bytes == max(step.live_bytes for step in reused.steps)


TRANSPOSED = "g (float[3, 4] x, float[4, 3] z) => (float[m, n] y) {{ p = Exp(x) t = Transpose(p) [op] a = {} }}"
BLIND = {
    "Concat": "Neg(t) y = Concat <axis = 0> (z, a)",
    "a view and Concat": "Neg(t) v = Transpose(a) y = Concat <axis = 0> (x, v)",
    "another op in place": "Neg(t) c = Relu(a) y = Concat <axis = 0> (z, c)",
    "an op with another operand": "Add(t, z) y = Concat <axis = 0> (z, a)",
    "a comparison": "Neg(t) b = Less(a, z) y = Where(b, z, z)",
}
SEEING = {
    "a product": "Neg(t) y = MatMul(a, x)",
    "a sum": "Neg(t) y = ReduceSum(a)",
    "a sum of a view": "Neg(t) v = Transpose(a) y = ReduceSum(v)",
    "a sum of what overwrites it": "Neg(t) c = Relu(a) y = ReduceSum(c)",
    "the caller": "Neg(t) y = Identity(a)",
    "an exponential, which NumPy may compute otherwise": "Neg(t) c = Exp(a) y = Concat <axis = 0> (z, c)",
}
PAIR = {"x": numbers(3, 4), "z": numbers(4, 3)}


@pytest.mark.parametrize("text", [*BLIND.values(), *SEEING.values()], ids=[*BLIND, *SEEING])
def test_transposed_values_are_overwritten_where_nobody_depends_on_their_order_and_only_there(text: str) -> None:
    whole = TRANSPOSED.format(text)
    trace, never = run(whole, PAIR), run(whole, PAIR, policy="never")
    step = step_of(trace, "op")
    assert trace.outputs["y"].tobytes() == never.outputs["y"].tobytes()
    if text in BLIND.values():
        assert step.decision.taken == ("t",) and step.allocated == 0
        assert step.outs[0].how == "in place" and step.outs[0].strides == (4, 16)
        np.testing.assert_array_equal(trace.value("a", step.index), never.value("a", step.index))
    else:
        assert step.decision.dispatch == "run"
        assert [blocker.code for blocker in step.decision.blockers] == ["NOT_CONTIGUOUS"]


def test_rows_of_a_cache_with_room_are_overwritten_after_an_append() -> None:
    text = """g (float[1, 2, P, 4] past, float[1, 2, 1, 4] row, int64[1] at) => (float[1, 2, T, 4] y) {
        p = Concat <axis = 2> (past, row) [op] y = TensorScatter(p, row, at) }"""
    row, at = numbers(1, 2, 1, 4), np.array([1])
    past = kvviz.reserve(numbers(1, 2, 3, 4), 2, 8)
    trace = run(text, {"past": past, "row": row, "at": at}, opset=24, donate=["past"])
    assert step_of(trace, "op").decision.taken == ("p",) and trace.bytes_copied == 0
    never = run(text, {"past": numbers(1, 2, 3, 4), "row": row, "at": at}, opset=24, policy="never")
    assert trace.outputs["y"].tobytes() == never.outputs["y"].tobytes()


INTS = np.arange(12, dtype=np.int64).reshape(3, 4)
ROWS = np.array([[0], [2]])
CELLS = np.array([[0, 1], [2, 3], [0, 1]])
WRITERS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    **{op: ([numbers(3, 4), numbers(3, 4, seed=1)], {}) for op in ("Add", "Sub", "Mul", "Div", "Min", "Max")},
    **{op: ([abs(numbers(3, 4)) + 1], {}) for op in ("Neg", "Abs", "Sqrt", "Reciprocal", "Relu", "Floor", "Ceil")},
    **{op: ([numbers(3, 4)], {}) for op in ("Round", "Sign")},
    **{op: ([INTS, INTS + 5], {}) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    **{op: ([INTS > 3, INTS > 6], {}) for op in ("And", "Or", "Xor")},
    "Not": ([INTS > 3], {}),
    "BitwiseNot": ([INTS], {}),
    "Clip": ([numbers(3, 4), np.float32(-0.5), np.float32(0.5)], {}),
    "ScatterND": ([numbers(3, 4), ROWS, numbers(2, 4)], {}),
    "ScatterND of cells": ([numbers(3, 4), CELLS, numbers(3)], {"reduction": "add"}),
    "ScatterElements": ([numbers(3, 4), ROWS, numbers(2, 1)], {}),
    "TensorScatter": ([numbers(3, 4), numbers(3, 1), np.array([2, 0, 1])], {"axis": 1}),
}


@pytest.mark.parametrize("case", WRITERS)
def test_a_kernel_writes_over_an_input_of_any_layout(case: str) -> None:
    op, (inputs, attributes) = case.split()[0], WRITERS[case]
    meant = run_kernel(op, inputs, opset=24, **attributes)[0]
    past = np.asfortranarray(inputs[0])
    result = run_kernel(op, [past, *inputs[1:]], opset=24, out=past, **attributes)[0]
    assert result is past and result.strides != meant.strides
    assert result.tobytes() == meant.tobytes()
