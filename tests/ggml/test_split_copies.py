"""A copy across back ends is made once, so a view that is read again after its root was written is read as it was.

No device was run: this is the scheduler's source as a model, and its sentences say so.
"""

import pytest

from kvviz.errors import KvvizError
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.context import Context
from kvviz.ggml.graph.tensor import Tensor
from kvviz.ggml.order.graph_recipe import run
from kvviz.ggml.order.split_copies import split_graph


def _twice(fresh: bool) -> tuple[ComputeGraph, dict[Tensor, str]]:
    """GPU reads a view, CPU writes its root, GPU reads the view, or a fresh one, again."""
    ctx = Context()
    root = ctx.new_tensor("f32", 4, name="root", data=1)
    row = ctx.new_tensor("f32", 4, name="row", data=7)
    view = ctx.set_name(ctx.view_1d(root, 4, 0), "view")
    first = ctx.set_name(ctx.scale(view, 1.0), "first")
    write = ctx.set_name(ctx.cpy(row, ctx.view_1d(root, 4, 0)), "write")
    again = ctx.set_name(ctx.view_1d(root, 4, 0), "fresh") if fresh else view
    second = ctx.set_name(ctx.scale(again, 1.0), "second")
    graph = ctx.new_graph("twice").expand(first).expand(write).expand(second)
    return graph, {first: "GPU", second: "GPU"}


def test_the_same_view_is_read_as_it_was_when_it_was_copied() -> None:
    graph, backends = _twice(fresh=False)
    found = split_graph(graph, backends)
    assert [(part.backend, [one.name for one in part.copied]) for part in found.splits] == [
        ("CPU", []),
        ("GPU", ["view"]),
        ("CPU", []),
        ("GPU", []),
    ]
    assert run(found.graph).outputs["second"].tolist() == [1] * 4
    (stale,) = found.stale
    assert (stale.source.name, stale.write.name, stale.read.name, stale.bytes) == ("view", "write", "second", 16)
    assert "model of ggml's scheduler" in stale.sentence


def test_a_fresh_view_is_copied_anew() -> None:
    graph, backends = _twice(fresh=True)
    found = split_graph(graph, backends)
    assert found.stale == ()
    assert [node.name for node in found.graph.nodes if "#" in node.name] == ["GPU#view#0", "GPU#fresh#0"]
    assert run(found.graph).outputs["second"].tolist() == [7] * 4


def test_what_lies_in_a_root_is_where_the_root_is() -> None:
    graph, _ = _twice(fresh=False)
    write = next(node for node in graph.nodes if node.name == "write")
    with pytest.raises(KvvizError, match="'write' lies in 'root' on CPU: it cannot be on GPU"):
        split_graph(graph, {write: "GPU"})


def test_a_weight_of_another_back_end_begins_a_split_behind_other_copies() -> None:
    # given: by a split of its own, the copy of a weight is gone before the next one is made
    ctx = Context()
    x = ctx.new_tensor("f32", 4, 4, name="x", data=1)
    products: list[Tensor] = []
    for i in range(3):
        weight = ctx.new_tensor("f32", 4, 4, name=f"w{i}", role="weight", data=1)
        products.append(ctx.set_name(ctx.mul_mat(weight, products[-1] if products else x), f"m{i}"))
    found = split_graph(ctx.new_graph().expand(products[-1]), dict.fromkeys(products, "GPU"))
    assert [[one.name for one in part.copied] for part in found.splits] == [["w0", "x"], ["w1"], ["w2"]]
