"""A graph in the memory that the allocator gives it: addresses, decisions and frees in the log, and overwriting.

Expected values of runs: ggml, run on these graphs.
"""

import kvviz
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.context import Context
from kvviz.ggml.graph.tensor import INPUT, OUTPUT, Tensor
from kvviz.ggml.order.gallocr import plan_memory
from kvviz.ggml.order.graph_recipe import run


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
