"""Models in onnxruntime, the oracle of results: on the CPU, with one thread."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
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


def greedy(
    session: onnxruntime.InferenceSession,
    prompt: Sequence[int],
    count: int,
    caches: Mapping[str, str],
    rows: int = 0,
    given: Mapping[str, np.ndarray] | None = None,
) -> tuple[list[int], list[np.ndarray]]:
    """Tokens and scores of a greedy decode, whose caches (input to output) have so many ``rows`` at first."""
    wanted, names = {v.name: v for v in session.get_inputs()}, [v.name for v in session.get_outputs()]
    lengths = {"batch": 1, "batch_size": 1, "rows": rows}
    shapes = {name: [n if isinstance(n, int) else lengths.get(n, 0) for n in wanted[name].shape] for name in caches}
    held = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    tokens, scores, past = list(prompt), [], 0
    for _ in range(count):
        total = len(tokens)
        feeds = {
            "input_ids": np.array([tokens[past:]]),
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(past, total)[None],
            "cache_position": np.arange(past, total),
            "write_indices": np.array([past]),
            "nonpad_kv_seqlen": np.array([total]),
            "use_cache_branch": np.array([past > 0]),
        }
        control = {name: value for name, value in feeds.items() if name in wanted}
        made = dict(zip(names, session.run(None, {**control, **(given or {}), **held})))
        held, past = {name: made[output] for name, output in caches.items()}, total
        scores.append(made["logits"][0, -1])
        tokens.append(int(scores[-1].argmax()))
    return tokens[len(prompt) :], scores
