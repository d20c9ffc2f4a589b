"""Inputs that are made up from what a graph declares."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import kvviz
from kvviz.decode.synthetic_inputs import Maker
from kvviz.errors import InputError
from kvviz.graph.model import Graph
from tests.graph.build import FILES, MODELS, file_id, model, node, run_in_onnxruntime

LLAMA = MODELS / "o01_optimum_llama" / "model.onnx"


@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_every_model_runs_on_inputs_made_for_it(path: Path) -> None:
    graph = kvviz.load(path)
    feeds = kvviz.inputs(graph)
    assert list(feeds) == [value.name for value in graph.inputs]
    trace = kvviz.run(graph, feeds)
    assert all(np.isfinite(value).all() for value in trace.outputs.values())
    if path.name == "model.onnx":
        expected = run_in_onnxruntime(onnx.load(path), **feeds)
        for name, value in zip(trace.outputs, expected):
            np.testing.assert_allclose(trace.outputs[name], value, rtol=2e-4, atol=2e-4)


def test_lengths_that_contradict_each_other_are_refused() -> None:
    told = {"batch_size": 1, "sequence_length": 3, "past_sequence_length": 2}
    mask = "past_sequence_length + sequence_length"
    feeds = kvviz.inputs(kvviz.load(LLAMA), {**told, mask: 5})
    assert feeds["attention_mask"].shape == (1, 5)
    with pytest.raises(InputError, match="is 5 with past_sequence_length=2, sequence_length=3, not 9"):
        kvviz.inputs(kvviz.load(LLAMA), {**told, mask: 9})


def identity(declared: str) -> Graph:
    return kvviz.load(model([node("Identity", "x", "y")], [f"x {declared}"], [f"y {declared}"]))


def of_length(dim: str, *more: str) -> Graph:
    """A graph whose input ``x`` has this length, and 3 columns."""
    proto = model([node("Identity", "x", "o")], ["x float n 3", *more], ["o float ? 3"])
    if dim.isdigit():
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = int(dim)
    else:
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = dim
    return kvviz.load(proto)


@pytest.mark.parametrize(
    ("dim", "told", "shape"),
    [
        ("a + b", {"a + b": 10}, (10, 4)),
        ("a + b", {"a + b": 10, "a": 7}, (10, 7)),
        ("2*a", {"2*a": 10}, (10, 5)),
        ("a / 2", {"a / 2": 10}, (10, 20)),
    ],
)
def test_open_parts_of_a_sum_agree_with_the_sum_that_was_told(dim: str, told: dict[str, int], shape: tuple) -> None:
    made = kvviz.inputs(of_length(dim, "a float a", *(["y float b"] if "b" in dim else [])), told)
    assert (len(made["x"]), len(made["a"])) == shape
    assert "b" not in dim or len(made["a"]) + len(made["y"]) == shape[0]


@pytest.mark.parametrize(
    ("dim", "dims", "told"),
    [
        ("n", {"m": 2}, "no dimension named 'm'; it has n"),
        ("n", {"x.2": 2}, "no dimension named 'x.2'; it has n"),
        ("n", {"x.1": 2}, "'x.1' cannot be 2: the model fixes it at 3"),
        ("n", {"n": -1}, "'n' cannot be -1: a length must be a whole number"),
        ("n", {"n": 1.5}, "'n' cannot be 1.5: a length must be a whole number"),
        ("n", {"n": True}, "'n' cannot be True: a length must be a whole number"),
        ("n", {"n": 10**30}, "a length must be a whole number"),
        ("n", {"n": 10**11}, "would have 1,200,000,000,000 bytes; give shorter dimensions"),
        ("2", {"n": 1}, "no dimension named 'n': all of its inputs have a fixed shape"),
        ("past - new", {"past": 1, "new": 4}, "past=1, new=4"),
        ("8 / past", {"past": 0}, "no valid length with past=0"),
        ("2*a", {"2*a": 11}, "dimension '2*a' is 8 with a=4, not 11"),
    ],
)
def test_a_dimension_that_cannot_be_is_refused_in_one_sentence(dim: str, dims: Any, told: str) -> None:
    with pytest.raises(InputError) as caught:
        kvviz.inputs(of_length(dim, *(["a float a"] if dim == "2*a" else [])), dims)
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_a_dimension_that_is_a_sum_or_product_asks_for_its_names_and_a_hyphen_is_no_difference() -> None:
    asked: list[tuple[str, dict[str, int], list[str]]] = [
        ("past + new", {"past": 4}, ["new"]),
        ("2*past - 1", {}, ["past"]),
        ("8 / past", {}, ["past"]),
        ("past + 1", {"past + 1": 4}, []),
        *((dim, {}, [dim]) for dim in ("a b", "f(past)", "past ** 99", "batch-size")),
    ]
    for dim, dims, open_dims in asked:
        assert list(Maker(of_length(dim), dims, {}).open_dims()) == open_dims
    assert kvviz.inputs(of_length("batch-size"))["x"].shape == (1, 3)
    assert kvviz.inputs(of_length("batch-size"), {"batch-size": 3})["x"].shape == (3, 3)


def test_a_length_that_a_given_input_has_cannot_be_another() -> None:
    graph = identity("float n")
    given = {"x": np.ones(5, np.float32)}
    assert kvviz.inputs(graph, {"n": 5}, given)["x"] is given["x"]
    with pytest.raises(InputError, match="dimension 'n' is 5 in axis 0 of the given input 'x', not 6"):
        kvviz.inputs(graph, {"n": 6}, given)


def test_a_decode_takes_lengths_of_what_it_was_given_and_refuses_those_that_it_counts_itself() -> None:
    graph = kvviz.load(MODELS / "o03_optimum1_merged_whisper" / "model.onnx")
    given = {"encoder_hidden_states": np.zeros((1, 6, 32), np.float32)}
    made = Maker(graph, {"encoder_sequence_length": 12}, given, decoding=True).make()
    assert made["encoder_hidden_states"].shape == (1, 6, 32)
    graph = kvviz.load(LLAMA)
    assert Maker(graph, {"batch_size": 1}, {}, decoding=True).make() == {}
    for name, length, why in (
        ("batch_size", 2, "a decode has one sequence, so dimension 'batch_size' is 1, not 2"),
        ("input_ids.0", 2, r"dimension 'input_ids\.0' is 1, not 2"),
        ("sequence_length", 3, "'sequence_length' follows from the prompt"),
        ("past_sequence_length", 3, "'past_sequence_length' follows from the prompt"),
    ):
        with pytest.raises(InputError, match=why):
            Maker(graph, {name: length}, {}, decoding=True)


def test_an_interrupt_while_lengths_are_tried_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped:
        interrupted = True

        def run_to_end(self) -> Stopped:
            return self

    monkeypatch.setattr(import_module("kvviz.decode.symbolic_dimensions"), "SingleRun", lambda *_: Stopped())
    proto = model([node("Conv", "x w", "y")], ["x float n 1 s"], ["y float ? 1 ?"], w=np.ones((1, 1, 9), np.float32))
    with pytest.raises(KeyboardInterrupt):
        kvviz.inputs(kvviz.load(proto))


@pytest.mark.parametrize(
    ("declared", "dims", "expected"),
    [
        ("float n 3", {"n": 2}, (2, 3)),
        ("float ? 3", {"x.0": 2}, (2, 3)),
        ("float a b", {"a": 2, "b": 0}, (2, 0)),
        ("bool n", {"n": 2}, (2,)),
        ("half n", {"n": 2}, (2,)),
        ("string n", {"n": 2}, (2,)),
    ],
)
def test_an_input_is_made_in_its_declared_type_and_shape(declared: str, dims: dict[str, int], expected: Any) -> None:
    graph = identity(declared)
    made = Maker(graph, dims, {}).make()["x"]
    assert (made.shape, made.dtype) == (expected, graph.inputs[0].dtype)


def test_an_input_that_cannot_be_made_is_named() -> None:
    proto = model([node("SequenceLength", "x", "y")], ["x float 1"], ["y int64 -"])
    proto.graph.input[0].CopyFrom(onnx.helper.make_tensor_sequence_value_info("x", 1, None))
    with pytest.raises(InputError, match=r"input 'x' \(sequence\) cannot be generated"):
        Maker(kvviz.load(proto), {}, {})


@pytest.mark.parametrize("kind", ["float", "int64", "string"])
def test_an_input_of_more_axes_than_numpy_has_is_refused(kind: str) -> None:
    with pytest.raises(InputError, match="input 'x' has 100 dimensions, but an array of NumPy has at most"):
        kvviz.inputs(identity(f"{kind} {' '.join(['n'] * 100)}"), {"n": 1})
