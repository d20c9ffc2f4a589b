"""A plan whose tensors lie where a recording found them, instead of where this one graph alone would put them.

llama.cpp reserves for the largest graph that it may run and keeps those places for smaller ones
(``ggml_gallocr_needs_realloc``); what runs in place and what is freed when is the same in both.
"""

from __future__ import annotations

from dataclasses import replace

from kvviz.errors import KvvizError
from kvviz.ggml.compute_graph import ComputeGraph
from kvviz.ggml.gallocr import plan_memory
from kvviz.ggml.memory_plan import MemoryPlan


def recorded_plan(graph: ComputeGraph) -> MemoryPlan:
    """The decisions of the allocator for a recorded graph, at the recorded places.

    Raises
    ------
    KvvizError
        If a tensor that the allocator would place was recorded without a place, or not where what it takes over is.
    """
    plan = plan_memory(graph)
    places, sizes = {}, dict(plan.sizes)
    for tensor, place in plan.places.items():
        if tensor.address is None:
            raise KvvizError(f"tensor {tensor.name!r} of {graph.title!r} was recorded without its place")
        if place.source is not None and place.source.address != tensor.address:
            raise KvvizError(
                f"tensor {tensor.name!r} of {graph.title!r} would take over {place.source.name!r} at "
                f"{place.source.address}, but was recorded at {tensor.address}: its buffer has another allocator"
            )
        places[tensor] = place._replace(offset=tensor.address)
        key = place.buffer, place.chunk
        sizes[key] = max(sizes.get(key, 0), tensor.address + tensor.nbytes)
    return replace(plan, places=places, sizes=sizes)
