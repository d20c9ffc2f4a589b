"""The list is what ``ggml_build_forward_expand`` leaves: post-order, each tensor once, later calls behind earlier."""

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
