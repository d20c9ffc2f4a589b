"""The orders that ggml's back ends give to four small graphs, and the pairs that they break.

Expected orders: ports of the back ends' functions, run on these graphs (ggml snapshot d99724f, llama.cpp#27805).
t = unary(x), kcur = W·t, sr = set_rows(K, kcur), kv = view(K), kq = kv·q.
"""

import numpy as np
import pytest

import kvviz
from kvviz.errors import KvvizError
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.context import Context
from kvviz.ggml.graph.tensor import Tensor
from kvviz.ggml.order.graph_recipe import run
from kvviz.ggml.order.reorder_rules import new_order
from kvviz.ggml.order.split_copies import split_graph
from tests.ggml.recordings import DATA
from tests.ggml.seed_graphs import leaf, op


def _graphs() -> dict[str, ComputeGraph]:
    cache, x, w, q = leaf("K", 4, 8, role="state"), leaf("x", 4, 2), leaf("W", 4, 4, role="weight"), leaf("q", 4, 1)
    index = leaf("k_idxs", 2, type_="i64")
    index.values = np.array([3, 4])
    t = op("t", "UNARY", x, ne=(4, 2))
    t2 = op("t2", "UNARY", t, ne=(4, 2))
    kcur = op("kcur", "MUL_MAT", w, t, ne=(4, 2))

    kv = op("kv", "VIEW", cache, ne=(4, 8), view_of=cache)
    sr, sr2 = (op("sr", "SET_ROWS", rows, index, cache, ne=(4, 8), view_of=cache) for rows in (kcur, t))
    kq, kq_leaf = op("kq", "MUL_MAT", kv, q, ne=(8, 1)), op("kq", "MUL_MAT", cache, q, ne=(8, 1))
    rd = op("rd", "MUL_MAT", kv, t2, ne=(8, 2))
    found = {}
    for name, nodes in {
        "llama": [t, kcur, sr, kv, kq],
        "view first": [kv, t, kcur, sr, kq],
        "leaf": [t, kcur, sr, kq_leaf],
        "read, overwrite": [kv, t, t2, rd, sr2],
    }.items():
        found[name] = graph = ComputeGraph(name)
        graph.nodes, graph.leafs = nodes, [x, w, q, cache, index]
    return found


# Graph, rule, order (if it is another one) and kinds of the pairs that it breaks.
EXPECTED: list[tuple[str, str, str, list[str]]] = [
    *((name, rule, "", []) for name in _graphs() for rule in ("vulkan fixed", "metal", "exact")),
    ("llama", "vulkan", "t kcur sr kv kq", []),
    ("view first", "vulkan", "kv t kcur kq sr", ["RAW"]),
    ("view first", "none", "", ["RAW"]),
    ("leaf", "vulkan", "t kq kcur sr", ["RAW"]),
    ("leaf", "none", "", ["RAW"]),
    ("read, overwrite", "vulkan", "kv t t2 sr rd", ["WAR"]),
    ("read, overwrite", "none", "", ["WAR"]),
]


@pytest.mark.parametrize(("name", "rule", "expected", "kinds"), EXPECTED)
def test_each_rule_gives_the_order_of_its_back_end_and_breaks_what_that_breaks(
    name: str, rule: str, expected: str, kinds: list[str]
) -> None:
    graph = _graphs()[name]
    order = new_order(graph, rule)
    assert not expected or " ".join(node.name for node in order) == expected
    assert [pair.kind for pair in kvviz.hazards(graph.reordered(order)) if pair.broken] == kinds


def test_cuda_interleaves_the_three_branches_behind_attn_norm_unless_they_write_one_root() -> None:
    x = leaf("x", 4)
    norm = op("attn_norm-0", "RMS_NORM", x, ne=(4,))
    q, k, v = (op(name, "MUL_MAT", leaf(f"w{name}", 4, 4), norm, ne=(4,)) for name in "qkv")
    q2, k2 = op("q2", "ROPE", q, ne=(4,)), op("k2", "ROPE", k, ne=(4,))
    graph = ComputeGraph("qkv").expand(op("attn", "FLASH_ATTN_EXT", q2, k2, v, ne=(4,)))
    assert [node.name for node in graph.nodes] == ["attn_norm-0", "q", "q2", "k", "k2", "v", "attn"]
    assert [node.name for node in new_order(graph, "cuda")] == ["attn_norm-0", "q", "k", "v", "q2", "k2", "attn"]
    k.view_src = v.view_src = leaf("K", 4, 8, role="state")
    assert new_order(graph, "cuda") == graph.nodes


def test_vulkan_takes_what_it_fuses_together() -> None:
    x, w = leaf("x", 4), leaf("w", 4)
    a = op("a", "UNARY", x, ne=(4,))
    norm = op("norm", "RMS_NORM", a, ne=(4,))
    mul = op("mul", "MUL", norm, w, ne=(4,))
    other = op("other", "UNARY", x, ne=(4,))
    graph = ComputeGraph("fused").expand(mul).expand(other)
    assert [node.name for node in new_order(graph, "vulkan")] == ["a", "other", "norm", "mul"]


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("hexagon", "there is no re-order rule 'hexagon'"),
        ([1, 0, 2, 3, 4], "MUL_MAT 'kcur' at place 0 reads UNARY 't' at place 1; put UNARY 't' first"),
        ([0, 1, 2, 3], "MUL_MAT 'kq' at 4 is not in it"),
        ([0, 0, 1, 2, 3], "has UNARY 't' twice, at places 0 and 1"),
        ([0, 1, 2, 3, 9], "9 is not a node"),
        (["t"], "'t' is not a node"),
        ([leaf("stray", 1)], "'stray' at place 0 of the order is not a node"),
    ],
)
def test_an_order_that_cannot_be_is_refused_with_what_is_wrong(order: object, said: str) -> None:
    with pytest.raises(KvvizError, match=said):
        new_order(_graphs()["llama"], order)  # type: ignore[arg-type]


def test_the_fixed_vulkan_rule_gives_random_graphs_the_order_that_ggml_gives_them() -> None:
    found = kvviz.ggml.load(DATA / "orders" / "vulkan.jsonl.gz")
    for graph, order in zip(found.graphs, found.meta["vulkan_orders"], strict=True):
        places = {node: place for place, node in enumerate(graph.nodes)}
        assert [places[node] for node in new_order(graph, "vulkan fixed")] == order


# A copy across back ends is made once, so a view that is read again after its root was written is read as it was.
# No device was run: this is the scheduler's source as a model, and its sentences say so.
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


def test_the_same_view_is_read_as_it_was_when_it_was_copied_and_a_fresh_one_is_copied_anew() -> None:
    graph, backends = _twice(fresh=False)
    found = split_graph(graph, backends)
    copied = [(part.backend, [one.name for one in part.copied]) for part in found.splits]
    assert copied == [("CPU", []), ("GPU", ["view"]), ("CPU", []), ("GPU", [])]
    assert run(found.graph).outputs["second"].tolist() == [1] * 4
    (stale,) = found.stale
    assert (stale.source.name, stale.write.name, stale.read.name, stale.bytes) == ("view", "write", "second", 16)
    assert "model of ggml's scheduler" in stale.sentence
    write = next(node for node in graph.nodes if node.name == "write")
    with pytest.raises(KvvizError, match="'write' lies in 'root' on CPU: it cannot be on GPU"):
        split_graph(graph, {write: "GPU"})
    found = split_graph(*_twice(fresh=True))
    assert found.stale == ()
    assert [node.name for node in found.graph.nodes if "#" in node.name] == ["GPU#view#0", "GPU#fresh#0"]
    assert run(found.graph).outputs["second"].tolist() == [7] * 4


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
