"""The same in ONNX Runtime on the CPU: a session, and a run with one buffer bound to an input and to an output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from kvviz.text import needed


def session_of(model: str | bytes, order: str = "DEFAULT") -> Any:
    """A session in one thread; weights in a file are mapped.

    ``order``: ``"DEFAULT"`` or ``"PRIORITY_BASED"``, ONNX Runtime's execution orders.
    """
    ort = needed("onnxruntime", "ort")
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

    It is the counterpart of a policy of `kvviz.engine.sessions.io_binding.bind`. ``bound``: input by output.
    """
    session = session_of(proto.SerializeToString(), order)
    # An OrtValue does not keep the array that it was made from.
    buffers = {name: array.copy() for name, array in feeds.items()}
    return {name: value.numpy().copy() for name, value in bound_values(session, buffers, bound).items()}


def bound_values(session: Any, feeds: Mapping[str, Any], bound: Mapping[str, str]) -> dict[str, Any]:
    """Run a session with IO binding, and give all outputs as OrtValues.

    ``feeds``: arrays, whose memory is used as it is and has to be kept, or OrtValues.
    ``bound``: input by output.
    """
    make = needed("onnxruntime", "ort").OrtValue.ortvalue_from_numpy
    values = {name: make(value) if isinstance(value, np.ndarray) else value for name, value in feeds.items()}
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
    return dict(zip(names, binding.get_outputs(), strict=True))
