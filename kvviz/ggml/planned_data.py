"""The bytes of a planned graph: every tensor's data is a part of the buffer that the plan puts it into."""

from __future__ import annotations

import numpy as np

from kvviz.ggml.memory_plan import MemoryPlan


def place_data(plan: MemoryPlan) -> None:
    """Give the tensors of a plan their memory. What leafs hold is carried over; the rest of the memory is zero."""
    arenas = {key: np.zeros(size, np.uint8) for key, size in plan.sizes.items()}
    for tensor, place in plan.places.items():
        part = arenas[place.buffer, place.chunk][place.offset : place.offset + place.size]
        if tensor.op == "NONE" and tensor.data is not None:
            part[...] = tensor.data
        tensor.data = part
