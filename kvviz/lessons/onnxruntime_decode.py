"""The same greedy decode in ONNX Runtime: past in, present out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kvviz.errors import KvvizError
from kvviz.graph.cache_pairs import control_inputs, logits_output
from kvviz.graph.model import Graph
from kvviz.lessons.serving.forward_pass import empty_rows, pairs_of


def decode_in_onnxruntime(
    path: str | Path, graph: Graph, prompt: Sequence[int], count: int
) -> tuple[list[int], list[np.ndarray]]:
    """Decode a model file on the CPU, in one thread, with weights mapped.

    Parameters
    ----------
    path : path
        The model.
    graph : Graph
        The same, loaded: its caches have to grow row by row.
    prompt : sequence of int
    count : int
        Tokens to make.

    Returns
    -------
    list of int
        The new tokens.
    list of ndarray
        Logits behind each, (vocabulary,).

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
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.disable_prepacking", "1")  # so that it maps the weights too
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
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
