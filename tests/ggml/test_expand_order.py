"""The list is what ``ggml_build_forward_expand`` leaves: post-order, each tensor once, later calls behind earlier."""

from __future__ import annotations

import kvviz
from kvviz.ggml.graph.context import Context
from kvviz.ggml.graph.tensor import COMPUTE, Tensor


def _sum() -> tuple[Context, Tensor, Tensor, Tensor]:
    ctx = Context()
    x = ctx.new_tensor("f32", 4, name="x", data=2)
    left, right = ctx.set_name(ctx.sqr(x), "l"), ctx.set_name(ctx.sqrt(x), "r")
    return ctx, left, right, ctx.set_name(ctx.add(left, right), "m")


def _names(tensors: list[Tensor]) -> str:
    return " ".join(tensor.name for tensor in tensors)


def test_sources_come_before_what_is_computed_from_them() -> None:
    ctx, _, _, both = _sum()
    assert _names(ctx.new_graph().expand(both).nodes) == "l r m"


def test_what_was_expanded_before_keeps_its_place() -> None:
    ctx, _, right, both = _sum()
    assert _names(ctx.new_graph().expand(right).expand(both).nodes) == "r l m"


def test_a_graph_may_visit_sources_from_the_last_to_the_first() -> None:
    ctx, _, _, both = _sum()
    assert _names(ctx.new_graph(right_to_left=True).expand(both).nodes) == "r l m"


def test_a_deep_graph_needs_no_recursion() -> None:
    ctx = Context()
    one = ctx.new_tensor("f32", 1, name="x")
    for _ in range(5000):
        one = ctx.neg(one)
    assert len(ctx.new_graph().expand(one).nodes) == 5000


def test_unnamed_tensors_are_numbered_and_views_are_named_after_what_they_were_made_of() -> None:
    ctx = Context()
    leaf = ctx.new_tensor("f32", 4)
    view = ctx.view_1d(leaf, 2, 0)
    product = ctx.neg(view)
    graph = ctx.new_graph().expand(product)
    assert (leaf.name, view.name, product.name) == ("leaf_0", " (view)", "node_1")
    assert (_names(graph.leafs), _names(graph.nodes)) == ("leaf_0", " (view) node_1")


def test_a_parameter_is_a_node() -> None:
    ctx = Context()
    weight = ctx.set_param(ctx.new_tensor("f32", 4, name="w"))
    graph = ctx.new_graph().expand(ctx.set_name(ctx.neg(weight), "y"))
    assert (_names(graph.leafs), _names(graph.nodes)) == ("", "w y")
    kvviz.ggml.run(graph)


def test_only_the_chosen_one_of_several_is_computed() -> None:
    ctx, left, right, _ = _sum()
    graph = ctx.new_graph()
    graph.expand(left, compute=False).expand(right)
    assert [bool(node.flags & COMPUTE) for node in graph.nodes] == [False, True]
    assert set(kvviz.ggml.run(graph).outputs) == {"r"} and left.data is None


def test_what_only_got_a_place_is_computed_when_it_is_expanded_later() -> None:
    ctx, left, right, both = _sum()
    graph = ctx.new_graph().expand(both, compute=False)
    assert not any(node.flags & COMPUTE for node in graph.nodes)
    graph.expand(ctx.set_name(ctx.neg(both), "n"))
    assert _names(graph.nodes) == "l r m n"
    assert all(node.flags & COMPUTE for node in (left, right, both))


def test_another_order_of_the_same_nodes_runs_from_the_same_state() -> None:
    ctx = Context()
    k, row = ctx.new_tensor("f32", 2, name="k"), ctx.new_tensor("f32", 2, name="row", data=[1, 2])
    graph = ctx.new_graph().expand(ctx.cpy(row, k)).expand(ctx.set_name(ctx.scale(k, 3.0), "read"))
    state = kvviz.ggml.saved_state([graph])
    assert kvviz.ggml.run(graph).outputs["read"].tolist() == [3, 6]
    kvviz.ggml.restore_state(state)
    assert kvviz.ggml.run(graph.reordered(graph.nodes[::-1])).outputs["read"].tolist() == [0, 0]
