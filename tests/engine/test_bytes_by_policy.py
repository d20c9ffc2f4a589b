"""Bytes written and copied by what an op does and where its output lies, under every policy."""

from typing import Any

import numpy as np
import pytest

import kvviz
from tests.engine.graphs import graph_of, numbers, run, step_of

POLICIES = ["ideal", "never", "rten", "onnxruntime"]
# What moves data that was there before, and how much of its output that is.
MOVES: dict[str, tuple[str, dict[str, Any], int]] = {
    "Concat": (
        "g (float[1, 5, 8] x, float[1, 2, 8] n) => (float[1, 7, 8] y) { p = Exp(x) [op] y = Concat <axis = 1> (p, n) }",
        {"x": numbers(1, 5, 8), "n": numbers(1, 2, 8)},
        5 * 8 * 4,
    ),
    "Transpose": (
        "g (float[4, 8] x) => (float[8, 4] y) { p = Exp(x) [op] t = Transpose(p) y = Neg(t) }",
        {"x": numbers(4, 8)},
        4 * 8 * 4,
    ),
    "Slice": (
        "g (float[8, 8] x) => (float[4, 8] y) <int64[1] a = {2}, int64[1] b = {6}> "
        "{ p = Exp(x) [op] t = Slice(p, a, b) y = Neg(t) }",
        {"x": numbers(8, 8)},
        4 * 8 * 4,
    ),
    "Expand": (
        "g (float[1, 8] x) => (float[8, 8] y) <int64[2] n = {8, 8}> { p = Exp(x) [op] t = Expand(p, n) y = Neg(t) }",
        {"x": numbers(1, 8)},
        8 * 8 * 4,
    ),
}
SCATTER = """g (float[8, 8] x, int64[2, 1] at, float[2, 8] u) => (float[8, 8] y) {
    p = Exp(x) [op] y = ScatterND(p, at, u) }"""


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("op", MOVES)
def test_an_op_that_moves_data_copies_it_unless_it_gives_a_view(op: str, policy: str) -> None:
    text, inputs, moved = MOVES[op]
    step = step_of(run(text, inputs, policy=policy), "op")
    (out,) = step.outs
    assert (step.written, step.copied) == ((0, 0) if out.how == "view" else (out.nbytes, moved))
    assert step.allocated == (out.nbytes if out.how == "new" else 0)
    assert out.how == "new" or op != "Concat"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_scatter_writes_its_updates_and_copies_the_rest_where_it_has_a_block_of_its_own(policy: str) -> None:
    feeds = {"x": numbers(8, 8), "at": np.array([[1], [3]]), "u": numbers(2, 8)}
    step = step_of(run(SCATTER, feeds, policy=policy), "op")
    updates, whole = 2 * 8 * 4, 8 * 8 * 4
    in_place = step.outs[0].how == "in place"
    assert (step.written, step.copied) == ((updates, 0) if in_place else (whole + updates, whole))
    assert in_place == (policy == "ideal")


@pytest.mark.parametrize("policy", POLICIES)
def test_an_append_with_room_writes_its_rows_and_one_without_all_of_them(policy: str) -> None:
    text = "g (float[1, s, 8] past, float[1, 2, 8] n) => (float[1, t, 8] y) { [op] y = Concat <axis = 1> (past, n) }"
    past = kvviz.reserve(numbers(1, 5, 8), 1, 16)
    trace = kvviz.run(graph_of(text), {"past": past, "n": numbers(1, 2, 8)}, donate=["past"], policy=policy)
    step, row = step_of(trace, "op"), 8 * 4
    appended = policy in ("ideal", "rten")
    assert step.outs[0].how == ("append" if appended else "new")
    assert (step.written, step.copied) == ((2 * row, 0) if appended else (7 * row, 5 * row))
    np.testing.assert_array_equal(trace.outputs["y"][:, 5:], numbers(1, 2, 8))


@pytest.mark.parametrize("policy", POLICIES)
def test_an_op_that_computes_writes_its_output_and_copies_nothing(policy: str) -> None:
    text = "g (float[8, 8] x) => (float[8, 8] y) { p = Exp(x) q = Neg(p) [op] y = Add(q, x) }"
    step = step_of(run(text, {"x": numbers(8, 8)}, policy=policy), "op")
    assert (step.written, step.copied) == (256, 0)
