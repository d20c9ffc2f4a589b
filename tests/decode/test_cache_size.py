"""Dimensions of caches that a model leaves open, told by the graph or by the configuration beside it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import kvviz
from kvviz.errors import InputError
from tests.decode.small import DECODERS, Small, small
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


def behind_an_unknown_shape(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Embeddings whose rank no inference knows: only the weights of the projections tell a width."""
    for made in proto.graph.node:
        if made.op_type == "Gather" and made.output[0] == "/model/embed_tokens/Gather/output_0":
            made.output[0] = "looked_up"
            shape = helper.make_node("Shape", ["looked_up"], ["its_shape"])
            size = helper.make_node("Compress", ["its_shape", "all_of_it"], ["same_shape"])
            again = helper.make_node("Reshape", ["looked_up", "same_shape"], ["/model/embed_tokens/Gather/output_0"])
            place = list(proto.graph.node).index(made) + 1
            for node in (again, size, shape):
                proto.graph.node.insert(place, node)
            proto.graph.initializer.append(numpy_helper.from_array(np.ones(3, bool), "all_of_it"))
            return proto
    raise AssertionError("no embedding")


VARIANTS: dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "packed": lambda proto: proto,
    "split": split_after_qkv,
    "packed, shapes unknown": behind_an_unknown_shape,
    "split, shapes unknown": lambda proto: behind_an_unknown_shape(split_after_qkv(proto)),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_genai_model_decodes_without_its_configuration(variant: str) -> None:
    graph = kvviz.load(VARIANTS[variant](genai()))
    trace = kvviz.decode(graph, REFERENCE["prompt"], 8)
    assert trace.tokens == REFERENCE["tokens"][:8].tolist()
    assert [outs.shape for name, outs in trace.outputs.items() if name.startswith("present")] == [(1, 2, 11, 16)] * 4


def untold(folder: Path, config: Any) -> Path:
    """A decoder whose graph does not tell the size of its caches, with a configuration beside it."""
    proto = small("concat").proto
    for value in proto.graph.input:
        if value.name.startswith("past"):
            value.type.tensor_type.shape.dim[3].dim_param = "head_size"
    proto = onnx.ModelProto.FromString(proto.SerializeToString())
    nodes = []
    for made in proto.graph.node:
        if made.op_type == "Reshape":
            # A shape that is computed: nothing can be inferred behind it.
            shape = f"{made.output[0]}_shape"
            nodes.append(helper.make_node("Compress", [made.input[1], f"{shape}_all"], [shape]))
            length = 4 if made.input[1] == "heads" else 3
            proto.graph.initializer.append(numpy_helper.from_array(np.ones(length, bool), f"{shape}_all"))
            made.input[1] = shape
        nodes.append(made)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    for value in proto.graph.output:
        if value.name.startswith("present"):
            value.type.tensor_type.shape.dim[3].dim_param = "head_size"
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
    decoder: Small = small(name)
    proto = onnx.ModelProto.FromString(decoder.proto.SerializeToString())
    for value in (*proto.graph.input, *proto.graph.output):
        if value.name.startswith(("past", "present")):
            for axis, dim in ((1, "heads"), (3, "size")):
                value.type.tensor_type.shape.dim[axis].dim_param = dim
    trace = kvviz.decode(kvviz.load(proto), [3, 1, 4], 5, **decoder.options)
    assert trace.tokens == kvviz.decode(kvviz.load(decoder.proto), [3, 1, 4], 5, **decoder.options).tokens
