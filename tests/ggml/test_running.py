"""Graphs run node by node, in the order of their expansion, and in memory that the allocator planned."""

import numpy as np
import pytest

import kvviz
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.context import Context
from kvviz.ggml.graph.tensor import COMPUTE, INPUT, OUTPUT, Tensor
from kvviz.ggml.graph.tensor_data import tensor_get
from kvviz.ggml.order.gallocr import plan_memory
from kvviz.ggml.order.graph_recipe import run
from kvviz.trace.recording import Trace
from tests.ggml.attention_layer import AttentionLayer, LayerForm
from tests.outside.told import differences, loaded

STEPS = ((0, 3), (3, 1), (4, 1))


@pytest.fixture(scope="module")
def decoded() -> tuple[list[ComputeGraph], Trace]:
    form = LayerForm(kv_size=8)
    rng = np.random.default_rng(2)
    rows = {"q": form.width, "k": form.kv_width, "v": form.kv_width, "output": form.width}
    layer = AttentionLayer(Context(), form, {key: rng.normal(size=(n, form.width)) for key, n in rows.items()})
    graphs = [layer.graph(rng.normal(size=(n, form.width)), range(start, start + n)) for start, n in STEPS]
    return graphs, kvviz.ggml.run(graphs, "decode", labels=["prefill", "token 3", "token 4"])


def test_values_are_looked_at_after_each_op(decoded: tuple[list[ComputeGraph], Trace]) -> None:
    trace = decoded[1]
    assert trace.values is not None
    last = len(trace.steps) - 1
    out = trace.outputs["attn_out-0"]
    kept = trace.values.of(last, "attn_out-0")
    assert kept is not None
    assert (kept.numbers.low, kept.numbers.high) == (pytest.approx(out.min()), pytest.approx(out.max()))


def test_what_a_run_was_given_is_looked_at_before_it_begins(decoded: tuple[list[ComputeGraph], Trace]) -> None:
    trace = decoded[1]
    assert trace.values is not None
    empty, filled = (trace.values.given(run, "cache_k_l0") for run in (0, 1))
    assert empty is not None and (empty.numbers.low, empty.numbers.high) == (0, 0)
    assert filled is not None and filled.numbers.high > 0
    mask = trace.values.given(0, "attn_inp_kq_mask")
    assert mask is not None and mask.numbers.below == 3 * 8 - (1 + 2 + 3)
    assert trace.values.given(0, "blk.0.attn_q.weight") is None


def test_values_of_blocks_are_shown_as_numbers() -> None:
    ctx = Context()
    x = ctx.new_tensor("f32", 32, name="x", data=np.arange(32))
    trace = kvviz.ggml.run(ctx.new_graph().expand(ctx.set_name(ctx.cast(x, "q8_0"), "q")))
    kept = trace.values.of(0) if trace.values is not None else None
    assert kept is not None and kept.numbers.high == pytest.approx(31, rel=1e-3)
    assert trace.steps[0].outs[0].nbytes == 34


def test_it_is_saved_loaded_and_shown_as_any_other(decoded: tuple[list[ComputeGraph], Trace]) -> None:
    assert differences(decoded[1], loaded(decoded[1])) == []


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


# Expected values of planned runs: ggml, run on these graphs.
def _inputs() -> tuple[Context, Tensor, Tensor]:
    ctx = Context()
    x, y = (ctx.new_tensor("f32", 256, name=name, data=value) for name, value in (("x", 3), ("y", 1)))
    x.flags |= INPUT
    y.flags |= INPUT
    return ctx, x, y


def _chain(output: bool = False) -> ComputeGraph:
    ctx, x, y = _inputs()
    a = ctx.set_name(ctx.sqr(x), "a")
    a.flags |= OUTPUT * output
    b = ctx.set_name(ctx.add(a, y), "b")
    return ctx.new_graph("chain").expand(ctx.set_name(ctx.scale(b, 2.0), "o"))


def _planned(graph: ComputeGraph, times: int = 1) -> kvviz.Trace:
    plan = plan_memory(graph)
    return run([graph] * times, plans={graph: plan})


def test_what_was_refused_has_its_reason_and_is_missed() -> None:
    trace = _planned(_chain(output=True))
    b = trace.steps[1]
    assert [(str(one.code), one.input) for one in b.decision.blockers] == [("REQUESTED_OUTPUT", "a")]
    assert b.decision.taken == ("y",)
    assert trace.storages[0].freed is None

    ctx, x, _ = _inputs()
    a = ctx.sqr(x)
    graph = ctx.new_graph("reshape").expand(ctx.scale(ctx.reshape_2d(a, 16, 16), 2.0))
    last = _planned(graph).steps[-1]
    assert [str(one.code) for one in last.decision.blockers] == ["POLICY"]
    assert last.decision.blockers[0].message.endswith("it is a view, and gallocr never counts a view as its own")
    assert [entry.bytes for entry in kvviz.explain(_planned(graph)).missed] == [1024]


def test_an_output_is_asked_to_go_and_stays() -> None:
    frees = _planned(_chain(output=True)).log.declared.frees
    assert [(free.after, free.storage, free.done) for free in frees] == [(1, 0, False)]


def _sum() -> tuple[Context, Tensor, Tensor, Tensor]:
    ctx = Context()
    x = ctx.new_tensor("f32", 4, name="x", data=2)
    left, right = ctx.set_name(ctx.sqr(x), "l"), ctx.set_name(ctx.sqrt(x), "r")
    return ctx, left, right, ctx.set_name(ctx.add(left, right), "m")


def _names(tensors: list[Tensor]) -> str:
    return " ".join(tensor.name for tensor in tensors)


def test_a_deep_graph_needs_no_recursion() -> None:
    ctx = Context()
    one = ctx.new_tensor("f32", 1, name="x")
    for _ in range(5000):
        one = ctx.neg(one)
    assert len(ctx.new_graph().expand(one).nodes) == 5000


def test_a_parameter_is_a_node() -> None:
    ctx = Context()
    weight = ctx.set_param(ctx.new_tensor("f32", 4, name="w"))
    graph = ctx.new_graph().expand(ctx.set_name(ctx.neg(weight), "y"))
    assert (_names(graph.leafs), _names(graph.nodes)) == ("", "w y")
    kvviz.ggml.run(graph)


def test_what_only_got_a_place_is_computed_when_it_is_expanded_later() -> None:
    ctx, left, right, both = _sum()
    graph = ctx.new_graph().expand(both, compute=False)
    assert not any(node.flags & COMPUTE for node in graph.nodes)
    graph.expand(ctx.set_name(ctx.neg(both), "n"))
    assert _names(graph.nodes) == "l r m n"
    assert all(node.flags & COMPUTE for node in (left, right, both))
