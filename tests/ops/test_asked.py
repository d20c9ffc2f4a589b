"""Random calls of single operators agree with onnxruntime, in what they give and refuse; and what refusals say."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.errors import OpError
from tests.graph.build import model, node
from tests.ops import asked_images, asked_models, asked_shapes, asked_text  # noqa: F401  (they register their makers)
from tests.ops.asked import MAKERS, Asked, model_of, verdict
from tests.ops.kernels import ints, rand

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


MS = {"domain": "com.microsoft", "ml": 1}
X, Y = rand(4, 5, 6), rand(2, 3, 4)
BLOCKS = np.zeros((8, 4, 8), np.uint8)
NBITS = {"K": 64, "N": 8, "block_size": 16, **MS}
SEQUENCE = [rand(2), rand(3), rand(4)]
Q, K, V = rand(2, 4, 3, 8), rand(2, 2, 5, 8), rand(2, 2, 5, 6)
FLAT = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(2, x.shape[2], -1) for x in (Q, K, V)]
COS, SIN = np.cos(rand(10, 4)), np.sin(rand(10, 4))
X4, PLACES = rand(2, 3, 5, 8), np.array([[0, 1, 2, 3, 4], [9, 0, 3, 3, 8]])
X3 = rand(2, 5, 24)

# Operator, inputs, attributes (with what else is said of the call), and what the error says.
REFUSED: list[tuple[str, list, dict[str, Any], str]] = [
    ("SequenceInsert", [SEQUENCE, rand(5), np.array(4)], {}, "position 4 is out of range for .* 3 tensors: .*-3 to 3"),
    ("SequenceErase", [SEQUENCE, np.array(3)], {}, "position 3 is out of range"),
    ("SplitToSequence", [rand(4), ints(1, 2)], {}, r"lengths \[1, 2\] do not add up to 4"),
    ("Reshape", [rand(5), ints(1, -5)], {}, r"\(5,\) cannot be reshaped to \[1, -5\]"),
    ("Reshape", [Y, ints(24, 1, 1, 0)], {}, "keeps a dimension"),
    ("Transpose", [rand(1, 3)], {"perm": [0, -1]}, r"perm \(0, -1\) does not permute"),
    ("Unsqueeze", [Y, ints(1, 1)], {}, "name one axis twice"),
    ("Squeeze", [Y, ints(1)], {}, "axis 1 .* has length 3, not 1"),
    ("Expand", [Y, ints(2, 2, 4)], {}, r"does not broadcast to \[2, 2, 4\]"),
    ("Tile", [Y, ints(2)], {}, "1 repeats do not fit a tensor of rank 3"),
    ("DepthToSpace", [rand(1, 6, 2, 2)], {"blocksize": 2}, "cannot reshape"),
    ("ReverseSequence", [rand(3, 4), ints(1, 2)], {}, "one length for each of 4 entries"),
    ("ReverseSequence", [rand(2, 3), ints(1, 2, 5)], {}, "sequence length 5 of batch entry 2"),
    ("Gather", [rand(0), ints(1)], {}, "index 1 is out of range for axis 0 of length 0"),
    ("Gather", [X, ints(0, 4)], {}, "index 4 is out of range for axis 0 of length 4"),
    ("GatherElements", [X, np.zeros((5, 1, 1), np.int64)], {"axis": 1}, "longer than data .* on axis 0"),
    ("GatherElements", [X, np.full((1, 1, 1), 6)], {"axis": 2}, "index 6 is out of range for axis 2 of length 6"),
    ("GatherElements", [X, ints(0)], {}, "differ in rank"),
    ("GatherND", [X, np.array([[0, 5]])], {}, "index 5 is out of range for axis 1 of length 5"),
    ("GatherND", [X, np.array([[0, 0, 0, 0]])], {}, "do not address"),
    ("OneHot", [ints(0), np.array(0), np.array([0, 1])], {}, "depth of 0"),
    ("OneHot", [ints(1), np.array(3), ints(0, 1, 2)], {}, "values must be the off and the on value"),
    ("Compress", [X, np.array([False] * 9 + [True])], {"axis": 0}, "out of bounds"),
    ("Range", [np.array(0), np.array(1), np.array(0)], {}, "delta of 0"),
    ("ConstantOfShape", [ints(2, -1)], {}, "negative"),
    ("EyeLike", [X], {}, "must be a matrix"),
    ("Slice", [X, ints(0, 0), ints(1)], {}, "differ in number"),
    ("Slice", [X, ints(0), ints(1), ints(0), ints(0)], {}, "step of 0"),
    ("Slice", [X, ints(0, 0), ints(1, 1), ints(1, -2)], {}, "name one axis twice"),
    ("ScatterND", [X, np.array([[4]]), rand(1, 5, 6)], {}, "index 4 is out of range for axis 0 of length 4"),
    ("ScatterND", [X, np.array([[0, -6]]), rand(1, 6)], {}, "index -6 is out of range for axis 1 of length 5"),
    ("ScatterND", [X, np.array([[0]]), rand(1, 5)], {}, r"updates must have shape \(1, 5, 6\), but have \(1, 5\)"),
    ("ScatterND", [X, np.zeros((1, 4), np.int64), rand(1)], {}, "tuples of 4 numbers are too long"),
    ("ScatterND", [X, np.array([[0]]), rand(1, 5, 6)], {"reduction": "mean"}, "'mean' is none of"),
    ("ScatterElements", [X, np.array([[[9]]]), rand(1, 1, 1)], {"axis": 1}, "index 9 is out of range for axis 1"),
    ("ScatterElements", [X, np.array([[[0]]]), rand(1, 1, 2)], {}, "differ"),
    ("ScatterElements", [X, np.zeros((1, 6, 1), np.int64), rand(1, 6, 1)], {}, "longer than data"),
    ("ScatterElements", [X, np.zeros((1, 1), np.int64), rand(1, 1)], {}, "differ in rank"),
    ("Split", [rand(6)], {"num_outputs": 3, "opset": 18, "n_outputs": 2}, "a split into 3 parts, .* names 2 outputs"),
    ("Split", [X], {"axis": 1, "opset": 13, "n_outputs": 2}, "length 5 does not split into 2 parts"),
    ("Concat", [X, rand(4, 4, 6)], {"axis": 2}, r"\(4, 5, 6\), \(4, 4, 6\) do not join along axis 2"),
    ("Pad", [rand(2), ints(1, 1), rand(2)], {}, "constant_value must hold one number"),
    ("Pad", [X, ints(1, 1)], {}, "two numbers for each of the 3 axes"),
    ("Pad", [rand(2, 0), ints(0, 1, 0, 0)], {"mode": "edge"}, "nothing to pad with"),
    ("Pad", [X, ints(-3, 0, 0, -3, 0, 0)], {}, "cut more"),
    ("Pad", [X, ints(1, 0, 0, 0, 0, 0)], {"mode": "odd"}, "'odd' is none of"),
    ("ReduceMax", [rand(3, 4), ints(2)], {}, "axis 2 is out of range for a tensor of rank 2"),
    ("TopK", [rand(3), ints(4)], {"n_outputs": 2}, "has 3 elements"),
    ("Resize", [rand(2, 3), None, np.array([1.0], np.float32)], {"opset": 18}, "not one number for each axis"),
    ("Resize", [rand(2, 3)], {"opset": 18}, "one of scales and sizes must be given"),
    ("DFT", [rand(2, 3)], {}, "holds no numbers of 1 part or 2"),
    ("STFT", [rand(1, 8), np.array(2)], {"opset": 18}, "one of window and frame_length"),
    ("STFT", [rand(1, 8), np.array(2), rand(9)], {"opset": 18}, "frames of 9 every 2 do not fit a signal of 8"),
    ("QuantizeLinear", [rand(3, 4), np.ones(3, np.float32)], {}, "do not fit axis"),
    ("QuantizeLinear", [rand(3, 4), np.ones((3, 3), np.float32)], {"block_size": 2}, "in blocks of 2"),
    ("MatMulNBits", [rand(3, 64), BLOCKS[:, :2], rand(8, 4)], NBITS, "do not hold 8 rows"),
    ("MatMulNBits", [rand(3, 60), BLOCKS, rand(8, 4)], NBITS, "does not fit K"),
    ("MatMulNBits", [rand(3, 64), BLOCKS[..., :6], rand(8, 4)], {**NBITS, "bits": 3}, "3 bits"),
    ("MatMulNBits", [rand(3, 64), BLOCKS, rand(8, 4)], {**NBITS, "weight_prepacked": 1}, "layout"),
    ("BitCast", [rand(2)], {"to": 11, "opset": 26}, "width"),
    ("Cast", [rand(2)], {"to": 99}, "element type"),
    ("PRelu", [rand(3), rand(2, 3)], {}, "does not broadcast"),
    ("BiasGelu", [rand(2, 3, 8), rand(4)], MS, "does not fit the last axis"),
    ("SwiGLU", [rand(2, 8), rand(1, 8)], {"opset": 28}, "one shape"),
    ("Clip", [rand(3), np.zeros(3, np.float32)], {}, "one number"),
    ("SkipLayerNormalization", [rand(3, 8), rand(2, 3, 8), rand(8)], MS, "does not fit"),
    ("GroupNormalization", [rand(1, 3, 4), rand(3), rand(3)], {"num_groups": 2}, "cannot reshape"),
    ("Gemm", [rand(1, 2), rand(2, 4), rand(3, 4)], {}, "does not broadcast"),
    ("Conv", [rand(1, 3, 5), rand(2, 2, 3)], {}, "do not fit"),
    ("MaxPool", [rand(1, 1, 3)], {"kernel_shape": [5]}, "does not fit"),
    ("GRU", [rand(5, 3, 4), rand(1, 18, 4), rand(1, 18, 6)], {"direction": "bidirectional"}, "directions"),
    ("RNN", [rand(5, 3, 4), rand(1, 6, 4), rand(1, 6, 6)], {"activations": ["Sine"]}, "no activation 'Sine'"),
    ("Attention", FLAT, {"q_num_heads": 5, "kv_num_heads": 2, "opset": 25}, "does not divide into 5 heads"),
    ("Attention", [Q[..., :4], K, V], {"opset": 25}, "differ in batch or head size"),
    ("Attention", [Q, K, FLAT[2]], {"opset": 25}, "must all have 3 or all have 4 dimensions"),
    ("Attention", [Q, K, V, None, None, None, ints(3, 4)[:, None]], {"opset": 25}, "must have one dimension"),
    ("Attention", [Q, K, V], {"left_window_size": -2, "opset": 25}, "must be -1"),
    ("RotaryEmbedding", [X4, COS, SIN, PLACES + 5], {"opset": 23}, "14 is not in cos_cache, which has 10 rows"),
    ("RotaryEmbedding", [X4, COS, SIN, PLACES - 1], {"opset": 23}, "position -1 is not in cos_cache"),
    ("RotaryEmbedding", [X4, COS, SIN], {"opset": 23}, "needs position_ids"),
    ("RotaryEmbedding", [X4, COS[:, :3], SIN[:, :3], PLACES], {"opset": 23}, "of width 3 and 3 do not rotate 8 of 8"),
    ("RotaryEmbedding", [X3, COS, SIN, PLACES], {"num_heads": 5, "opset": 23}, "does not divide into num_heads 5"),
    ("RotaryEmbedding", [X3, COS, SIN, PLACES], {"opset": 23}, "does not divide into num_heads 0"),
    ("RotaryEmbedding", [X4[0, 0], COS, SIN, PLACES], {"opset": 23}, "must have 3 or 4 dimensions"),
]


@pytest.mark.parametrize(("op_type", "inputs", "how", "message"), REFUSED)
def test_a_wrong_call_gets_one_error_that_names_the_node(op_type: str, inputs: list, how: dict, message: str) -> None:
    call = {name: how[name] for name in ("n_outputs", "opset", "domain", "ml") if name in how}
    asked = Asked(inputs, {name: value for name, value in how.items() if name not in call}, **call)
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    with pytest.raises(OpError, match=rf"node 'y0' \(\S*{op_type}\) failed: .*{message}"):
        kvviz.run(kvviz.load(model_of(op_type, asked)), feeds)
