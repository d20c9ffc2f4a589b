"""What onnxruntime's optimiser made of a model, and what follows from it for memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import kvviz
from kvviz.verification.optimised_nodes import FUSED, INSERTED, KEPT
from kvviz.verification.verified import Verification
from tests.graph.build import MODELS
from tests.verification.test_verify import convolutions

LEVELS = onnxruntime.GraphOptimizationLevel
SIZE = 4096 * 64 * 4
HEAD = '<ir_version: 8, opset_import: ["" : 18]> g (float[N, 64] u, int64[N, 64] i'
ZEROS = "s = Shape (x)  z = ConstantOfShape (s)"
# Scattering into zeros that are a weight, or are computed for a length that is fixed or open; the result is an output,
# or is read once more.
WEIGHT = HEAD + ") => (float[4096, 64] h) { h = ScatterElements <axis = 0> (z, i, u) }"
OUTPUT = HEAD + f", float[4096, 64] x) => (float[4096, 64] h) {{ {ZEROS}  h = ScatterElements <axis = 0> (z, i, u) }}"
READ = OUTPUT.replace("(float[4096, 64] h)", "(float[4096, 64] y)").replace(" }", "  y = Relu (h) }")
# The inferred length of the zeros has no name, unless the model declares one.
OPEN = READ.replace("4096", "R")
NAMED = OPEN.replace("{", "<float[R, 64] z> {")


def scatter(text: str, level: Any) -> Verification:
    """One of the graphs, run at one level of optimisation."""
    model = onnx.parser.parse_model(text)
    if text == WEIGHT:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((4096, 64), np.float32), "z"))
    feeds: dict[str, Any] = {"u": np.ones((2, 64), np.float32), "i": np.zeros((2, 64), np.int64)}
    feeds.update({value.name: np.zeros((4096, 64), np.float32) for value in model.graph.input[2:]})
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    return kvviz.verify(kvviz.load(model), feeds, options)


@pytest.mark.parametrize("level", [LEVELS.ORT_ENABLE_ALL, LEVELS.ORT_DISABLE_ALL], ids=["optimised", "as written"])
@pytest.mark.parametrize(
    ("text", "copies"),
    [
        (WEIGHT, (True, True)),
        (OUTPUT, (True, True)),
        (READ, (True, False)),
        (OPEN, (True, True)),
        (NAMED, (False, False)),
    ],
    ids=["weight", "output", "read", "open", "named"],
)
def test_a_scatter_copies_what_is_or_becomes_a_weight_or_an_output(
    text: str, copies: tuple[bool, bool], level: Any
) -> None:
    found = scatter(text, level)
    assert found.differences == ()
    (row,) = [row for row in found.rows if row.op == "ScatterElements"]
    assert (row.observed == row.predicted == SIZE) == copies[level == LEVELS.ORT_DISABLE_ALL]
    assert row.observed in (0, SIZE) and row.microseconds > 0


def test_a_folded_value_that_is_scattered_into_is_a_sentence_with_its_step() -> None:
    found = scatter(READ, LEVELS.ORT_ENABLE_ALL)
    folded = next(change for change in found.changes if change.step >= 0)
    step = next(step for step in found.trace.steps if step.op_type == "ScatterElements")
    words = f"constant folding made 'z' a weight, and ScatterElements may not write over a weight (step {step.index})"
    assert (folded.ops, folded.step, folded.words) == (("ConstantOfShape",), step.index, words)
    assert words in str(found) and words in {change["words"] for change in found.to_dict()["changes"]}
    assert all(change.kind == KEPT for change in scatter(READ, LEVELS.ORT_DISABLE_ALL).changes)


def test_each_node_of_both_graphs_is_in_one_change() -> None:
    for name in ("concat", "attention_23", "static_scatter_nd"):
        path = MODELS / "storyteller" / name / "model.onnx"
        found, graph = kvviz.verify(path), kvviz.load(path)
        assert {node for change in found.changes for node in change.nodes} == {node.name for node in graph.nodes}
        written = [change.into for change in found.changes if change.kind in (KEPT, FUSED, INSERTED)]
        assert written == [node.name for node in found.trace.graph.nodes]


def test_a_norm_spelled_out_is_one_node() -> None:
    found = kvviz.verify(MODELS / "storyteller" / "concat" / "model.onnx")
    norms = [change for change in found.changes if change.into_op == "SimplifiedLayerNormalization"]
    assert len(norms) == 7 and all({"Pow", "ReduceMean", "Sqrt"} <= set(change.ops) for change in norms)


def test_a_blocked_convolution_stands_for_its_activation_and_its_sum() -> None:
    found = kvviz.verify(convolutions(), {"x": np.ones((1, 24, 32, 32), np.float32)})
    ops = [change.ops for change in found.changes if change.into_op == "com.microsoft.nchwc.Conv"]
    assert ops == [("Conv", "Relu"), ("Conv", "Add", "Relu")]
    assert {c.into_op for c in found.changes if c.kind == INSERTED} <= {
        "com.microsoft.nchwc.ReorderInput",
        "com.microsoft.nchwc.ReorderOutput",
    }
