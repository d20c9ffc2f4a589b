"""Dimensions of caches that a model leaves open, told by the graph or by the configuration beside it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import kvviz
from kvviz.errors import InputError
from tests.decode.small import DECODERS, small
from tests.graph.build import MODELS

GENAI = MODELS / "o07_genai_llama_int4"
REFERENCE = np.load(GENAI / "ref.npz")
CONFIG: Any = {"model": {"decoder": {"head_size": 16}}}


def genai() -> onnx.ModelProto:
    return onnx.load(GENAI / "model.onnx")


def split_after_qkv(proto: onnx.ModelProto, sizes: str = "input") -> onnx.ModelProto:
    """The packed projections divided by a Split each, as some exporters write them."""
    nodes = []
    for made in proto.graph.node:
        if made.op_type == "GroupQueryAttention":
            parts = [f"{made.name}/{c}" for c in "qkv"]
            nodes.append(helper.make_node("Split", [made.input[0], "qkv_sizes"], parts, axis=-1))
            made.input[:3] = parts
        nodes.append(made)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    proto.graph.initializer.append(numpy_helper.from_array(np.array([64, 32, 32]), "qkv_sizes"))
    return proto


def unknown_shapes(proto: onnx.ModelProto, ranks: Mapping[str, int]) -> onnx.ModelProto:
    """A model in which some values are reshaped to a shape that is computed, so that no inference knows their ranks."""
    nodes = []
    for made in proto.graph.node:
        nodes.append(made)
        name = made.output[0]
        if name in ranks:
            made.output[0] = f"{name}_known"
            nodes.append(helper.make_node("Shape", [f"{name}_known"], [f"{name}_shape"]))
            nodes.append(helper.make_node("Compress", [f"{name}_shape", f"{name}_all"], [f"{name}_same"]))
            nodes.append(helper.make_node("Reshape", [f"{name}_known", f"{name}_same"], [name]))
            proto.graph.initializer.append(numpy_helper.from_array(np.ones(ranks[name], bool), f"{name}_all"))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    return proto


# Only the weights of the projections tell a width.
EMBEDDED = {"/model/embed_tokens/Gather/output_0": 3}
VARIANTS: dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "packed": lambda proto: proto,
    "split": split_after_qkv,
    "packed, shapes unknown": lambda proto: unknown_shapes(proto, EMBEDDED),
    "split, shapes unknown": lambda proto: unknown_shapes(split_after_qkv(proto), EMBEDDED),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_genai_model_decodes_without_its_configuration(variant: str) -> None:
    graph = kvviz.load(VARIANTS[variant](genai()))
    trace = kvviz.decode(graph, REFERENCE["prompt"], 8)
    assert trace.tokens == REFERENCE["tokens"][:8].tolist()
    assert [outs.shape for name, outs in trace.outputs.items() if name.startswith("present")] == [(1, 2, 11, 16)] * 4


def open_dims(name: str, dims: dict[int, str]) -> onnx.ModelProto:
    """A decoder whose caches have no declared length along some axes."""
    proto = onnx.ModelProto.FromString(small(name).proto.SerializeToString())
    for value in (*proto.graph.input, *proto.graph.output):
        for axis, dim in dims.items() if value.name.startswith(("past", "present")) else ():
            value.type.tensor_type.shape.dim[axis].dim_param = dim
    return proto


def untold(folder: Path, config: Any) -> Path:
    """A decoder whose graph does not tell the size of its caches, with a configuration beside it."""
    proto = unknown_shapes(open_dims("concat", {3: "head_size"}), {"qr": 4, "kr": 4, "vr": 4, "y3": 3})
    folder.mkdir(exist_ok=True)
    onnx.save(proto, folder / "model.onnx")
    if config is not None:
        text = config if isinstance(config, str) else json.dumps(config)
        (folder / "genai_config.json").write_text(text, "utf-8", "surrogateescape")
    return folder / "model.onnx"


@pytest.mark.parametrize("where", ["plain", 'it\'s a "folder"', "línk"])
@pytest.mark.parametrize("way", ["absolute", "relative", "link", "moved away"])
def test_the_configuration_beside_the_model_is_found(
    where: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = untold(tmp_path / where, CONFIG)
    monkeypatch.chdir(path.parent)
    if way == "link":
        (tmp_path / "blob").write_bytes(path.read_bytes())
        path.unlink()
        path.symlink_to(tmp_path / "blob")
    graph = kvviz.load("model.onnx" if way in ("relative", "moved away") else path)
    if way == "moved away":
        monkeypatch.chdir(tmp_path)
    trace = kvviz.decode(graph, [3, 1, 4], 5)
    assert trace.tokens == kvviz.decode(kvviz.load(small("concat").proto), [3, 1, 4], 5).tokens


@pytest.mark.parametrize(
    "config",
    [
        None,
        "",
        "[" * 100_000,
        "\udcff\udcfe",
        [],
        {"model": 5},
        {"model": {"decoder": {"head_size": "16"}}},
        {"model": {"decoder": {"head_size": -16}}},
        {"model": {"decoder": {"head_size": True}}},
    ],
    ids=["missing", "empty", "nested", "no text", "a list", "a number", "text", "negative", "a truth"],
)
def test_a_configuration_that_tells_nothing_leaves_one_clear_error(config: Any, tmp_path: Path) -> None:
    graph = kvviz.load(untold(tmp_path, config))
    with pytest.raises(InputError, match=r"^cache 'past_key_values.0.key' has a dimension 'head_size' that .* inputs="):
        kvviz.decode(graph, [3, 1, 4], 5)


@pytest.mark.parametrize("name", [name for name, make in DECODERS.items() if make().protocol == "growing"])
def test_heads_and_their_size_follow_from_the_graph_of_every_growing_cache(name: str) -> None:
    # given: a decoder that declares no more than the ranks of its caches
    options = small(name).options
    trace = kvviz.decode(kvviz.load(open_dims(name, {1: "heads", 3: "size"})), [3, 1, 4], 5, **options)
    assert trace.tokens == kvviz.decode(kvviz.load(small(name).proto), [3, 1, 4], 5, **options).tokens
