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
    from kvviz.ggml.graph.compute_graph import ComputeGraph as ComputeGraph
    from kvviz.ggml.graph.context import Context as Context
    from kvviz.ggml.graph.graph_trace import to_trace as to_trace
    from kvviz.ggml.graph.tensor import Tensor as Tensor
    from kvviz.ggml.graph.tensor_data import tensor_get as tensor_get
    from kvviz.ggml.graph.tensor_data import tensor_set as tensor_set
    from kvviz.ggml.kv_cache import KVCache as KVCache
    from kvviz.ggml.order.gallocr import plan_memory as plan_memory
    from kvviz.ggml.order.gallocr import recorded_plan as recorded_plan
    from kvviz.ggml.order.graph_recipe import run as run
    from kvviz.ggml.order.graph_session import Executor as Executor
    from kvviz.ggml.order.graph_session import restore_state as restore_state
    from kvviz.ggml.order.graph_session import saved_state as saved_state
    from kvviz.ggml.order.reorder_rules import RULES as RULES
    from kvviz.ggml.order.split_copies import split_graph as split_graph
    from kvviz.ggml.order.what_if import reorder as reorder
    from kvviz.ggml.recording.graph_export import export as export
    from kvviz.ggml.recording.graph_export import to_dot as to_dot
    from kvviz.ggml.recording.graph_export import to_json as to_json
    from kvviz.ggml.recording.llama_recorder import record as record
    from kvviz.ggml.recording.open_recording import load as load

# The names that each module gives; it is imported when one of them is used first.
_GIVES = {
    "graph.compute_graph": ("ComputeGraph",),
    "graph.context": ("Context",),
    "graph.graph_trace": ("to_trace",),
    "graph.tensor": ("Tensor",),
    "graph.tensor_data": ("tensor_get", "tensor_set"),
    "kv_cache": ("KVCache",),
    "order.gallocr": ("plan_memory", "recorded_plan"),
    "order.graph_recipe": ("run",),
    "order.graph_session": ("Executor", "restore_state", "saved_state"),
    "order.reorder_rules": ("RULES",),
    "order.split_copies": ("split_graph",),
    "order.what_if": ("reorder",),
    "recording.graph_export": ("export", "to_dot", "to_json"),
    "recording.llama_recorder": ("record",),
    "recording.open_recording": ("load",),
}
_PLACES = {name: module for module, names in _GIVES.items() for name in names}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'kvviz.ggml' has no attribute {name!r}")
    return getattr(import_module(f"kvviz.ggml.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
