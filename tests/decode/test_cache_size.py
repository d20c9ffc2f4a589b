"""What a model is, and what sizes its caches have, by its graph alone or by the configuration beside it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import kvviz
from kvviz.decode.model_kind import model_kind
from kvviz.errors import InputError
from tests.decode.small import DECODERS, small
from tests.engine.graphs import graph_of, numbers
from tests.graph.build import MODELS, model, node

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


def _tagger(classes: int, direction: str = "bidirectional") -> Any:
    """Characters to classes, one for each, by a recurrent layer."""
    ways = 2 if direction == "bidirectional" else 1
    shapes = {"E": (100, 8), "W": (ways, 32, 8), "R": (ways, 32, 8), "O": (8 * ways, classes)}
    weights: dict[str, Any] = {name: numbers(*shape) for name, shape in shapes.items()}
    nodes = [
        node("Gather", "E chars", "e"),
        node("Transpose", "e", "first", perm=[1, 0, 2]),
        node("LSTM", "first W R", "y", hidden_size=8, direction=direction),
        node("Transpose", "y", "back", perm=[2, 0, 1, 3]),
        node("Reshape", "back flat", "h"),
        node("MatMul", "h O", "tags"),
    ]
    outputs = [f"tags float batch length {classes}"]
    return model(nodes, ["chars int64 batch length"], outputs, **weights, flat=np.array([0, 0, 8 * ways]))


@pytest.mark.parametrize("direction", ["bidirectional", "forward"])
def test_what_scores_its_own_tokens_decodes_if_none_sees_those_after_it(direction: str) -> None:
    for classes in (2, 27, 101):
        graph = kvviz.load(_tagger(classes, direction))
        assert not model_kind(graph).decodes
        why = f"token classifier .* reads 100 tokens and scores {classes} classes; use kvviz.run"
        with pytest.raises(InputError, match=why):
            kvviz.decode(graph, [1, 2, 3], 3)
    assert model_kind(kvviz.load(_tagger(100, "forward"))).name == "a text decoder"
    graph = kvviz.load(_tagger(100))
    assert model_kind(graph).name == "a masked language model"
    with pytest.raises(InputError, match="nothing in the graph hides later tokens from earlier ones"):
        kvviz.decode(graph, [1, 2, 3], 3)


def _bert(*heads: Any, output: str) -> Any:
    """A model of tokens, segments and a mask whose inputs have no telling names."""
    weights: dict[str, Any] = {"E": numbers(60, 8), "T": numbers(2, 8)}
    nodes = [
        node("Gather", "T b", "t"),
        node("Gather", "E a", "e"),
        node("Add", "e t", "x"),
        node("Cast", "c", "real", to=1),
        node("Unsqueeze", "real last", "column"),
        node("Mul", "x column", "h"),
        *heads,
    ]
    inputs = [f"{name} int64 batch seq" for name in "bac"]
    more = {"last": np.array([2]), "axis": np.array([1]), "O": np.ones((8, 3), np.float32), "V": weights["E"].T.copy()}
    return model(nodes, inputs, [output], **weights, **more)


POOLED = [node("ReduceMean", "h axis", "p", keepdims=0), node("MatMul", "p O", "y")]


@pytest.mark.parametrize(
    ("heads", "output", "name"),
    [
        ([node("Identity", "h", "last_hidden_state")], "last_hidden_state float batch seq 8", "an embedding model"),
        ([node("MatMul", "h O", "y")], "y float batch seq 3", "a token classifier"),
        (POOLED, "y float batch 3", "a text classifier"),
        ([node("MatMul", "h V", "y")], "y float batch seq 60", "a masked language model"),
    ],
)
def test_of_several_inputs_the_tokens_are_those_looked_up_in_the_largest_table(
    heads: list[Any], output: str, name: str
) -> None:
    graph = kvviz.load(_bert(*heads, output=output))
    kind = model_kind(graph)
    assert (kind.name, kind.reads_text, kind.decodes) == (name, True, False)
    kvviz.run(graph, kvviz.inputs(graph))
    with pytest.raises(InputError):
        kvviz.decode(graph, [1, 2], 2)


# -- recurrent states -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("state", "stateN"), ("past", "present"), ("x1", "y1"), ("hidden", "output_hidden")])
@pytest.mark.parametrize("after", ["2,batch,128", "2,n,128", "?,?,?"])
def test_a_recurrent_state_of_several_layers_is_a_state_and_no_growing_cache(
    names: tuple[str, str], after: str
) -> None:
    # given two layers whose states come and go in one tensor
    graph = graph_of(f"""g (float[t,batch,64] x, float[2,batch,128] {names[0]}, float[1,384,64] W, float[1,384,128] W2,
        float[1,384,128] R) => (float[t,1,batch,128] y, float[{after}] {names[1]}) <int64[1] axis = {{1}}> {{
        one, two = Split <axis = 0, num_outputs = 2> ({names[0]})
        first, c = GRU <hidden_size = 128> (x, W, R, , , one)  between = Squeeze (first, axis)
        y, d = GRU <hidden_size = 128> (between, W2, R, , , two)  {names[1]} = Concat <axis = 0> (c, d) }}""")
    trace = kvviz.run(graph, kvviz.inputs(graph))
    assert model_kind(graph).name == "a model that carries a state on"
    assert [(cache.input, cache.output, cache.protocol) for cache in trace.caches] == [(*names, "state")]
    assert not kvviz.cache_warnings(trace) and not kvviz.explain(trace).caches


def test_a_state_that_no_operator_names_does_not_grow_along_the_batch() -> None:
    graph = graph_of("g (float[2,batch,128] past) => (float[2,n,128] present) { present = Erf (past) }")
    trace = kvviz.run(graph, {"past": np.ones((2, 3, 128), np.float32)})
    assert [cache.protocol for cache in trace.caches] == ["state"]
