"""Random calls of single operators agree with onnxruntime, in what they give and in what they refuse."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.errors import OpError
from tests.graph.build import model, node
from tests.ops import asked_images, asked_models, asked_shapes, asked_text  # noqa: F401  (they register their makers)
from tests.ops.asked import MAKERS, Asked, model_of, verdict
from tests.ops.kernels import rand

MOSTLY_WRONG = {"ConcatFromSequence", "SequenceAt", "SequenceErase", "Reshape", "Gather", "Slice", "Tile"}
"""Of these, and of what has an axis or a position out of range, fewer calls are right."""


@pytest.mark.parametrize("op_type", MAKERS)
def test_random_calls_agree_with_onnxruntime(op_type: str) -> None:
    # given
    count = 300 if op_type in ("Resize", "SequenceInsert") else 60
    calls = [MAKERS[op_type](np.random.default_rng((seed, 5))) for seed in range(count)]
    # when
    verdicts = [verdict(op_type, asked) for asked in calls]
    # then
    wrong = [f"{seed}: {v}" for seed, v in enumerate(verdicts) if v not in ("same", "both refuse")]
    assert not wrong, "\n".join(wrong[:5])
    assert Counter(verdicts)["same"] > count * (0.1 if op_type in MOSTLY_WRONG else 0.2)


@pytest.mark.parametrize("policy", ["ideal", "rten", "onnxruntime"])
@pytest.mark.parametrize(("op_type", "made"), [("Relu", 1), ("Det", 1), ("Dropout", 2)])
def test_a_node_with_more_outputs_than_its_operator_is_refused(op_type: str, made: int, policy: str) -> None:
    names = " ".join(f"y{i}" for i in range(made + 1))
    proto = model([node(op_type, "x", names, name="n")], ["x float 2 2"], names.split())
    with pytest.raises(OpError, match=rf"node 'n' \({op_type}\) names .* makes {made}: remove y{made}"):
        kvviz.run(kvviz.load(proto), {"x": rand(2, 2)}, policy=policy)


def test_a_sequence_of_maps_goes_through_the_whole_of_a_trace(tmp_path):
    # given
    asked = Asked([rand(2, 3)], {"classlabels_strings": ["a", "b", "c"]}, domain="ai.onnx.ml", ml=1)
    api: Any = kvviz
    trace = api.run(api.load(model_of("ZipMap", asked)), {"x0": asked.inputs[0]})
    # when
    trace.save(tmp_path / "a.kvviz")
    trace.to_html(tmp_path / "a.html")
    # then
    assert [list(row) for row in trace.outputs["y0"]] == [["a", "b", "c"]] * 2
    np.testing.assert_allclose([list(row.values()) for row in trace.outputs["y0"]], asked.inputs[0])
    assert trace.steps[0].allocated == 0 and not trace.steps[0].foreign
    assert "ZipMap" in str(trace.table()) and "ZipMap" in (tmp_path / "a.html").read_text("utf-8")
    assert api.Trace.load(tmp_path / "a.kvviz").steps[0].op_type == "ZipMap"
    assert api.explain(trace).missed == ()
