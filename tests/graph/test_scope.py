"""Module paths and blocks: every model must fall into parts that a person recognises."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.graph import Graph, load
from kvviz.graph.blocks import MOST, Block, blocks, narrow_sections
from kvviz.graph.module_paths import module_paths
from tests.graph.build import FILES, MODELS, file_id, model, node


def with_branches(root: Graph) -> list[Graph]:
    """The graph and its nodes' subgraphs."""
    return [root, *(g for n in root.nodes for g in n.subgraphs.values())]


def decoder_in(path: Path) -> Graph:
    """The main graph, or the branch that holds the decoder."""
    return next(g for g in reversed(with_branches(load(path))) if len(g.nodes) > 1)


def upward(parts: tuple[Block, ...]) -> list[tuple[str, str]]:
    """Pairs of block titles where the upper one reads a value of the lower one."""
    home = {name: i for i, block in enumerate(parts) for n in block.nodes for name in n.outputs if name}
    reads = [(i, home[name]) for i, b in enumerate(parts) for n in b.nodes for name in n.inputs if name in home]
    return [(parts[i].title, parts[j].title) for i, j in reads if j > i]


@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_blocks_of_real_models_hold_each_node_once_and_point_down(path: Path) -> None:
    for g in with_branches(load(path)):
        parts = blocks(g)
        assert sorted(n.name for b in parts for n in b.nodes) == sorted(n.name for n in g.nodes)
        assert max(len(b.nodes) for b in parts) <= MOST
        assert upward(parts) == []
        assert len({b.title for b in parts}) == len(parts)
        place = {id(n): i for i, n in enumerate(g.nodes)}
        for b in parts:
            assert [place[id(n)] for n in b.nodes] == sorted(place[id(n)] for n in b.nodes)
            assert all(n.scope[: len(b.path)] == b.path for n in b.nodes)


DECODERS = [p for p in FILES if "silero" not in str(p) and p.name != "encoder.onnx"]


@pytest.mark.parametrize("path", DECODERS, ids=file_id)
def test_decoders_fall_into_an_embedding_their_layers_and_a_head(path: Path) -> None:
    g = decoder_in(path)
    titles = [b.title for b in blocks(g)]
    # then the layers stand in order and in one piece each, between the embedding and the head
    layers = [int(t.split(" · ")[0].removeprefix("layer ")) for t in titles if t.startswith("layer ")]
    assert layers == sorted(layers)
    assert set(layers) == set(range(max(layers) + 1))
    # and the layer of a block is the one that its title names
    for block in blocks(g):
        named = block.title.split(" · ")[0] if block.title.startswith("layer ") else None
        assert (block.stack and f"{block.stack.name} {block.stack.number}") == named
    assert not titles[0].startswith("layer")
    assert not titles[-1].startswith("layer")
    assert any(word in titles[0] for word in ("embed", "wte"))
    assert any(word in titles[-1] for word in ("lm_head", "proj_out"))


@pytest.mark.parametrize("form", ["concat", "merged_if", "static_scatter_nd", "attention_23"])
def test_large_layers_are_shown_as_attention_and_mlp_alike_from_the_second_one_on(form: str) -> None:
    # The first one differs in fact: it computes what the exporters found to be common to all.
    g = decoder_in(MODELS / "storyteller" / form / "model.onnx")
    parts = {layer: [b for b in blocks(g) if b.title.startswith(f"layer {layer} ")] for layer in range(3)}
    for layer, found in parts.items():
        for part in ("self_attn", "mlp"):
            assert any(b.title.startswith(f"layer {layer} · {part}") for b in found)
    first, second = ([sorted(n.op_type for n in b.nodes) for b in parts[layer]] for layer in (1, 2))
    assert first == second


# Where paths come from

TORCH = "pkg.torch.onnx.name_scopes"
TENSORFLOW = "StatefulPartitionedCall/net/dense"
PATHS: list[tuple[dict[str, str], str, str, str]] = [
    ({TORCH: "['', 'm', 'm.model', 'm.model.h.0', 'm.model.h.0.mlp', 'mul_3']"}, "n", "o", "m/model/h.0/mlp"),
    ({"pkg.onnxscript.name_scopes": "['', 'model', 'layers.1', 'mlp', 'up']"}, "n", "o", "model/layers.1/mlp/up"),
    ({"namespace": ": Root/m: pkg.Model/m.layers.2: pkg.Layer/add_1: aten.add.Tensor"}, "n", "o", "m/layers.2"),
    ({"namespace": ": CausalLM/model: TextModel/embed_tokens: Embedding"}, "n", "o", "model/embed_tokens"),
    ({TORCH: "['', 'add']", "namespace": "a: b/c: d"}, "n", "o", ""),
    ({TORCH: "['_empty_nn_module_stack_from_metadata_hook', 'sym_size_int_7']"}, "n", "o", ""),
    ({TORCH: "__import__('os').system('true')"}, "n", "o", ""),
    ({TORCH: "[" * 5_000}, "n", "o", ""),
    ({TORCH: "[1, 2]"}, "n", "o", ""),
    ({"namespace": "/:/:/"}, "n", "o", ""),
    ({}, "/model/layers.0/self_attn/MatMul", "o", "model/layers.0/self_attn"),
    ({}, "model/layers/3/mlp/Mul_node_7", "o", "model/layers.3/mlp"),
    ({}, f"{TENSORFLOW}/MatMul;{TENSORFLOW}/Add", "o", TENSORFLOW),
    ({}, "n1", "/model/layers.0/attn/qkv/output_0", "model/layers.0/attn/qkv"),
    ({}, "n1", "v_model.layers.0.input_layernorm.RMSNormalization_3", "model/layers.0/input_layernorm"),
    ({}, "n1", "present.0.key", ""),
    ({}, "n1", "past_key_values.0.decoder.key", ""),
    ({}, "MatMul_12", "onnx::Add_34", ""),
    ({}, "optimum::if", "logits", ""),
    ({}, "/Add", "/Add_output_0", ""),
]


@pytest.mark.parametrize(("metadata", "name", "output", "path"), PATHS)
def test_metadata_and_names_tell_the_module(metadata: dict[str, str], name: str, output: str, path: str) -> None:
    assert module_paths([name], [[]], [[output]], [metadata]) == [tuple(path.split("/")) if path else ()]


def test_a_node_named_below_another_node_is_not_inside_of_it() -> None:
    names = ["/model/mask/Sub", "/model/mask/Sub/Cast"]
    assert module_paths(names, [[], []], [["a"], ["b"]], [{}, {}]) == [("model", "mask")] * 2


def chain(*names: str) -> Graph:
    """A chain of Negs with these names."""
    nodes = [node("Neg", f"v{i}", f"v{i + 1}", name=name) for i, name in enumerate(names)]
    return load(model(nodes, ["v0 float 1"], [f"v{len(names)} float 1"]))


def test_nodes_without_a_path_join_the_path_that_their_neighbours_share() -> None:
    # given a chain with nameless nodes: inside one module, between two of one layer, and between two modules
    names = ["/m/layers.0/a/X", "q", "/m/layers.0/a/Y", "r", "/m/layers.0/b/Z", "s", "/head/W"]
    inputs = [[], ["v0"], ["v1"], ["v2"], ["v3"], ["v4"], ["v5"]]
    found = module_paths(names, inputs, [[f"v{i}"] for i in range(7)], [{}] * 7)
    assert found[1] == ("m", "layers.0", "a")
    assert found[3] == ("m", "layers.0")
    assert found[5] == ()


# Blocks of graphs without modules, and of other orders


@pytest.mark.parametrize("length", [1, 2, 39, 60, 61, 75, 119, 400])
def test_a_graph_without_modules_is_cut_into_sections(length: int) -> None:
    parts = blocks(chain(*[""] * length))
    sizes = [len(b.nodes) for b in parts]
    assert sum(sizes) == length
    assert all(20 <= size <= MOST for size in sizes) or len(sizes) == 1
    if length > 1:
        assert parts[0].title == f"nodes 0–{sizes[0] - 1} · Neg…"
    else:
        assert parts[0].title == "Neg"


def test_sections_are_cut_where_few_values_are_alive() -> None:
    # given two bundles of 35 nodes that are all alive until the bundle's end, joined by one value
    nodes = []
    for start, source in ((0, "x"), (35, "v34")):
        nodes += [node("Neg", source, f"v{start + i}") for i in range(34)]
        nodes.append(node("Sum", " ".join(f"v{start + i}" for i in range(34)), f"v{start + 34}"))
    parts = blocks(load(model(nodes, ["x float 1"], ["v69 float 1"])))
    assert [len(b.nodes) for b in parts] == [35, 35]


@given(st.lists(st.integers(0, 200), min_size=1, max_size=200), st.integers(10, 40))
def test_sections_cover_the_list_and_keep_to_the_limit(lengths: list[int], target: int) -> None:
    needs = [[max(0, i - length)] if i else [] for i, length in enumerate(lengths)]
    most = 3 * target // 2
    found = narrow_sections(needs, target, most)
    assert [a for a, _ in found[1:]] == [b for _, b in found[:-1]]
    assert (found[0][0], found[-1][1]) == (0, len(needs))
    assert all(b - a <= max(most, 1) for a, b in found) or len(needs) < target


def test_blocks_follow_a_given_order() -> None:
    g = load(MODELS / "o07_genai_llama_int4" / "model.onnx")
    # given an order in which the embedding comes before the mask, as another schedule might run them
    order = sorted(g.nodes, key=lambda n: (n.scope[:2] != ("model", "embed_tokens"), g.nodes.index(n)))
    parts = blocks(g, order)
    assert parts[0].nodes[0].op_type == "Gather"
    assert {b.title for b in parts} >= {"layer 0", "layer 1", "lm_head"}
    assert upward(parts) == []


def test_two_stacks_of_layers_are_told_apart() -> None:
    names = [f"/{stack}/layers.{k}/Op{i}" for stack in ("encoder", "decoder") for k in range(2) for i in range(10)]
    titles = [b.title for b in blocks(chain(*names))]
    assert titles == ["encoder layer 0", "encoder layer 1", "decoder layer 0", "decoder layer 1"]
    assert blocks(load(model([], ["x float 1"], ["x float 1"]))) == ()


def test_a_shape_node_far_ahead_of_its_layer_does_not_pull_the_layer_up() -> None:
    # given two layers, where the first node of all belongs to the second one
    names = ["/layers.1/Shape", *(f"/layers.{k}/Op{i}" for k in range(2) for i in range(9))]
    nodes = [node("Shape", "x", "s", name=names[0])]
    nodes += [node("Neg", "x" if i == 1 else f"v{i - 1}", f"v{i}", name=names[i]) for i in range(1, 19)]
    nodes.append(node("Reshape", "v18 s", "y", name="/layers.1/Reshape"))
    parts = blocks(load(model(nodes, ["x float 1"], ["y float 1"])))
    assert [b.title for b in parts] == ["layer 0", "layer 1"]
    assert len(parts[1].nodes) == 11


@pytest.mark.parametrize("outside", [1, 2, 5])
def test_nodes_between_two_halves_of_a_module_go_with_it(outside: int) -> None:
    halves = [f"/m/Relu_{i}" for i in range(10)]
    between = [f"/Neg_{i}" for i in range(outside)]
    (only,) = blocks(chain(*halves[:5], *between, *halves[5:]))
    assert (only.title, [n.name for n in only.nodes]) == ("m", [*halves[:5], *between, *halves[5:]])


def test_a_small_module_that_feeds_such_nodes_stays_before_the_module() -> None:
    # given a module whose halves are joined by a sum that also reads a small module, which ends late elsewhere
    nodes = [node("Neg", f"v{i}", f"v{i + 1}", name=f"/m/A{i}") for i in range(5)]
    nodes += [node("Neg", "x", "s", name="/small/First"), node("Add", "v5 s", "w0", name="/Add")]
    nodes += [node("Neg", f"w{i}", f"w{i + 1}", name=f"/m/B{i}") for i in range(5)]
    nodes += [node("Neg", "w5", "y", name="/small/Last")]
    parts = blocks(load(model(nodes, ["v0 float 1", "x float 1"], ["y float 1"])))
    # then all are there and no value flows upward
    assert sorted(n.name for b in parts for n in b.nodes) == sorted(n.name for n in nodes)
    assert upward(parts) == []


@st.composite
def named_nodes(draw: st.DrawFn) -> list[tuple[str, list[int]]]:
    """Module names in any order, and for each node the earlier nodes (or the input, 0) that it reads."""
    modules = draw(st.lists(st.sampled_from(["", "/m", "/m/a", "/h.0", "/h.1", "/h.1/mlp", "/k"]), min_size=1))
    runs = draw(st.lists(st.tuples(st.sampled_from(modules), st.integers(1, 12)), min_size=1, max_size=9))
    names = [module for module, length in runs for _ in range(length)]
    return [
        (f"{module}/Op{i}", draw(st.lists(st.integers(max(0, i - 9), i), min_size=1, max_size=2)))
        for i, module in enumerate(names)
    ]


@given(named_nodes())
def test_any_hierarchy_of_names_falls_into_blocks(drawn: list[tuple[str, list[int]]]) -> None:
    nodes = [
        node("Sum", " ".join(f"v{j}" for j in reads), f"v{i + 1}", name=name) for i, (name, reads) in enumerate(drawn)
    ]
    parts = blocks(load(model(nodes, ["v0 float 1"], [f"v{len(nodes)} float 1"])))
    assert sorted(n.name for b in parts for n in b.nodes) == sorted(n.name for n in nodes)
    assert max(len(b.nodes) for b in parts) <= MOST
