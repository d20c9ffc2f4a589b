"""Predicted beside observed: the allocations of real onnxruntime sessions, with their own optimisations."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import kvviz
from kvviz.cli import main
from kvviz.errors import KvvizError
from kvviz.verification.session_record import read_profile
from tests.explain.test_fixes import file_id
from tests.graph.build import MODELS

LEVELS = onnxruntime.GraphOptimizationLevel
FILES = sorted(MODELS.rglob("*.onnx"))


@pytest.mark.parametrize("path", FILES, ids=file_id)
def test_a_default_session_allocates_as_predicted(path: Path) -> None:
    found = kvviz.verify(path)
    assert found.differences == () and found.agree == found.total
    assert found.total or found.unknown  # a merged model has all of its nodes in bodies


# Scattering into zeros that are computed, or are a weight, of a fixed or of an open length.
COMPUTED = """<ir_version: 8, opset_import: ["" : 18]>
g (float[N, 64] u, int64[N, 64] i) => (float[4096, 64] y) <int64[2] s = {4096, 64}> {
    z = ConstantOfShape (s)  h = ScatterElements <axis = 0> (z, i, u)  y = Relu (h) }"""
OPEN = """<ir_version: 8, opset_import: ["" : 18]>
g (float[N, 64] u, int64[N, 64] i, float[R, 64] x) => (float[R, 64] y) <float[R, 64] z> {
    s = Shape (x)  z = ConstantOfShape (s)  h = ScatterElements <axis = 0> (z, i, u)  y = Relu (h) }"""
SIZE = 4096 * 64 * 4


def weighted() -> onnx.ModelProto:
    """The zeros are a weight."""
    model = onnx.parser.parse_model(COMPUTED)
    model.graph.initializer.pop()
    model.graph.node.pop(0)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((4096, 64), np.float32), "z"))
    return model


def options(level: Any) -> onnxruntime.SessionOptions:
    found = onnxruntime.SessionOptions()
    found.graph_optimization_level = level
    return found


@pytest.mark.parametrize(
    ("model", "level", "copies"),
    [
        (onnx.parser.parse_model(COMPUTED), LEVELS.ORT_ENABLE_ALL, True),  # the zeros are folded into a weight
        (onnx.parser.parse_model(COMPUTED), LEVELS.ORT_DISABLE_ALL, False),
        (weighted(), LEVELS.ORT_ENABLE_ALL, True),
        (weighted(), LEVELS.ORT_DISABLE_ALL, True),
        (onnx.parser.parse_model(OPEN), LEVELS.ORT_ENABLE_ALL, False),
        (onnx.parser.parse_model(OPEN), LEVELS.ORT_DISABLE_ALL, False),
    ],
    ids=["folded", "not folded", "weight", "weight, not optimised", "open", "open, not optimised"],
)
def test_a_scatter_copies_zeros_that_are_a_weight(model: onnx.ModelProto, level: Any, copies: bool) -> None:
    given: dict[str, Any] = {"u": np.ones((2, 64), np.float32), "i": np.zeros((2, 64), np.int64)}
    if len(model.graph.input) == 3:
        given["x"] = np.zeros((4096, 64), np.float32)
    found = kvviz.verify(kvviz.load(model), given, options(level))
    assert found.differences == ()
    (scatter,) = [op for op in found.rows if op.op == "ScatterElements"]
    assert (scatter.observed, scatter.predicted) == ((SIZE, SIZE) if copies else (0, 0))
    assert scatter.microseconds > 0 and ("copied" in scatter.reason) == copies


def test_fused_and_blocked_convolutions_need_no_kernel_here() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[N, 16, 32, 32] x, float[32, 16, 3, 3] w, float[32] b, float[32, 32, 3, 3] v) => (float[N, 32, 16, 16] y) {
        a = Conv <pads = [1, 1, 1, 1]> (x, w, b)  c = Relu (a)
        d = Conv <pads = [1, 1, 1, 1]> (c, v)  e = Relu (d)
        y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (e) }"""
    model = onnx.parser.parse_model(text)
    for value in list(model.graph.input)[1:]:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, np.float32), value.name))
        model.graph.input.remove(value)
    found = kvviz.verify(kvviz.load(model), {"x": np.ones((1, 16, 32, 32), np.float32)})
    assert found.differences == () and found.total >= 3
    assert any(op.op.startswith("com.microsoft") for op in found.rows)


def test_the_command_prints_what_differs_and_the_slowest_ops(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(MODELS / "storyteller" / "tensor_scatter" / "model.onnx")
    assert main(["verify", path]) == 0
    told = capsys.readouterr().out
    assert f"by onnxruntime {onnxruntime.__version__}" in told and "allocated as predicted" in told
    assert main(["verify", path, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["agree"] == data["total"] == len(data["ops"]) > 50
    assert {"node", "predicted", "observed", "microseconds", "why"} <= set(data["ops"][0])


def test_what_cannot_be_run_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    path = MODELS / "storyteller" / "concat" / "model.onnx"
    with pytest.raises(KvvizError, match="refuses") as refused:
        kvviz.verify(path, {"input_ids": np.zeros((1, 1, 1, 1), np.int64)})
    assert "\n" not in str(refused.value)
    with pytest.raises(KvvizError, match="the profile has no node"):
        read_profile([])
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name == "onnxruntime":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(KvvizError, match="pip install onnxruntime"):
        kvviz.verify(path)
