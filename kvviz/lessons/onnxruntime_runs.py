"""The same in ONNX Runtime on the CPU: one buffer bound to an input and to an output, and a greedy decode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from kvviz.errors import KvvizError
from kvviz.graph.cache_pairs import control_inputs, logits_output
from kvviz.graph.model import Graph
from kvviz.lessons.serving.forward_pass import empty_rows, pairs_of


def _session(model: str | bytes, order: str = "DEFAULT") -> tuple[Any, Any]:
    """onnxruntime, and a session of it in one thread; weights in a file are mapped."""
    try:
        import onnxruntime as ort
    except ImportError:
        raise KvvizError("onnxruntime is not installed: pip install 'kvviz[ort]'") from None
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.disable_prepacking", "1")  # it would copy the weights
    options.execution_order = getattr(ort.ExecutionOrder, order)
    return ort, ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_bound(
    proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray], bound: Mapping[str, str], order: str = "DEFAULT"
) -> dict[str, np.ndarray]:
    """Run a model with outputs in the buffers of inputs, which ONNX Runtime does not check, and give all outputs.

    It is the counterpart of a policy of `kvviz.engine.io_binding.bind`. ``bound``: input by output.
    ``order``: ``"DEFAULT"`` or ``"PRIORITY_BASED"``, ONNX Runtime's execution orders.
    """
    ort, session = _session(proto.SerializeToString(), order)
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


def decode_in_onnxruntime(
    path: str | Path, graph: Graph, prompt: Sequence[int], count: int
) -> tuple[list[int], list[np.ndarray]]:
    """Decode a model file greedily; gives the new tokens, and the logits behind each, (vocabulary,).

    ``graph``: the same model, loaded: its caches have to grow row by row.
    """
    _, session = _session(str(path))
    names = [value.name for value in session.get_outputs()]
    roles, rows = control_inputs(graph), empty_rows(graph)
    said, new, scores = list(prompt), list(prompt), list[np.ndarray]()
    for _ in range(count):
        made: dict[str, Any] = {
            "tokens": np.array([new]),
            "attention_mask": np.ones((1, len(said)), np.int64),
            "position_ids": np.arange(len(said) - len(new), len(said))[None],
        }
        feeds = {name: made[role] for role, name in roles.items() if role in made}
        found = dict(zip(names, session.run(None, {**feeds, **rows}), strict=True))
        scores.append(found[logits_output(graph) or "logits"][0, -1])
        rows = {pair.input: found[pair.output] for pair in pairs_of(graph)}
        new = [int(scores[-1].argmax())]
        said += new
    return said[len(prompt) :], scores
