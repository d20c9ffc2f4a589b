"""What cannot be built or run gives one error that names the op, the tensors and their sizes."""

from collections.abc import Callable
from typing import Any

import pytest

import kvviz
from kvviz.errors import KvvizError
from kvviz.ggml.graph.context import Context
from kvviz.ggml.graph.tensor import Tensor


def _made(ctx: Context) -> dict[str, Tensor]:
    return {
        "k": ctx.new_tensor("f32", 4, 8, name="k"),
        "q": ctx.new_tensor("f32", 5, 1, name="q"),
        "h": ctx.new_tensor("f16", 4, 8, name="h"),
        "i": ctx.new_tensor("i32", 3, name="i"),
        "b": ctx.new_tensor("q8_0", 32, 2, name="b"),
    }


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
        (
            lambda c, t: c.set_rows(t["k"], t["k"], t["i"]),
            "set_rows of 'k' f32 [4, 8] and 'k' f32 [4, 8] and 'i' i32 [3]",
        ),
        (lambda c, t: c.get_rows(t["k"], t["q"]), "get_rows of 'k' f32 [4, 8] and 'q' f32 [5]: the index must be i32"),
        (
            lambda c, t: c.set_1d_inplace(t["k"], t["q"], 120),
            "set of 'k' f32 [4, 8] and 'q' f32 [5]: the patch reaches",
        ),
        (lambda c, t: c.acc(t["h"], t["h"], 8, 64, 64, 0), "acc of 'h' f16 [4, 8] and 'h' f16 [4, 8]: they must both"),
        (lambda c, t: c.concat(t["k"], t["q"], 1), "concat of 'k' f32 [4, 8] and 'q' f32 [5]: all sizes but ne1"),
        (lambda c, t: c.soft_max_ext(t["k"], t["q"], 1.0, 0.0), "soft_max of 'k' f32 [4, 8] and 'q' f32 [5]: the mask"),
        (lambda c, t: c.rope(t["k"], t["i"], 4), "rope of 'k' f32 [4, 8] and 'i' i32 [3]: it needs 1 positions, not 3"),
        (lambda c, t: c.rope(t["k"], t["i"], 6), "rope of 'k' f32 [4, 8]: 6 dims must be even, at most 4"),
        (lambda c, t: c.unary(t["k"], "SOFT"), "unary of 'k' f32 [4, 8]: there is no kind 'SOFT'"),
        (lambda c, t: c.flash_attn_ext(t["k"], t["q"], t["q"], None, 1.0), "flash_attn_ext of 'k' f32 [4, 8] and 'q'"),
        (lambda c, t: c.view_1d(t["k"], 30, 16), "VIEW of 'k' f32 [4, 8]: it takes 120 bytes from byte 16 of 'k'"),
        (lambda c, t: c.view_1d(t["b"], 16, 0), "a row of 16 elements is not a whole number of q8_0 blocks of 32"),
        (lambda c, t: c.new_tensor("f33", 4), "the tensor type 'f33' is not known"),
        (lambda c, t: c.new_tensor("f32", 4, name="x", data=[1, 2, 3]), "'x' f32 [4] takes 4 numbers, not 3"),
    ],
)
def test_an_op_that_does_not_fit_names_its_tensors(build: Callable[[Context, Any], Any], told: str) -> None:
    ctx = Context()
    with pytest.raises(KvvizError) as caught:
        build(ctx, _made(ctx))
    assert told in str(caught.value)


def test_a_strided_view_beyond_its_root_is_refused_although_ggml_takes_it() -> None:
    k = Context().new_tensor("f32", 4, 8, name="k")
    with pytest.raises(KvvizError, match=r"reaches byte 240 of 'k', which has 128 .*check=False"):
        Context().view_2d(k, 4, 8, 2 * k.nb[1], 0)


def test_it_can_be_built_as_ggml_does_and_is_never_read() -> None:
    ctx = Context(check=False)
    k = ctx.new_tensor("f32", 4, 8, name="k")
    view = ctx.view_2d(k, 4, 8, 2 * k.nb[1], 0)
    assert view.nbytes == 240
    with pytest.raises(KvvizError, match="reaches byte 240 of 'k', which has 128"):
        kvviz.ggml.run(ctx.new_graph().expand(ctx.cont(view)))


def test_an_index_beyond_the_table_names_the_row() -> None:
    ctx = Context()
    table, rows = ctx.new_tensor("f32", 4, 8, name="k"), ctx.new_tensor("i32", 2, name="rows", data=[1, 8])
    with pytest.raises(KvvizError, match=r"GET_ROWS .*the index names row 8 of 8"):
        kvviz.ggml.run(ctx.new_graph().expand(ctx.get_rows(table, rows)))


def test_a_node_whose_source_was_not_computed_says_so() -> None:
    ctx = Context()
    x = ctx.new_tensor("f32", 4, name="x")
    graph = ctx.new_graph().expand(ctx.set_name(ctx.neg(ctx.set_name(ctx.sqr(x), "early")), "late"))
    with pytest.raises(KvvizError, match=r"UNARY 'late' f32 .4. reads 'early' f32 .4., which was not computed before"):
        kvviz.ggml.run(graph.reordered(graph.nodes[::-1]))


def test_a_graph_without_nodes_and_no_graph_at_all() -> None:
    with pytest.raises(KvvizError, match="graph 'nothing' has no node"):
        kvviz.ggml.run(Context().new_graph("nothing"))
    with pytest.raises(KvvizError, match="there is no graph to run"):
        kvviz.ggml.run([])


def test_a_type_that_is_only_laid_out_is_not_run() -> None:
    ctx = Context()
    weight = ctx.new_tensor("q4_K", 256, 2, name="w")
    assert weight.nbytes == 288
    with pytest.raises(KvvizError, match=r"'w' q4_K .256, 2. cannot be computed: only f32"):
        kvviz.ggml.run(ctx.new_graph().expand(ctx.mul_mat(weight, ctx.new_tensor("f32", 256, name="x"))))
