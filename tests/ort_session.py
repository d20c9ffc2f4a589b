"""Models in onnxruntime, the oracle of results: on the CPU, with one thread."""

from pathlib import Path

import onnx
import onnxruntime


def session_of(model: onnx.ModelProto | bytes | Path, *, rewrite: bool = False) -> onnxruntime.InferenceSession:
    """A session; nothing in the graph is rewritten unless ``rewrite``."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if not rewrite:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
