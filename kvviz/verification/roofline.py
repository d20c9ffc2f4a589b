"""How fast an op moved bytes and computed, beside what this machine can do: which of the two bound it.

Roofs are measured with NumPy: a copy of 64 MB, and a product of two matrices of 512 × 512 numbers. The model of it is
that of Williams, Waterman and Patterson, "Roofline" (2009).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from timeit import repeat

import numpy as np

from kvviz.device.simulated_time import flops
from kvviz.trace.index.value_index import index_of
from kvviz.trace.recording import Trace
from kvviz.trace.schema.element_types import nbytes

# They read as much of their inputs as they write, or only ask for its shape.
_READ_PARTS = frozenset({"Gather", "GatherElements", "GatherND", "Slice", "Shape", "Size"})
# Of its time that an op spends below a roof, where neither explains it.
_LEAST = 0.1


def work_of(trace: Trace, steps: Iterable[int]) -> tuple[int, int, int]:
    """Operations of some steps, bytes that they read and wrote, and how many of these were only copied."""
    index, computed, moved, copied = index_of(trace), 0, 0, 0
    for log in (trace.log[step] for step in steps):
        copied += log.copied
        if not log.written:
            continue
        inputs = [index.places.get((log.frame, name)) for name in log.op.node.inputs]
        shapes = [None if place is None else place.shape for place in inputs]
        computed += flops(log.op.node, shapes, [None if out is None else out.shape for out in log.outs])
        read = sum(nbytes(place.shape, place.dtype) for place in inputs if place is not None)
        moved += log.written + (log.written if log.op.node.op_type in _READ_PARTS else read)
    return computed, moved, copied


def bound_by(computed: int, moved: int, microseconds: float) -> str:
    """What took that time on this machine: ``"memory"``, ``"compute"``, or ``"overhead"`` of calling the kernel."""
    rate, speed = _roofs()
    moving, computing = moved / rate, computed / speed
    if max(moving, computing) * 1e6 < _LEAST * microseconds:
        return "overhead"
    return "memory" if moving > computing else "compute"


@cache
def _roofs() -> tuple[float, float]:
    """Bytes a second that a copy moves here, and operations a second of a product."""
    block, square = np.ones(1 << 24, np.float32), np.ones((512, 512), np.float32)
    other = np.empty_like(block)
    copy = min(repeat(lambda: np.copyto(other, block), number=1, repeat=4))
    product = min(repeat(lambda: square @ square, number=1, repeat=4))
    return 2 * block.nbytes / copy, 2 * 512**3 / product
