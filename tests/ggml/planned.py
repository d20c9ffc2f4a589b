"""Small graphs to plan: tensors of 256 floats, as the allocator was run with."""

from typing import NamedTuple

from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.memory_plan import MemoryPlan
from kvviz.ggml.graph.tensor import INPUT, Tensor, new_tensor
from kvviz.ggml.order.gallocr import plan_memory


def given(name: str) -> Tensor:
    tensor = new_tensor("f32", (256,), name)
    tensor.flags = INPUT
    return tensor


def op(name: str, kind: str, *src: Tensor, view_of: Tensor | None = None, ne: tuple[int, ...] = (256,)) -> Tensor:
    tensor = new_tensor("f32", ne, name)
    tensor.op, tensor.src, tensor.view_src = kind, list(src), view_of
    return tensor


class Planned(NamedTuple):
    graph: ComputeGraph
    plan: MemoryPlan

    def offset(self, tensor: Tensor) -> int:
        return self.plan.places[tensor].offset


def planned(*expanded: Tensor) -> Planned:
    graph = ComputeGraph("planned")
    for tensor in expanded:
        graph.expand(tensor)
    return Planned(graph, plan_memory(graph))
