"""One buffer bound to an input and to an output in ONNX Runtime, which then checks nothing: the counterpart of a policy
that `kvviz.engine.io_binding.bind` made."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from kvviz.errors import KvvizError


def run_bound(
    proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray], bound: Mapping[str, str], order: str = "DEFAULT"
) -> dict[str, np.ndarray]:
    """Run a model in ONNX Runtime on the CPU with outputs in the buffers of inputs.

    Parameters
    ----------
    bound : mapping
        Input by output.
    order : str
        ``"DEFAULT"`` or ``"PRIORITY_BASED"``: ONNX Runtime's execution orders.

    Returns
    -------
    dict of str to ndarray
        All outputs.

    Raises
    ------
    KvvizError
        If onnxruntime is not installed.
    """
    try:
        import onnxruntime as ort
    except ImportError:
        raise KvvizError("onnxruntime is not installed: pip install 'kvviz[ort]'") from None
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.execution_order = getattr(ort.ExecutionOrder, order)
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    values = {name: ort.OrtValue.ortvalue_from_numpy(array.copy()) for name, array in feeds.items()}
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
