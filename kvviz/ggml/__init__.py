"""ggml: graphs built and run with its semantics, recordings of real ones, and the hidden dependencies in both.

>>> ctx = kvviz.ggml.Context()
>>> k = ctx.new_tensor("f16", 64, 256, name="cache_k")
>>> graph = ctx.new_graph().expand(ctx.set_rows(k, k_cur, k_idxs)).expand(ctx.mul_mat(k, q))
>>> trace = kvviz.ggml.run(graph)
>>> kvviz.hazards(graph)
"""

from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.context import Context
from kvviz.ggml.graph.graph_trace import to_trace
from kvviz.ggml.graph.tensor import Tensor
from kvviz.ggml.graph.tensor_data import tensor_get, tensor_set
from kvviz.ggml.kv_cache import KVCache
from kvviz.ggml.order.gallocr import plan_memory, recorded_plan
from kvviz.ggml.order.graph_recipe import run
from kvviz.ggml.order.graph_session import Executor, restore_state, saved_state
from kvviz.ggml.order.reorder_rules import RULES
from kvviz.ggml.order.split_copies import split_graph
from kvviz.ggml.order.what_if import reorder
from kvviz.ggml.recording.graph_export import export, to_dot, to_json
from kvviz.ggml.recording.llama_recorder import record
from kvviz.ggml.recording.open_recording import load

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


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
