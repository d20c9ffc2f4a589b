"""A look into a value: what the page is told of its numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

import kvviz
from kvviz.view.page_data.payload_values import attention, peek

MODELS = Path(__file__).parents[2] / "assets" / "models"
MASK = """<ir_version: 10, opset_import: ["" : 21]> masked (bool[2,2] seen, float[2,2] bias) => (float[2,2] y) {
    zero = Constant <value: tensor = float {0}> ()
    low = Log (zero)
    mask = Where (seen, zero, low)
    y = Add (mask, bias) }"""


def told(bias: list[list[float]]) -> dict[str, Any]:
    """What the page gets for the sum of a causal mask and a bias: JSON, and no more than that."""
    seen = np.tril(np.ones((2, 2), bool))
    graph = kvviz.load(parser.parse_model(MASK))
    trace = kvviz.run(graph, {"seen": seen, "bias": np.array(bias, np.float32)})
    answer: dict[str, Any] = json.loads(json.dumps(peek(trace, "y", len(trace.steps) - 1), allow_nan=False))
    return answer


def test_infinite_entries_of_a_mask_are_not_told_as_nan() -> None:
    answer = told([[0, 0], [0, 0]])
    assert answer["rows"] == [[0.0, "-inf"], [0.0, 0.0]]
    assert answer["stats"] == {"min": "-inf", "max": 0.0, "mean of the finite": 0.0, "nan": 0, "-inf": 1}


def test_nan_and_both_infinities_are_told_apart() -> None:
    answer = told([[np.nan, 0], [np.inf, 3]])
    assert answer["rows"] == [[None, "-inf"], ["inf", 3.0]]
    assert answer["stats"] == {"min": "-inf", "max": "inf", "mean of the finite": 3.0, "nan": 1, "inf": 1, "-inf": 1}


def test_a_value_without_a_single_number_says_only_how_many_are_nan() -> None:
    answer = told([[np.nan, np.nan], [np.nan, np.nan]])
    assert answer["stats"] == {"nan": 4}
    assert answer["rows"] == [[None, None], [None, None]]


@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.float16])
def test_finite_values_have_a_plain_mean(dtype: Any) -> None:
    code = {np.int64: "int64", np.bool_: "bool", np.float16: "float16"}[dtype]
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({code}[4] x) => ({code}[4] y) {{ y = Identity (x) }}'
    trace = kvviz.run(kvviz.load(parser.parse_model(text)), {"x": np.array([0, 1, 1, 0], dtype)})
    assert peek(trace, "y", 0)["stats"] == {"min": 0.0, "max": 1.0, "mean": 0.5, "nan": 0}


def test_weights_that_are_nan_can_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    # given an attention that went wrong
    trace = kvviz.decode(kvviz.load(MODELS / "o01_optimum_llama" / "model.onnx"), [5, 17], 2, progress=False)
    wrong = np.array([[np.nan, 0.25, 0.0]])
    monkeypatch.setattr("kvviz.view.page_data.payload_values.weights_of", lambda *_: wrong)
    # then
    answer = json.loads(json.dumps(attention(trace, 0, 1), allow_nan=False))
    assert answer == {"heads": [[None, 0.25]]}
