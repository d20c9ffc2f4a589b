"""Models that cannot be trusted or understood: one clear sentence each, and never another kind of exception."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, numpy_helper

import kvviz
from kvviz.errors import GraphError, KvvizError, LimitError, LoadError
from kvviz.graph import load
from kvviz.graph.blocks import blocks
from kvviz.graph.cache_pairs import cache_pairs
from tests.engine.graphs import graph_of
from tests.graph.build import MODELS, model, node

SMALL = (MODELS / "o07_genai_llama_int4" / "model.onnx").read_bytes()
BRANCHY = (MODELS / "o03_optimum1_merged_whisper" / "model.onnx").read_bytes()


def adding(**weights: Any) -> onnx.ModelProto:
    """y = x + w."""
    return model([node("Add", "x w", "y")], ["x float 4"], ["y float 4"], **weights)


def external(folder: Path, location: str = "w.data", **entries: str) -> Path:
    """A model whose weight ``w`` (16 bytes) is said to lie in a file that is 16 bytes long."""
    proto = adding()
    tensor = proto.graph.initializer.add(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    folder.mkdir(exist_ok=True)
    (folder / "w.data").write_bytes(np.ones(4, np.float32).tobytes())
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    return folder / "m.onnx"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"not a model at all, just text\n" * 20, "not an ONNX model"),
        (bytes(range(256)) * 4, "not an ONNX model"),
        (b"\x08\x0a", "no graph"),
        (b"GGUF\x03\x00\x00\x00", "GGUF"),
        (b"PK\x03\x04rest", "zip archive"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
        (b"<!DOCTYPE html><html>", "text file"),
        (b'{"model": 1}', "JSON"),
        (b"\x1f\x8b\x08\x00", "unpack"),
        (b"\x20\x00\x00\x00ORTM", "ORT format"),
        (SMALL[: len(SMALL) // 2], "cut short"),
    ],
)
def test_what_is_no_model_is_said_to_be_none(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(LoadError, match=says) as caught:
        load(path)
    assert str(path) in str(caught.value)
    with pytest.raises(LoadError, match=says):
        load(content)


def test_a_missing_file_is_named_and_a_folder_names_the_models_in_it(tmp_path: Path) -> None:
    for path in ("nowhere/m.onnx", "m\0.onnx"):
        with pytest.raises(LoadError, match=r"no file '(nowhere/)?m.*\.onnx'"):
            load(path)
    with pytest.raises(LoadError, match=r"no \.onnx file in it"):
        load(tmp_path)
    for name in ("decoder.onnx", "encoder.onnx"):
        (tmp_path / name).write_bytes(SMALL)
    with pytest.raises(LoadError, match=r"there are 'decoder\.onnx', 'encoder\.onnx'"):
        load(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LoadError, match="not a regular file"):
        load(tmp_path / "pipe")
    path = external(tmp_path / "m")
    (tmp_path / "m" / "w.data").unlink()
    os.mkfifo(tmp_path / "m" / "w.data")
    with pytest.raises(LoadError, match="not a regular file"):
        load(path)


def test_operator_sets_from_1_to_28_are_read_and_others_refused() -> None:
    relu = [[node("Relu", "x", "y")], ["x float 1"], ["y float 1"]]
    for opset in (29, 0, 1000):
        with pytest.raises(LoadError, match=f"version {opset} .*1 to 28.*version_converter"):
            load(model(*relu, opset=opset))
    assert [load(model(*relu, opset=opset)).nodes[0].opset for opset in (1, 28)] == [1, 28]
    proto = model(*relu)
    del proto.opset_import[:]
    with pytest.raises(LoadError, match="no opset import"):
        load(proto)


# External data


def test_missing_external_data_names_the_file_the_weight_and_the_folder(tmp_path: Path) -> None:
    path = external(tmp_path / "m", "other.data")
    with pytest.raises(LoadError, match=r"weight 'w'.*'other\.data'.*missing.*next to the model") as caught:
        kvviz.run(load(path), {"x": np.ones(4, np.float32)})
    assert str(path) in str(caught.value)


OUTSIDE = "outside the model's folder"
PLACES = ("{root}/m/w.data", "../secret", "a/../../secret", "..\\secret", "C:\\secret", "\\\\host\\secret", "", "a\0b")


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        *(({"location": location}, OUTSIDE) for location in PLACES),
        ({"offset": "4"}, "bytes 4 to 20 .* only 16.*cut short or belongs to another model"),
        ({"length": "12"}, "12 bytes .* needs 16"),
        ({"offset": "-4"}, "not a byte count"),
        ({"offset": "9" * 5000}, "not a byte count"),
        ({"length": "1_6"}, "not a byte count"),
    ],
)
def test_external_data_outside_of_the_folder_or_of_the_wrong_size_is_refused(
    tmp_path: Path, entries: dict[str, str], says: str
) -> None:
    (tmp_path / "secret").write_bytes(b"0" * 16)
    with pytest.raises(LoadError, match=says):
        load(external(tmp_path / "m", **{key: value.format(root=tmp_path) for key, value in entries.items()}))


@pytest.mark.parametrize(("link", "location"), [("link", "link"), ("inside", "inside/secret")])
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, link: str, location: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    secret = tmp_path / "elsewhere" / "secret"
    secret.write_bytes(b"0" * 16)
    path = external(tmp_path / "m", location)
    (tmp_path / "m" / link).symlink_to(secret if link == location else secret.parent)
    with pytest.raises(LoadError, match=OUTSIDE):
        load(path)
    # A link within the folder is followed.
    (tmp_path / "m" / "within").symlink_to("w.data")
    assert load(external(tmp_path / "m", "within")).weights["w"].tolist() == [1] * 4


@pytest.mark.parametrize("entries", [{"offset": "4096"}, {}], ids=["shorter than the weights", "as long as they are"])
def test_a_pointer_in_place_of_external_data_is_told_as_one(tmp_path: Path, entries: dict[str, str]) -> None:
    path = external(tmp_path / "m", **entries)
    path.with_name("w.data").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(LoadError, match=r"'w.data', which is a Git LFS pointer, not the data; run git lfs pull"):
        kvviz.run(load(path), {"x": np.ones(4, np.float32)})


def test_contents_without_a_path_cannot_have_external_data(tmp_path: Path) -> None:
    path = external(tmp_path / "m")
    for source in (path.read_bytes(), onnx.load(path, load_external_data=False)):
        with pytest.raises(LoadError, match=r"'w\.data'.*pass the path"):
            kvviz.run(load(source), {"x": np.ones(4, np.float32)})


def test_the_rules_hold_for_onnx_ir_models_too(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"0" * 16)
    assert load(onnx_ir.load(external(tmp_path / "m"))).weights["w"].tolist() == [1] * 4
    with pytest.raises(LoadError, match=OUTSIDE):
        load(onnx_ir.load(external(tmp_path / "m", "../secret")))


# Tensors


def test_a_tensor_over_the_limit_is_refused_by_its_declared_size() -> None:
    proto = adding()
    proto.graph.initializer.add(name="w", data_type=1, dims=[1 << 20, 1 << 20])
    with pytest.raises(LimitError, match=r"'w'.*4,398,046,511,104 bytes.*tensor_limit"):
        load(proto)
    with pytest.raises(LimitError, match="more than the limit of 15"):
        load(adding(w=np.ones(4, np.float32)), tensor_limit=15)
    assert load(adding(w=np.ones(4, np.float32)), tensor_limit=16).weights["w"].size == 4


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: setattr(t, "raw_data", t.raw_data[:-1]), "15 bytes .*needs 16"),
        (lambda t: setattr(t, "raw_data", t.raw_data + b"0"), "17 bytes .*needs 16"),
        (lambda t: t.dims.append(2), r"16 bytes .*\[4, 2\] needs 32"),
        (lambda t: t.dims.insert(0, -1), "negative"),
        (lambda t: setattr(t, "data_type", 99), "element type 99"),
        (lambda t: setattr(t, "data_type", 0), "no element type"),
        (lambda t: setattr(t, "data_type", 8), "strings as raw data"),
        (lambda t: (t.ClearField("raw_data"), t.float_data.append(1)), "1 entries in float_data .*needs 4"),
        (lambda t: (t.ClearField("raw_data"), t.int32_data.extend([1] * 4)), "0 entries in float_data"),
        (lambda t: t.ClearField("raw_data"), "0 entries"),
    ],
)
def test_a_tensor_whose_data_does_not_fit_its_shape_is_refused(change: Callable[[Any], Any], says: str) -> None:
    with pytest.raises(LoadError, match=rf"'w' of the given ModelProto .*{says}"):
        proto = adding(w=np.ones(4, np.float32))
        change(proto.graph.initializer[0])
        load(proto)


def test_a_damaged_constant_is_named_by_its_value() -> None:
    tensor = numpy_helper.from_array(np.ones(4, np.float32))
    tensor.raw_data = tensor.raw_data[:-4]
    with pytest.raises(LoadError, match="constant 'c'"):
        load(model([node("Constant", outputs="c", value=tensor)], [], ["c float 4"]))
    with pytest.raises(LoadError, match=r"makes 'c'.*no value"):
        load(model([node("Constant", outputs="c")], [], ["c float 4"]))


@pytest.mark.parametrize("places", [[7], [-1], [0, 1]])
def test_sparse_indices_outside_of_the_shape_are_refused(places: list[int]) -> None:
    values = numpy_helper.from_array(np.array([7.0], np.float32), "w")
    sparse = onnx.helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(places)), [4])
    proto = adding()
    proto.graph.sparse_initializer.append(sparse)
    with pytest.raises(LoadError, match="sparse weight 'w'"):
        load(proto).weights["w"]


# Graphs


BROKEN = [
    ("{ [first] a = Add (x, c) [second] b = Neg (a) [third] c = Abs (b) [innocent] y = Exp (c) }",
     "wait for each other.*'second'.*'third'.*'first'"),
    # A node that waits for itself through its branch is a cycle.
    ("{ [choose] y = If (flag) <then_branch = t () => (float n) { n = Neg (y) }, "
     "else_branch = e () => (float n) { n = Neg (x) }> }", "wait for each other.*'choose'"),
    ("{ [sum] y = Add (x, ghost) }", r"'sum' \(Add\) reads 'ghost'"),
    ("{ z = Neg (x) }", "output.*reads 'y'"),
    # What a branch makes is not seen outside of it.
    ("{ z = If (flag) <then_branch = t () => (float n) { n = Neg (x) }, "
     "else_branch = e () => (float n) { n = Neg (x) }> [reader] y = Abs (n) }", "'reader'.*'n'"),
    ("{ y = Neg (x) y = Abs (x) }", "made twice"),
    ("{ x = Neg (x) y = Abs (x) }", "made twice"),
    ("<float[4] w = {1, 1, 1, 1}> { w = Neg (x) y = Abs (x) }", "made twice"),
    ("{ y, y = Split (x) }", "made twice"),
    ("<float[4] w = {1, 1, 1, 1}> { w = Constant <value_int = 1> () y = Abs (x) }", "made twice"),
    ("{ y = Constant <value_int = 1> () y = Neg (x) }", "made twice"),
    ("<float[1] w = {1}, float[1] w = {1}> { y = Add (x, w) }", "'w' occurs twice"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "says"), BROKEN)
def test_a_graph_that_cannot_run_is_told_by_its_nodes_and_values(body: str, says: str) -> None:
    with pytest.raises(GraphError, match=says) as caught:
        graph_of(f"g (bool flag, float[4] x) => (y) {body}")
    assert "innocent" not in str(caught.value)


def test_two_inputs_of_one_name_are_an_error() -> None:
    with pytest.raises(GraphError, match="input 'x' occurs twice"):
        graph_of("g (float[4] x, float[4] x) => (x) { }")


# Anything


def read_all(data: bytes) -> None:
    """Whatever one does with a model before running it."""
    loaded = load(data)
    list(loaded.weights.values())
    blocks(loaded)
    cache_pairs(loaded)


@settings(max_examples=60)
@given(st.integers(0, len(SMALL) - 1))
@example(SMALL.rindex(b"com.microsoft"))
def test_a_file_cut_anywhere_is_an_error_of_ours_or_a_whole_model(length: int) -> None:
    try:
        read_all(SMALL[:length])
    except (LoadError, GraphError):
        return
    # What may be missing without harm stands after the graph: metadata and the like.
    assert len(load(SMALL[:length]).nodes) == len(load(SMALL).nodes)


@settings(max_examples=60)
@given(st.sampled_from([SMALL, BRANCHY]), st.lists(st.tuples(st.integers(0, 60_000), st.integers(0, 255)), max_size=20))
def test_damage_anywhere_raises_errors_of_ours_only(data: bytes, damage: list[tuple[int, int]]) -> None:
    spoiled = bytearray(data)
    for place, byte in damage:
        spoiled[place] = byte
    try:
        read_all(bytes(spoiled))
    except KvvizError as error:
        assert "\n" not in str(error)
