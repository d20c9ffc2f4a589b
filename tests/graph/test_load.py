"""Reading models: what a graph holds must be what the file says."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from kvviz.errors import LoadError
from kvviz.graph import Graph, load
from tests.engine.graphs import graph_of
from tests.graph.build import FILES, MODELS, file_id, model, node
from tests.work import at_most


def graphs_of(root: Graph) -> list[Graph]:
    """The graph and every subgraph and function body in it."""
    inner = [g for n in root.nodes for g in (*n.subgraphs.values(), *([n.function] if n.function else []))]
    return [root, *(g for child in inner for g in graphs_of(child))]


def assert_runs_in_order(root: Graph, outside: frozenset[str] = frozenset()) -> None:
    for g in graphs_of(root):
        known = {v.name for v in (*g.inputs, *g.overridable)} | set(g.weights) | set(g.captures)
        for n in g.nodes:
            assert {*n.inputs, *n.captures} - {""} <= known
            known |= set(n.outputs)
        assert {v.name for v in g.outputs} - {""} <= known


@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_a_real_model_has_all_its_nodes_and_weights(path: Path) -> None:
    graph_ = load(path)
    proto = onnx.load(path)
    main = [n for n in proto.graph.node if n.op_type != "Constant"]
    told = [(n.op_type, list(n.inputs), list(n.outputs)) for n in graph_.nodes]
    assert told == [(n.op_type, list(n.input), list(n.output)) for n in main]
    for tensor in proto.graph.initializer:
        array = graph_.weights[tensor.name]
        np.testing.assert_array_equal(array, numpy_helper.to_array(tensor))
        assert not array.flags.writeable
    assert all(proto.graph.node[n.index].output == list(n.outputs) for n in graph_.nodes)
    assert_runs_in_order(graph_)
    with at_most(1_000 * sum(len(g.nodes) + len(g.weights) for g in graphs_of(graph_))):
        load(path)


def test_all_kinds_of_source_give_the_same_graph_and_stay_as_they_are() -> None:
    path = MODELS / "o01_optimum_llama" / "model.onnx"
    proto, ir_model, content = onnx.load(path), onnx_ir.load(path), path.read_bytes()
    before = [one.SerializeToString(deterministic=True) for one in (proto, onnx_ir.to_proto(ir_model))]
    sources = [str(path), path, content, bytearray(content), proto, ir_model]
    first, *others = [load(source) for source in sources]
    for other in others:
        assert [(n.name, n.attributes) for n in other.nodes] == [(n.name, n.attributes) for n in first.nodes]
        assert other.inputs == first.inputs
        assert set(other.weights) == set(first.weights)
        assert all(np.array_equal(other.weights[name], first.weights[name]) for name in first.weights)
    assert [one.SerializeToString(deterministic=True) for one in (proto, onnx_ir.to_proto(ir_model))] == before
    assert load(proto, name="mine").name == "mine"
    with pytest.raises(LoadError, match="not as int"):
        load(3)


def test_weights_of_an_onnx_ir_model_are_not_copied() -> None:
    ir_model = onnx_ir.from_proto(model([node("Add", "x w", "y")], ["x float 3"], ["y float 3"]))
    array = np.arange(3, dtype=np.float32)
    (w,) = [v for v in ir_model.graph.node(0).inputs if v is not None and v.name == "w"]
    w.const_value = onnx_ir.Tensor(array, name="w")
    ir_model.graph.initializers["w"] = w
    assert np.shares_memory(load(ir_model).weights["w"], array)


def test_inputs_say_their_type_and_shape_and_weights_among_them_can_be_overridden() -> None:
    # given a model of IR 3, which lists weights among the inputs
    older = model([node("Add", "x w", "y")], ["x float 3", "w float 3"], ["y float 3"], w=np.ones(3, np.float32))
    older.ir_version = 3
    assert [[v.name for v in values] for values in (load(older).inputs, load(older).overridable)] == [["x"], ["w"]]
    assert load(older).weights["w"].tolist() == [1, 1, 1]
    sequence = helper.make_tensor_sequence_value_info("s", onnx.TensorProto.FLOAT, None)
    proto = model([node("Identity", "x", "y")], ["x half batch 2 ?", "untyped", "scalar int64 -"], ["y"])
    proto.graph.input.append(sequence)
    x, untyped, scalar, s = load(proto).inputs
    assert (x.dtype, x.shape, x.kind) == (np.float16, ("batch", 2, None), "tensor")
    assert (untyped.dtype, untyped.shape) == (None, None)
    assert scalar.shape == ()
    assert (s.kind, s.dtype) == ("sequence", None)


def test_every_form_of_constant_becomes_a_weight() -> None:
    # given a graph of Constant nodes in all the forms of the specification
    numbers = numpy_helper.from_array(np.array([7.0, 8.0], np.float32), "initializer")
    flat, pairs = (numpy_helper.from_array(np.array(places)) for places in ([1, 5], [[0, 1], [1, 2]]))
    forms: dict[str, Any] = {
        "value": numpy_helper.from_array(np.arange(6, dtype=np.int32).reshape(2, 3)),
        "sparse_value": helper.make_sparse_tensor(numbers, flat, [2, 3]),
        "value_float": 0.1,
        "value_floats": [0.5, 2.5],
        "value_int": -3,
        "value_ints": [4, 5],
        "value_string": "é",
        "value_strings": ["a", "b"],
    }
    names = list(forms)
    nodes = [node("Constant", outputs=name, **{name: value}) for name, value in forms.items()]
    identities = [node("Identity", name, f"{name}_out") for name in names]
    proto = model([*nodes, *identities], [], [f"{name}_out" for name in names])
    # and a sparse initializer
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(numbers, pairs, [2, 3]))
    # when it is read
    loaded = load(proto)
    # then no Constant is left to run, and the values are those of the reference evaluator
    assert [n.op_type for n in loaded.nodes] == ["Identity"] * len(names)
    assert loaded.nodes[0].index == len(names)
    del nodes[1], identities[1]  # the evaluator does not make sparse constants dense
    expected = ReferenceEvaluator(model([*nodes, *identities], [], [i.output[0] for i in identities])).run(None, {})
    for name, array in zip([n.output[0] for n in nodes], expected):
        got = loaded.weights[name]
        assert got.shape == np.shape(array)
        assert got.tolist() == np.asarray(array).tolist()
        assert got.dtype.kind == np.asarray(array).dtype.kind or got.dtype == object
    for name in ("sparse_value", "initializer"):
        np.testing.assert_array_equal(loaded.weights[name], [[0, 7, 0], [0, 0, 8]])


@pytest.mark.parametrize("kind", [k for k in onnx.TensorProto.DataType.values() if k])
@pytest.mark.parametrize("form", ["raw", "typed", "in a file"])
def test_weights_of_every_element_type_are_read_as_onnx_ir_reads_them(kind: int, form: str, tmp_path: Path) -> None:
    if kind == onnx.TensorProto.STRING:
        tensor = helper.make_tensor("w", kind, [3], [b"a", "ü".encode(), b""])
    else:
        # The eight exponent bits of E8M0 have no zero.
        elements = [2 if kind == onnx.TensorProto.FLOAT8E8M0 else 0, 1, 1, 1, 1]
        tensor = helper.make_tensor("w", kind, [5], elements)
        if form != "typed":
            dtype = helper.tensor_dtype_to_np_dtype(kind)
            tensor = numpy_helper.from_array(np.array(elements, np.float32).astype(dtype), "w")
    expected = onnx_ir.from_proto(tensor).numpy()
    # Behind another weight.
    source = model([], [], [])
    source.graph.initializer.extend([numpy_helper.from_array(np.arange(7, dtype=np.uint8), "first"), tensor])
    if form == "in a file":
        proto, source = source, tmp_path / "m.onnx"
        onnx.save(proto, source, save_as_external_data=True, location="m.data", size_threshold=0)
    got = load(source).weights["w"]
    if kind == onnx.TensorProto.STRING:
        expected = np.array([entry.decode() for entry in expected], object)
    assert got.dtype == expected.dtype
    assert got.tolist() == expected.tolist()


def test_weights_are_read_only_when_they_are_used(tmp_path: Path) -> None:
    # given a model whose weights lie in another file
    proto = model([node("Add", "x w", "y")], ["x float 4"], ["y float 4"], w=np.zeros(4, np.float32))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    # when the file's contents change between reading the model and using the weight
    weights = load(tmp_path / "m.onnx").weights
    (tmp_path / "m.data").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    # then the new ones are seen: nothing was read before, and it is not copied
    np.testing.assert_array_equal(weights["w"], [0, 1, 2, 3])
    assert weights["w"] is weights["w"]
    with pytest.raises(ValueError, match="read-only"):
        weights["w"][0] = 1


def test_a_cache_of_links_into_one_folder_is_followed(tmp_path: Path) -> None:
    # given the layout of download caches: named links to files that lie together under other names
    blobs, shown = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    shown.mkdir()
    proto = model([node("Add", "x w", "y")], ["x float 2"], ["y float 2"], w=np.ones(2, np.float32))
    onnx.save(proto, blobs / "aaa", save_as_external_data=True, location="m.data", size_threshold=0)
    (blobs / "m.data").rename(blobs / "bbb")
    (shown / "m.onnx").symlink_to(blobs / "aaa")
    (shown / "m.data").symlink_to(blobs / "bbb")
    assert load(shown / "m.onnx").weights["w"].tolist() == [1, 1]


def test_nameless_and_duplicate_nodes_go_by_their_first_output() -> None:
    nodes = [
        node("Relu", "x", "a"),
        node("Split", "a", "- b c", name="twice", num_outputs=3),
        node("Neg", "b", "d", name="twice"),
        node("Abs", "d", "e", name="a"),
        node("Exp", "d", "f", name="d"),
    ]
    names = [n.name for n in load(model(nodes, ["x float 6"], ["e", "f"])).nodes]
    assert names == ["a#2", "twice", "d#2", "a", "d"]


@pytest.mark.parametrize(
    "name", ["<script>alert('x')</script>", "\"quotes\" & 'more'", "n" * 10_000, "a/b\nc\td", "/" * 5_000, "é 漢 🙂"]
)
def test_hostile_names_are_kept_as_they_are(name: str) -> None:
    relu = helper.make_node("Relu", [name], ["y"], name=name)
    proto = model([relu], [], ["y float 3"])
    proto.graph.input.add(name=name)
    loaded = load(proto)
    assert loaded.nodes[0].name == name
    assert loaded.nodes[0].inputs == (name,)


def test_attributes_are_plain_values() -> None:
    attributes: dict[str, Any] = {"i": 3, "f": 0.5, "s": "text", "ii": [1, 2], "ff": [0.5], "ss": ["a", "b"]}
    odd = node("Odd", "x", "y", domain="test", **attributes, t=numpy_helper.from_array(np.ones(2)))
    odd.attribute.append(onnx.AttributeProto(name="bytes", type=onnx.AttributeProto.STRING, s=b"\xff\x00"))
    loaded = load(model([odd], ["x float 1"], ["y float 1"], domains=["test"])).nodes[0].attributes
    plain = {name: loaded[name] for name in attributes}
    assert plain == {"i": 3, "f": 0.5, "s": "text", "ii": (1, 2), "ff": (0.5,), "ss": ("a", "b")}
    assert loaded["bytes"] == b"\xff\x00"
    assert loaded["t"].tolist() == [1, 1]
    assert not loaded["t"].flags.writeable


def test_each_node_knows_the_version_of_its_operators() -> None:
    text = "g (float[1] x) => (float[1] y) { a = Relu (x) b = com.microsoft.Gelu (a) y = ai.onnx.Relu (b) }"
    loaded = graph_of(text, 17)
    assert [(n.domain, n.opset) for n in loaded.nodes] == [("", 17), ("com.microsoft", 1), ("", 17)]
    assert [n.qualified_op for n in loaded.nodes] == ["Relu", "com.microsoft.Gelu", "Relu"]


@st.composite
def shuffled_dags(draw: st.DrawFn) -> tuple[list[list[int]], list[int]]:
    """For each node the earlier nodes that it reads, and a permutation."""
    size = draw(st.integers(1, 25))
    reads = [draw(st.lists(st.integers(0, i - 1), max_size=3)) if i else [] for i in range(size)]
    return reads, draw(st.permutations(range(size)))


@given(shuffled_dags())
def test_nodes_in_any_order_are_sorted_so_that_they_can_run(drawn: tuple[list[list[int]], list[int]]) -> None:
    reads, order = drawn
    nodes = [node("Sum", "x " + " ".join(f"v{j}" for j in reads[i]), f"v{i}") for i in range(len(reads))]
    shuffled = load(model([nodes[i] for i in order], ["x float 1"], [f"v{len(reads) - 1}"]))
    assert_runs_in_order(shuffled)
    assert sorted(n.name for n in shuffled.nodes) == sorted(f"v{i}" for i in range(len(reads)))
    # A list that is in order already stays as it is.
    assert [n.name for n in load(model(nodes, ["x float 1"], ["v0"])).nodes] == [f"v{i}" for i in range(len(reads))]
