"""What cannot be built or run gives one error that names the op, the tensors and their sizes."""

from collections.abc import Callable
from typing import Any

import pytest

import kvviz
from kvviz.errors import KvvizError
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.context import Context
from kvviz.ggml.graph.tensor import Tensor


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda c, t: c.mul_mat(t["k"], t["q"]), "mul_mat of 'k' f32 [4, 8] and 'q' f32 [5]: rows of 4 and 5"),
        (lambda c, t: c.mul_mat(c.transpose(t["k"]), t["k"]), "mul_mat of 'k (transposed)' f32 [8, 4] with nb [16, 4]"),
        (lambda c, t: c.add(t["k"], t["q"]), "add of 'k' f32 [4, 8] and 'q' f32 [5]: the second must repeat"),
        (lambda c, t: c.cpy(t["k"], t["q"]), "cpy of 'k' f32 [4, 8] and 'q' f32 [5]: they have 32 and 5 elements"),
        (lambda c, t: c.reshape_2d(t["k"], 3, 5), "reshape_2d of 'k' f32 [4, 8]: it has 32 elements, [3, 5] are 15"),
        (lambda c, t: c.reshape_1d(c.transpose(t["k"]), 32), "reshape_1d of 'k (transposed)'"),
        (lambda c, t: c.permute(t["k"], 0, 1, 1, 3), "permute of 'k' f32 [4, 8]: axes [0, 1, 1, 3]"),
        (lambda c, t: c.set_rows(t["k"], t["k"], t["i"]), "set_rows of 'k' f32 [4, 8] and 'k' f32 [4, 8] and 'i'"),
        (lambda c, t: c.get_rows(t["k"], t["q"]), "get_rows of 'k' f32 [4, 8] and 'q' f32 [5]: the index must be i32"),
        (lambda c, t: c.set_1d_inplace(t["k"], t["q"], 120), "set of 'k' f32 [4, 8] and 'q' f32 [5]: the patch"),
        (lambda c, t: c.acc(t["h"], t["h"], 8, 64, 64, 0), "acc of 'h' f16 [4, 8] and 'h' f16 [4, 8]: they must both"),
        (lambda c, t: c.concat(t["k"], t["q"], 1), "concat of 'k' f32 [4, 8] and 'q' f32 [5]: all sizes but ne1"),
        (lambda c, t: c.soft_max_ext(t["k"], t["q"], 1.0, 0.0), "soft_max of 'k' f32 [4, 8] and 'q' f32 [5]: the mask"),
        (lambda c, t: c.rope(t["k"], t["i"], 4), "rope of 'k' f32 [4, 8] and 'i' i32 [3]: it needs 1 positions, not 3"),
        (lambda c, t: c.rope(t["k"], t["i"], 6), "rope of 'k' f32 [4, 8]: 6 dims must be even, at most 4"),
        (lambda c, t: c.unary(t["k"], "SOFT"), "unary of 'k' f32 [4, 8]: there is no kind 'SOFT'"),
        (lambda c, t: c.flash_attn_ext(t["k"], t["q"], t["q"], None, 1.0), "flash_attn_ext of 'k' f32 [4, 8] and 'q'"),
        (lambda c, t: c.view_1d(t["k"], 30, 16), "VIEW of 'k' f32 [4, 8]: it takes 120 bytes from byte 16 of 'k'"),
        (lambda c, t: c.view_2d(t["k"], 4, 8, 32, 0), "reaches byte 240 of 'k', which has 128"),  # ggml takes it
        (lambda c, t: c.view_1d(t["b"], 16, 0), "a row of 16 elements is not a whole number of q8_0 blocks of 32"),
        (lambda c, t: c.new_tensor("f33", 4), "the tensor type 'f33' is not known"),
        (lambda c, t: c.new_tensor("f32", 4, name="x", data=[1, 2, 3]), "'x' f32 [4] takes 4 numbers, not 3"),
    ],
)
def test_an_op_that_does_not_fit_names_its_tensors(build: Callable[[Context, Any], Any], told: str) -> None:
    ctx = Context()
    made = {
        "k": ctx.new_tensor("f32", 4, 8, name="k"),
        "q": ctx.new_tensor("f32", 5, 1, name="q"),
        "h": ctx.new_tensor("f16", 4, 8, name="h"),
        "i": ctx.new_tensor("i32", 3, name="i"),
        "b": ctx.new_tensor("q8_0", 32, 2, name="b"),
    }
    with pytest.raises(KvvizError) as caught:
        build(ctx, made)
    assert told in str(caught.value)


def _backwards(c: Context) -> ComputeGraph:
    early = c.set_name(c.sqr(c.new_tensor("f32", 4, name="x")), "early")
    graph = c.new_graph().expand(c.set_name(c.neg(early), "late"))
    return graph.reordered(graph.nodes[::-1])


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda c: c.cont(c.view_2d(c.new_tensor("f32", 4, 8, name="k"), 4, 8, 32, 0)), "reaches byte 240 of 'k'"),
        (
            lambda c: c.get_rows(c.new_tensor("f32", 4, 8, name="k"), c.new_tensor("i32", 2, name="rows", data=[1, 8])),
            r"GET_ROWS .*the index names row 8 of 8",
        ),
        (
            lambda c: c.mul_mat(c.new_tensor("q4_K", 256, 2, name="w"), c.new_tensor("f32", 256, name="x")),
            r"'w' q4_K .256, 2. cannot be computed: only f32",
        ),
        (_backwards, r"UNARY 'late' f32 .4. reads 'early' f32 .4., which was not computed before"),
        (lambda c: c.new_graph("nothing"), "graph 'nothing' has no node"),
        (lambda c: [], "there is no graph to run"),
    ],
)
def test_what_can_be_built_and_not_run_is_refused_when_it_runs(build: Callable[[Context], Any], told: str) -> None:
    ctx = Context(check=False)
    made = build(ctx)
    with pytest.raises(KvvizError, match=told):
        kvviz.ggml.run(ctx.new_graph().expand(made) if isinstance(made, Tensor) else made)
