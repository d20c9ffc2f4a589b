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
    from kvviz.ggml.compute_graph import ComputeGraph
    from kvviz.ggml.context import Context
    from kvviz.ggml.executor import Executor, restore_state, saved_state
    from kvviz.ggml.gallocr import plan_memory
    from kvviz.ggml.graph_export import export, to_dot, to_json
    from kvviz.ggml.graph_trace import to_trace
    from kvviz.ggml.kv_cache import KVCache
    from kvviz.ggml.llama_recorder import record
    from kvviz.ggml.open_recording import load
    from kvviz.ggml.recorded_places import recorded_plan
    from kvviz.ggml.reorder_rules import RULES
    from kvviz.ggml.run_graphs import run
    from kvviz.ggml.split_copies import split_graph
    from kvviz.ggml.tensor import Tensor
    from kvviz.ggml.tensor_data import tensor_get, tensor_set
    from kvviz.ggml.what_if import reorder

__all__ = [
    "RULES",
    "ComputeGraph",
    "Context",
    "Executor",
    "KVCache",
    "Tensor",
    "export",
    "load",
    "plan_memory",
    "record",
    "recorded_plan",
    "reorder",
    "restore_state",
    "run",
    "saved_state",
    "split_graph",
    "tensor_get",
    "tensor_set",
    "to_dot",
    "to_json",
    "to_trace",
]

# Where each name stands; it is imported when it is used first.
_PLACES = {
    "RULES": "reorder_rules",
    "ComputeGraph": "compute_graph",
    "Context": "context",
    "Executor": "executor",
    "KVCache": "kv_cache",
    "Tensor": "tensor",
    "export": "graph_export",
    "plan_memory": "gallocr",
    "recorded_plan": "recorded_places",
    "reorder": "what_if",
    "load": "open_recording",
    "record": "llama_recorder",
    "restore_state": "executor",
    "run": "run_graphs",
    "saved_state": "executor",
    "split_graph": "split_copies",
    "tensor_get": "tensor_data",
    "tensor_set": "tensor_data",
    "to_dot": "graph_export",
    "to_json": "graph_export",
    "to_trace": "graph_trace",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'kvviz.ggml' has no attribute {name!r}")
    return getattr(import_module(f"kvviz.ggml.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
