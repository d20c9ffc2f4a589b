"""The fallback on onnx.reference's kernels: which operators it has, and that it calls them rightly."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import kvviz
from kvviz.errors import OpError, UnsupportedOpsError
from kvviz.graph.loading.load import load
from kvviz.graph.model import Node
from kvviz.ops.kernels import foreign_available, foreign_kernel, node_proto
from tests.graph.build import model
from tests.ops.kernels import ints, rand
from tests.ops.ort_oracle import ort_run

X = rand(2, 4, 6, 6)


def node(
    op_type: str, n_inputs: int = 1, n_outputs: int = 1, opset: int = 21, domain: str = "", **attributes: Any
) -> Node:
    inputs, outputs = tuple(f"x{i}" for i in range(n_inputs)), tuple(f"y{i}" for i in range(n_outputs))
    return Node("n", op_type, domain, inputs, outputs, 0, attributes, opset=opset)


AVAILABLE = [
    ("", "MaxPool", 12, True),
    ("", "Mish", 18, True),
    ("", "Mish", 17, False),
    ("", "SequenceMap", 17, True),
    ("", "NoSuchOperator", 21, False),
    ("", "MaxRoiPool", 21, False),
    ("", "Loop", 21, False),
    ("ai.onnx.ml", "LabelEncoder", 4, True),
    ("ai.onnx.preview.training", "Adam", 1, True),
    ("com.microsoft", "FastGelu", 1, False),
]


@pytest.mark.parametrize(("domain", "op_type", "opset", "there"), AVAILABLE)
def test_what_the_reference_evaluator_has_is_known_before_a_run(
    domain: str, op_type: str, opset: int, there: bool
) -> None:
    assert foreign_available(domain, op_type, opset) is there
    if not there:
        with pytest.raises(UnsupportedOpsError, match=rf"{op_type} at opset {opset}"):
            foreign_kernel(node(op_type, opset=opset, domain=domain))


def test_a_function_body_is_built_again_for_other_shapes_and_types() -> None:
    kernel = foreign_kernel(node("GroupNormalization", 3, opset=21, num_groups=2))
    for x in (X, rand(1, 4, 3), X.astype(np.float64)):
        scale, bias = rand(4, dtype=x.dtype.type), rand(4, seed=1, dtype=x.dtype.type)
        want = ort_run("GroupNormalization", [x, scale, bias], num_groups=2)[0]
        np.testing.assert_allclose(kernel(x, scale, bias)[0], want, rtol=1e-4, atol=1e-5)


def sequence_map(addend: str) -> onnx.ModelProto:
    """A SequenceMap that adds something to each element: ``o``, its second input, or ``b``, a value outside."""
    return onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 17]>
        g (seq(float[n]) s, float[2] b) => (seq(float[n]) t) {{
            t = SequenceMap (s, b) <body = f (float[n] e, float[m] o) => (float[n] r) {{ r = Add(e, {addend}) }}> }}""")


def test_a_subgraph_runs_inside_the_reference_kernel() -> None:
    (call,) = load(sequence_map("o")).nodes
    mapped = foreign_kernel(call)([rand(2), rand(2, seed=1)], np.array([10, 20], np.float32))[0]
    np.testing.assert_array_equal(
        mapped, [rand(2) + np.array([10, 20], np.float32), rand(2, seed=1) + np.array([10, 20], np.float32)]
    )


def test_a_subgraph_that_reads_outer_values_is_refused() -> None:
    (call,) = load(sequence_map("b")).nodes
    with pytest.raises(UnsupportedOpsError, match=r"SequenceMap .* read outer values"):
        foreign_kernel(call)


def test_a_failure_is_told_in_one_sentence() -> None:
    kernel = foreign_kernel(node("MaxPool", kernel_shape=(2, 2)))
    with pytest.raises(OpError, match=r"^the kernel of onnx.reference failed: \w+: "):
        kernel(np.array([1.0], np.float32))


def test_attributes_survive_the_way_back_to_protobuf() -> None:
    given: dict[str, Any] = {"values_tensor": numpy_helper.from_array(ints(1, 2), "t"), "default_float": 0.25}
    proto = helper.make_node("LabelEncoder", ["x"], ["y"], "n", domain="ai.onnx.ml", keys_strings=["a", "b"], **given)
    # An empty list does not say of what; only the schema does.
    proto.attribute.append(helper.make_attribute("keys_int64s", [], attr_type=onnx.AttributeProto.INTS))
    whole = model([proto], ["x int64 2"], ["y int64 2"], domains=["ai.onnx.ml"])
    whole.opset_import[1].version = 4
    (loaded,) = load(whole).nodes
    back = {a.name: a for a in node_proto(loaded).attribute}
    assert {a.name: a.type for a in proto.attribute} == {name: a.type for name, a in back.items()}
    assert (list(back["keys_strings"].strings), back["default_float"].f) == ([b"a", b"b"], 0.25)
    assert numpy_helper.to_array(back["values_tensor"].t).tolist() == [1, 2]


def test_an_attribute_that_our_kernel_does_not_know_is_left_to_the_reference_evaluator() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { y = Neg <mystery = 3> (x) }'
    )
    trace = kvviz.run(load(proto), {"x": np.array([1, -2], np.float32)})
    assert trace.steps[0].foreign and trace.outputs["y"].tolist() == [-1, 2]
