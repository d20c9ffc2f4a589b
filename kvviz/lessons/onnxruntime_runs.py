"""The same in ONNX Runtime on the CPU: a session, and a run with one buffer bound to an input and to an output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from kvviz.errors import KvvizError


def session_of(model: str | bytes, order: str = "DEFAULT") -> Any:
    """A session in one thread; weights in a file are mapped.

    ``order``: ``"DEFAULT"`` or ``"PRIORITY_BASED"``, ONNX Runtime's execution orders.
    """
    try:
        import onnxruntime as ort
    except ImportError:
        raise KvvizError("onnxruntime is not installed: pip install 'kvviz[ort]'") from None
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.disable_prepacking", "1")  # it would copy the weights
    options.execution_order = getattr(ort.ExecutionOrder, order)
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_bound(
    proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray], bound: Mapping[str, str], order: str = "DEFAULT"
) -> dict[str, np.ndarray]:
    """Run a model with outputs in the buffers of inputs, which ONNX Runtime does not check, and give all outputs.

    It is the counterpart of a policy of `kvviz.engine.io_binding.bind`. ``bound``: input by output.
    """
    session = session_of(proto.SerializeToString(), order)
    from onnxruntime import OrtValue

    values = {name: OrtValue.ortvalue_from_numpy(array.copy()) for name, array in feeds.items()}
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    names = [output.name for output in session.get_outputs()]
    for name in names:
        if name in bound:
            binding.bind_ortvalue_output(name, values[bound[name]])
        else:
            binding.bind_output(name)
    session.run_with_iobinding(binding)
    return dict(zip(names, binding.copy_outputs_to_cpu(), strict=True))
