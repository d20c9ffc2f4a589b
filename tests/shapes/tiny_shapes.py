"""Two layers of every family, small enough to run with numbers, and a greedy decode of them by onnxruntime."""

from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import kvviz
from kvviz.graph.model import Graph
from kvviz.shapes import FORMS, Experts, Latent
from tests.ort_session import greedy, session_of

_LIKE = {
    "layers": 2,
    "hidden": 64,
    "inner": 96,
    "vocabulary": 100,
    "heads": 4,
    "kv_heads": 2,
    "head": 16,
    "positions": 64,
}
# Windows are shorter than the prompt, caps and scales bend what they are there to bend.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama-3-8b": _LIKE,
    "qwen2.5-7b": _LIKE,
    "qwen3-8b": _LIKE,
    "mistral-7b": {**_LIKE, "window": 5},
    "gemma-2-2b": {**_LIKE, "window": 5, "score_cap": 2.0, "logit_cap": 3.0, "scale": 0.3},
    "gemma-3-1b": {**_LIKE, "window": 5, "global_every": 2},
    "deepseek-v3": {
        **_LIKE,
        "kv_heads": 4,
        "head": 24,
        "latent": Latent(queries=32, rank=16, rotary=8, plain=16, value=12),
        "experts": Experts(count=4, chosen=2, inner=24, shared=1, first=1, scale=2.5),
    },
    "whisper-large-v3": {**_LIKE, "kv_heads": 4, "encoder_rows": 7},
}
CASES = [
    (name, form)
    for name in FAMILIES
    for form in FORMS
    if form != "gqa" or name not in ("deepseek-v3", "whisper-large-v3")
]
PROMPT = [11, 20, 45, 46, 45, 12, 7, 3]
COUNT = 5


def tiny(name: str, form: str, seed: int | None = 1) -> Graph:
    return kvviz.shapes.preset(name, form=form, dtype="float32", seed=seed, **FAMILIES[name])


def of_the_encoder(graph: Any) -> dict[str, np.ndarray]:
    """Keys and values of the encoder, the same in the layout of every form."""
    random = np.random.default_rng(0)
    found = {}
    for value in graph.inputs:
        if "encoder" in value.name:
            rows = random.standard_normal((1, 7, 4, 16)).astype(np.float32)
            by_head = np.ascontiguousarray(rows.transpose(0, 2, 1, 3))
            found[value.name] = by_head if len(value.shape) == 4 else rows.reshape(1, 7, 64)
    return found


def in_onnxruntime(graph: Any, trace: Any, given: dict[str, np.ndarray]) -> np.ndarray:
    """Scores of each token of a decode, by onnxruntime with one thread; caches as in ``trace``."""
    model = onnx.ModelProto()
    model.CopyFrom(graph.proto)
    for tensor in model.graph.initializer:
        if tensor.data_location:
            tensor.CopyFrom(numpy_helper.from_array(graph.weights[tensor.name], tensor.name))
    onnx.checker.check_model(model, full_check=True)
    caches = {cache.input: cache.output for cache in trace.caches}
    rows = len(PROMPT) + COUNT
    tokens, scores = greedy(session_of(model, rewrite=True), PROMPT, len(trace.tokens), caches, rows, given)
    assert tokens == trace.tokens
    return np.array(scores)
