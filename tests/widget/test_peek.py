"""A look into a value: what the page is told of its numbers."""

import json
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.view.page_data.payload_values import attention, peek
from tests.engine.graphs import graph_of
from tests.test_models import graph_of as model_of

MASK = """masked (bool[2,2] seen, float[2,2] bias) => (float[2,2] y) {
    zero = Constant <value: tensor = float {0}> ()
    low = Log (zero)
    mask = Where (seen, zero, low)
    y = Add (mask, bias) }"""


@pytest.mark.parametrize(
    ("bias", "rows", "stats"),
    [
        (
            [[0, 0], [0, 0]],
            [[0, "-inf"], [0, 0]],
            {"min": "-inf", "max": 0, "mean of the finite": 0, "nan": 0, "-inf": 1},
        ),
        (
            [[np.nan, 0], [np.inf, 3]],
            [[None, "-inf"], ["inf", 3]],
            {"min": "-inf", "max": "inf", "mean of the finite": 3, "nan": 1, "inf": 1, "-inf": 1},
        ),
        ([[np.nan, np.nan], [np.nan, np.nan]], [[None, None], [None, None]], {"nan": 4}),
    ],
)
def test_infinities_and_nan_are_told_apart(bias: list[list[float]], rows: list[Any], stats: dict[str, Any]) -> None:
    seen = np.tril(np.ones((2, 2), bool))
    trace = kvviz.run(graph_of(MASK), {"seen": seen, "bias": np.array(bias, np.float32)})
    # then the page gets JSON, and no more than that
    answer = json.loads(json.dumps(peek(trace, "y", len(trace.steps) - 1), allow_nan=False))
    assert (answer["rows"], answer["stats"]) == (rows, stats)


@pytest.mark.parametrize("code", ["int64", "bool", "float16"])
def test_finite_values_have_a_plain_mean(code: str) -> None:
    graph = graph_of(f"g ({code}[4] x) => ({code}[4] y) {{ y = Identity (x) }}")
    trace = kvviz.run(graph, {"x": np.array([0, 1, 1, 0], code)})
    assert peek(trace, "y", 0)["stats"] == {"min": 0.0, "max": 1.0, "mean": 0.5, "nan": 0}


def test_weights_that_are_nan_can_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = kvviz.decode(model_of("o01_optimum_llama"), [5, 17], 2, progress=False)
    wrong = np.array([[np.nan, 0.25, 0.0]])
    monkeypatch.setattr("kvviz.view.page_data.payload_values.weights_of", lambda *_: wrong)
    answer = json.loads(json.dumps(attention(trace, 0, 1), allow_nan=False))
    assert answer == {"heads": [[None, 0.25]]}
