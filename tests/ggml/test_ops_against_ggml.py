"""Each op, and an attention layer, has the nodes and numbers of real ggml 0.25.3 on the CPU and of plain attention."""

import json
import re
from base64 import b64decode
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.ggml.graph.context import Context
from kvviz.ggml.graph.tensor import Tensor
from kvviz.ggml.graph.tensor_data import from_q8_0, read, stored, to_q8_0
from kvviz.ggml.order.graph_session import KERNELS, Executor
from tests.ggml.attention_layer import AttentionLayer, LayerForm, plain_attention

from .op_cases import CASES, quants
from .recordings import DATA, built

FILE = json.loads((DATA / "op_cases.json").read_text("utf-8"))
RECORDED = FILE["cases"]

# Of the largest number: 8-bit quants may differ by one, f16 results by their last bit, sums by their order.
LOOSE = {"q8_0": 8e-3, "bf16": 4e-3, "f16": 1e-3, "f32": 2e-6}


def _tolerance(name: str, node: Tensor) -> float:
    if "q8_0" in name and node.op in ("CPY", "SET_ROWS", "MUL_MAT", "FLASH_ATTN_EXT"):
        return LOOSE["q8_0"]
    if node.op == "FLASH_ATTN_EXT" and "f16" in name:
        return 1e-4  # where the last bit of one f16 sum flips
    if "GELU" in node.desc:
        return LOOSE["f16"]  # out of a table of f16
    if node.op in ("CPY", "CONT", "DUP", "SET", "ACC", "SET_ROWS", "GET_ROWS", "REPEAT", "CONCAT"):
        return 0.0
    return LOOSE.get(node.type, 0.0)


@pytest.mark.parametrize("name", CASES)
def test_nodes_and_numbers_are_those_that_ggml_left(name: str) -> None:
    expected = RECORDED[name]
    ctx = Context()
    graph = ctx.new_graph(name)
    for output in CASES[name](ctx):
        graph.expand(output)
    places = {node: i for i, node in enumerate(graph.nodes)}
    for one, node in zip(built(graph.nodes, lambda tensor: places.get(tensor, tensor.name)), expected, strict=True):
        assert (
            one | {"op_params": [*one["op_params"], *[0] * (16 - len(one["op_params"]))]} | {"bytes": node["bytes"]}
            == node
        )
    executor = Executor(name, values=0)
    executor.run(graph)
    for node, one in zip(graph.nodes, expected):
        raw = b64decode(one["bytes"])
        assert len(raw) == node.nbytes
        theirs = Tensor("", node.type, node.ne, node.nb, data=np.frombuffer(raw, np.uint8))
        tolerance = _tolerance(name, node)
        if tolerance == 0:
            assert (stored(node) == stored(theirs)).all(), node.op
        else:
            a, b = read(node), read(theirs)
            largest = np.abs(b[np.isfinite(b)]).max(initial=0)
            assert np.allclose(a, b, rtol=0, atol=tolerance * largest, equal_nan=True), node.op


def test_blocks_of_q8_0_are_byte_for_byte_those_of_the_reference() -> None:
    assert to_q8_0(quants()).tobytes() == b64decode(FILE["q8_0"])


def test_every_kernel_is_held_to_ggml() -> None:
    assert {node["op"] for nodes in RECORDED.values() for node in nodes} >= KERNELS.keys()


LAYERS = json.loads((DATA / "attention_layers.json").read_text("utf-8"))
SMOLLM2 = LayerForm(heads=9, kv_heads=3, head_dim=64, kv_size=256, freq_base=100000.0, n_ctx_orig=8192)


def _plain(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without numbers of unnamed nodes, which hang on the place in the whole model."""

    def name(text: str) -> str:
        return re.sub(r"node_\d+", "node", text)

    return [
        {**node, "name": name(node["name"]), "src": [name(one) for one in node["src"]], "flags": 0}
        | {"view_src": node["view_src"] and name(node["view_src"])}
        for node in nodes
    ]


@pytest.mark.parametrize("case", LAYERS)
def test_a_layer_has_the_nodes_of_llama_cpp_in_its_order(case: str) -> None:
    expected = LAYERS[case]
    layer = AttentionLayer(Context(), replace(SMOLLM2, flash="flash" in case))
    positions = expected["positions"]
    layer.positions = dict(zip(range(positions[0]), range(positions[0])))
    graph = layer.graph(np.zeros((len(positions), SMOLLM2.width)), positions)
    assert _plain(built(graph.nodes)) == _plain(expected["nodes"])
    held = {leaf.name: leaf for leaf in graph.leafs}
    for leaf in expected["leafs"]:
        if "values" in leaf:
            mine = held[leaf["name"]]
            assert mine.values is not None and mine.values.tolist() == leaf["values"]
            assert (mine.type, list(mine.ne), mine.flags) == (leaf["type"], leaf["ne"], leaf["flags"])


@pytest.mark.parametrize(("flash", "type_"), [(False, "f16"), (True, "f16"), (True, "q8_0")])
def test_decode_steps_give_what_attention_over_all_tokens_gives(flash: bool, type_: str) -> None:
    def through(x: np.ndarray) -> np.ndarray:
        return x.astype(np.float16) if type_ == "f16" else from_q8_0(to_q8_0(x.astype(np.float32)))

    form = LayerForm(head_dim=32, flash=flash, type_k=type_, type_v=type_)
    rng = np.random.default_rng(4)
    x = rng.normal(size=(9, form.width)).astype(np.float32)
    sizes = {"q": form.width, "k": form.kv_width, "v": form.kv_width, "output": form.width}
    weights = {key: rng.normal(size=(n, form.width)).astype(np.float32) / 8 for key, n in sizes.items()}
    layer = AttentionLayer(Context(), form, weights)
    results = []
    for tokens in ([0, 1, 2, 3, 4], [5], [6], [7, 8]):
        found = kvviz.ggml.run(layer.graph(x[tokens], tokens)).outputs["attn_out-0"]
        results.append(found.reshape(len(tokens), -1))
    expected = plain_attention(x, weights, form.head_dim, form.freq_base, through)
    # q8_0 rounds Q to 8 bits as well; else only f16 stands between the two.
    loose = 0.03 if type_ == "q8_0" else 2e-3
    assert np.abs(np.concatenate(results) - expected).max() < loose * np.abs(expected).max()


def test_nan_in_unused_cells_spoils_products_but_not_flash_attention() -> None:
    spoiled = []
    for flash in (False, True):
        form = LayerForm(flash=flash)
        weights = {"q": np.eye(32), "k": np.eye(16, 32), "v": np.eye(16, 32), "output": np.eye(32)}
        for fill in (0.0, np.nan):
            layer = AttentionLayer(Context(), form, weights)
            for cache in (layer.cache_k, layer.cache_v):
                kvviz.ggml.tensor_set(cache, fill)
            out = kvviz.ggml.run(layer.graph(np.ones((1, 32)), [0])).outputs["attn_out-0"]
            spoiled.append(bool(np.isnan(out).any()))
    assert spoiled == [False, True, False, False]
