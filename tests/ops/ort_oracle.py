"""onnxruntime as an oracle for single operators: one node, one thread, no graph optimisation."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.ort_session import session_of

IR_VERSION = 10
_BY_ORT_NAME = {
    "tensor(bfloat16)": TensorProto.BFLOAT16,
    "tensor(float8e4m3fn)": TensorProto.FLOAT8E4M3FN,
    "tensor(float8e4m3fnuz)": TensorProto.FLOAT8E4M3FNUZ,
    "tensor(float8e5m2)": TensorProto.FLOAT8E5M2,
    "tensor(float8e5m2fnuz)": TensorProto.FLOAT8E5M2FNUZ,
    "tensor(int4)": TensorProto.INT4,
    "tensor(uint4)": TensorProto.UINT4,
}

_SATURATES = frozenset(
    {"DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat", "QLinearConv"}
)
"""Products of unsigned with signed bytes, which onnxruntime saturates on x86 without VNNI.

It multiplies exactly on every machine where ``session.x64quantprecision`` is set, the signed weights are constants, and
the rewriting of level 2 is on: that makes the weights unsigned.
"""

Inputs = Sequence[np.ndarray | None]


def one_node_model(
    op_type: str, inputs: Sequence[Any], n_outputs: int = 1, opset: int = 21, domain: str = "", version: int = 1,
    **attributes: Any,
) -> ModelProto:  # fmt: skip
    """A model of one node whose inputs are ``x0, x1, …`` and whose outputs are ``y0, y1, …``.

    An input that is None becomes the empty name, which is ONNX's absent optional input. Shapes are those of the inputs.
    Inputs of a type that NumPy lacks (bfloat16, float8, int4) become initializers, as do signed weights of a product
    that is exact only then.
    """
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    outputs = [f"y{i}" for i in range(n_outputs)]
    given = [(name, x if isinstance(x, list) else np.asarray(x)) for name, x in zip(names, inputs) if x is not None]
    fixed = [not _is_fed(op_type, i, x) for i, x in enumerate(inputs) if x is not None]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, outputs, domain=domain, **attributes)],
        "one",
        [_input(name, x) for (name, x), constant in zip(given, fixed) if not constant],
        [_output(op_type, i, name) for i, name in enumerate(outputs)],
        [numpy_helper.from_array(x, name) for (name, x), constant in zip(given, fixed) if constant],
    )
    imports = [helper.make_opsetid("", opset)]
    if domain:
        imports.append(helper.make_opsetid(domain, version))
    return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=imports)


def _input(name: str, x: Any) -> onnx.ValueInfoProto:
    """An array, or a list of arrays, which is a sequence."""
    if isinstance(x, list):
        kind = helper.np_dtype_to_tensor_dtype(x[0].dtype) if x else TensorProto.FLOAT
        return helper.make_tensor_sequence_value_info(name, kind, None)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)


def _output(op_type: str, position: int, name: str) -> onnx.ValueInfoProto:
    """An output whose type is inferred, but for the scores of MultiHeadAttention, which may be of another type."""
    if (op_type, position) == ("MultiHeadAttention", 3):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    return onnx.ValueInfoProto(name=name)


def ort_run(
    op_type: str, inputs: Inputs, n_outputs: int = 1, opset: int = 21, domain: str = "", **attributes: Any
) -> list[np.ndarray]:
    """What onnxruntime computes for one operator of ``opset``, or of version 1 of another domain.

    An input of None is absent; ml_dtypes arrays (bfloat16, float8, int4) are accepted.
    """
    model = one_node_model(op_type, inputs, n_outputs, opset, domain, **attributes)
    session = _session(model.SerializeToString(deterministic=True), op_type in _SATURATES)
    exotic = {arg.name: _BY_ORT_NAME[arg.type] for arg in session.get_outputs() if arg.type in _BY_ORT_NAME}
    if exotic:
        session = _session(_with_float_outputs(model, exotic).SerializeToString(deterministic=True))
    feeds = {f"x{i}": np.asarray(x) for i, x in enumerate(inputs) if x is not None and _is_fed(op_type, i, x)}
    results = session.run(None, feeds)
    for i, result in enumerate(results):
        if f"y{i}" in exotic:
            results[i] = result.astype(helper.tensor_dtype_to_np_dtype(exotic[f"y{i}"]))
    return results


def _is_fed(op_type: str, position: int, x: Any) -> bool:
    """Whether an input is one of the model's, not an initializer."""
    if isinstance(x, list):
        return True
    dtype = np.asarray(x).dtype
    signed_weight = position > 0 and dtype == np.int8 and op_type in _SATURATES
    return dtype.type.__module__ == "numpy" and not signed_weight


def _with_float_outputs(model: ModelProto, exotic: dict[str, int]) -> ModelProto:
    """The model with outputs that NumPy cannot hold cast to float32, which loses nothing for up to 16 bits."""
    wide = ModelProto()
    wide.CopyFrom(model)
    for value in wide.graph.output:
        if value.name in exotic:
            wide.graph.node.append(helper.make_node("Cast", [value.name], [f"{value.name}_wide"], to=TensorProto.FLOAT))
            value.name = f"{value.name}_wide"
    return wide


@lru_cache(maxsize=256)
def _session(model: bytes, exact_bytes: bool = False) -> onnxruntime.InferenceSession:
    if not exact_bytes:
        return session_of(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
