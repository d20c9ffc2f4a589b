"""Graphs run node by node, in the order of their expansion, and in memory that the allocator planned."""

import numpy as np
import pytest

import kvviz
from kvviz.ggml.graph.context import Context
from kvviz.ggml.graph.tensor import COMPUTE, INPUT, OUTPUT, Tensor
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


def _inputs() -> tuple[Context, Tensor, Tensor]:
    ctx = Context()
    x, y = (ctx.new_tensor("f32", 256, name=name, data=value) for name, value in (("x", 3), ("y", 1)))
    x.flags |= INPUT
    y.flags |= INPUT
    return ctx, x, y


def test_what_was_refused_in_planned_memory_has_its_reason_and_is_missed() -> None:
    # Expected values: ggml, run on these graphs.
    ctx, x, y = _inputs()
    a = ctx.set_name(ctx.sqr(x), "a")
    a.flags |= OUTPUT
    graph = ctx.new_graph("chain").expand(ctx.scale(ctx.set_name(ctx.add(a, y), "b"), 2.0))
    trace = run([graph], plans={graph: plan_memory(graph)})
    b = trace.steps[1]
    assert [(str(one.code), one.input) for one in b.decision.blockers] == [("REQUESTED_OUTPUT", "a")]
    assert b.decision.taken == ("y",) and trace.storages[0].freed is None
    # an output is asked to go and stays
    assert [(free.after, free.storage, free.done) for free in trace.log.declared.frees] == [(1, 0, False)]

    ctx, x, _ = _inputs()
    graph = ctx.new_graph("reshape").expand(ctx.scale(ctx.reshape_2d(ctx.sqr(x), 16, 16), 2.0))
    trace = run([graph], plans={graph: plan_memory(graph)})
    (blocker,) = trace.steps[-1].decision.blockers
    assert str(blocker.code) == "POLICY"
    assert blocker.message.endswith("it is a view, and gallocr never counts a view as its own")
    assert [entry.bytes for entry in kvviz.explain(trace).missed] == [1024]
