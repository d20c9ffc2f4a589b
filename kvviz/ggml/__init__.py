"""ggml: graphs built and run with its semantics, recordings of real ones, and the hidden dependencies in both.

>>> ctx = kvviz.ggml.Context()
>>> k = ctx.new_tensor("f16", 64, 256, name="cache_k")
>>> graph = ctx.new_graph().expand(ctx.set_rows(k, k_cur, k_idxs)).expand(ctx.mul_mat(k, q))
>>> trace = kvviz.ggml.run(graph)
>>> kvviz.hazards(graph)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvviz.ggml.attention_layer import AttentionLayer, LayerForm
    from kvviz.ggml.compute_graph import ComputeGraph
    from kvviz.ggml.context import Context
    from kvviz.ggml.executor import Executor, restore_state, run, saved_state
    from kvviz.ggml.graph_trace import to_trace
    from kvviz.ggml.llama_recorder import record
    from kvviz.ggml.open_recording import load
    from kvviz.ggml.tensor import Tensor
    from kvviz.ggml.tensor_data import tensor_get, tensor_set

__all__ = [
    "AttentionLayer",
    "ComputeGraph",
    "Context",
    "Executor",
    "LayerForm",
    "Tensor",
    "load",
    "record",
    "restore_state",
    "run",
    "saved_state",
    "tensor_get",
    "tensor_set",
    "to_trace",
]

# Where each name stands; it is imported when it is used first.
_PLACES = {
    "AttentionLayer": "attention_layer",
    "ComputeGraph": "compute_graph",
    "Context": "context",
    "Executor": "executor",
    "LayerForm": "attention_layer",
    "Tensor": "tensor",
    "load": "open_recording",
    "record": "llama_recorder",
    "restore_state": "executor",
    "run": "executor",
    "saved_state": "executor",
    "tensor_get": "tensor_data",
    "tensor_set": "tensor_data",
    "to_trace": "graph_trace",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'kvviz.ggml' has no attribute {name!r}")
    return getattr(import_module(f"kvviz.ggml.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
