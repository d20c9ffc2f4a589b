"""Graphs run node by node, in memory that the allocator planned; what cannot be built or run is one error."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.errors import KvvizError
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.context import Context
from kvviz.ggml.graph.tensor import COMPUTE, OUTPUT, Tensor
from kvviz.ggml.graph.tensor_data import tensor_get
from kvviz.ggml.order.gallocr import plan_memory
from kvviz.ggml.order.graph_recipe import run
from tests.ggml.attention_layer import AttentionLayer, LayerForm
from tests.outside.told import differences, loaded


def test_values_are_looked_at_after_each_op_and_what_a_run_was_given_before_it_begins() -> None:
    form = LayerForm(kv_size=8)
    rng = np.random.default_rng(2)
    rows = {"q": form.width, "k": form.kv_width, "v": form.kv_width, "output": form.width}
    layer = AttentionLayer(Context(), form, {key: rng.normal(size=(n, form.width)) for key, n in rows.items()})
    steps = ((0, 3), (3, 1), (4, 1))
    graphs = [layer.graph(rng.normal(size=(n, form.width)), range(start, start + n)) for start, n in steps]
    trace = kvviz.ggml.run(graphs, "decode", labels=["prefill", "token 3", "token 4"])
    assert trace.values is not None
    out = trace.outputs["attn_out-0"]
    kept = trace.values.of(len(trace.steps) - 1, "attn_out-0")
    assert kept is not None
    assert (kept.numbers.low, kept.numbers.high) == (pytest.approx(out.min()), pytest.approx(out.max()))
    empty, filled = (trace.values.given(run, "cache_k_l0") for run in (0, 1))
    assert empty is not None and (empty.numbers.low, empty.numbers.high) == (0, 0)
    assert filled is not None and filled.numbers.high > 0
    mask = trace.values.given(0, "attn_inp_kq_mask")
    assert mask is not None and mask.numbers.below == 3 * 8 - (1 + 2 + 3)
    assert trace.values.given(0, "blk.0.attn_q.weight") is None
    assert differences(trace, loaded(trace)) == []
    # values of blocks are shown as numbers
    ctx = Context()
    x = ctx.new_tensor("f32", 32, name="x", data=np.arange(32))
    trace = kvviz.ggml.run(ctx.new_graph().expand(ctx.set_name(ctx.cast(x, "q8_0"), "q")))
    kept = trace.values.of(0) if trace.values is not None else None
    assert kept is not None and kept.numbers.high == pytest.approx(31, rel=1e-3)
    assert trace.steps[0].outs[0].nbytes == 34


def test_a_graph_grows_by_what_is_expanded_without_recursion() -> None:
    ctx = Context()
    weight = ctx.set_param(ctx.new_tensor("f32", 4, name="w"))
    both = ctx.set_name(ctx.add(ctx.set_name(ctx.sqr(weight), "l"), ctx.set_name(ctx.sqrt(weight), "r")), "m")
    # what only got a place is computed when it is expanded later; a parameter is a node
    graph = ctx.new_graph().expand(both, compute=False)
    assert not graph.leafs and not any(node.flags & COMPUTE for node in graph.nodes[1:])
    last = ctx.set_name(ctx.neg(both), "n")
    graph.expand(last)
    assert [node.name for node in graph.nodes] == ["w", "l", "r", "m", "n"]
    assert all(node.flags & COMPUTE for node in graph.nodes[1:])
    kvviz.ggml.run(graph)
    for _ in range(5000):
        last = ctx.neg(last)
    assert len(ctx.new_graph().expand(last).nodes) == 5005


def test_an_index_that_is_computed_names_its_rows_when_it_has_run() -> None:
    ctx = Context()
    scores = ctx.new_tensor("f32", 4, 2, name="scores", data=[[0, 5, 1, 2], [0, 0, 0, 9]])
    table = ctx.new_tensor("f32", 2, 4, name="table", data=np.arange(8))
    trace = kvviz.ggml.run(ctx.new_graph().expand(ctx.set_name(ctx.get_rows(table, ctx.argmax(scores)), "rows")))
    assert trace.outputs["rows"].tolist() == [[2, 3], [6, 7]]
    read = trace.log.declared.accesses[1][0]
    assert read.region.rows == (8, 24)


def test_the_gradient_of_a_copy_goes_to_what_was_copied_as_in_ggmls_backward_pass() -> None:
    # given: loss = sum(w * copy of x into a row of k), and what ggml_build_backward_expand of 0.25.3 makes of it
    ctx = Context()
    k, x = ctx.new_tensor("f32", 4, 3, name="k", data=5), ctx.new_tensor("f32", 4, name="x", data=2)
    w, one = ctx.new_tensor("f32", 4, name="w", data=[1, 2, 3, 4]), ctx.new_tensor("f32", 1, name="one", data=1)
    copy = ctx.cpy(x, ctx.view_1d(k, 4, 16))
    weighted = ctx.mul(copy, w)
    graph = ctx.new_graph().expand(ctx.sum(weighted))
    of_copy = ctx.mul(ctx.repeat(one, weighted), w)
    graph.expand(of_copy).expand(ctx.reshape(of_copy, x))
    assert [node.op for node in graph.nodes] == ["VIEW", "CPY", "MUL", "SUM", "REPEAT", "MUL", "RESHAPE"]
    kvviz.ggml.run(graph)
    assert tensor_get(graph.nodes[-1]).tolist() == [1, 2, 3, 4]
    # the copy is what the loss reads, so no pair is hidden
    assert kvviz.hazards(graph) == ()


def test_what_was_refused_in_planned_memory_has_its_reason_and_is_missed() -> None:
    # Expected values: ggml, run on these graphs.
    ctx = Context()
    x, y = (ctx.set_input(ctx.new_tensor("f32", 256, name=name, data=value)) for name, value in (("x", 3), ("y", 1)))
    a = ctx.set_name(ctx.sqr(x), "a")
    a.flags |= OUTPUT
    graph = ctx.new_graph("chain").expand(ctx.scale(ctx.set_name(ctx.add(a, y), "b"), 2.0))
    trace = run([graph], plans={graph: plan_memory(graph)})
    b = trace.steps[1]
    assert [(str(one.code), one.input) for one in b.decision.blockers] == [("REQUESTED_OUTPUT", "a")]
    assert b.decision.taken == ("y",) and trace.storages[0].freed is None
    # an output is asked to go and stays
    assert [(free.after, free.storage, free.done) for free in trace.log.declared.frees] == [(1, 0, False)]

    x = ctx.set_input(ctx.new_tensor("f32", 256, name="x", data=3))
    graph = ctx.new_graph("reshape").expand(ctx.scale(ctx.reshape_2d(ctx.sqr(x), 16, 16), 2.0))
    trace = run([graph], plans={graph: plan_memory(graph)})
    (blocker,) = trace.steps[-1].decision.blockers
    assert str(blocker.code) == "POLICY"
    assert blocker.message.endswith("it is a view, and gallocr never counts a view as its own")
    assert [entry.bytes for entry in kvviz.explain(trace).missed] == [1024]


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
