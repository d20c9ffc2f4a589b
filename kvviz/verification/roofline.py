"""How fast each op of a run moved bytes and computed, beside what this machine can do: which of the two bound it.

Roofs are measured with NumPy: a copy of 64 MB, and a product of two matrices of 512 × 512 numbers. The model of it is
that of Williams, Waterman and Patterson, "Roofline" (2009).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from timeit import repeat

import numpy as np

from kvviz.device.simulated_time import flops
from kvviz.trace.element_types import nbytes
from kvviz.trace.recording import Trace
from kvviz.trace.value_index import index_of

# They read as much of their inputs as they write, or only ask for its shape.
_READ_PARTS = frozenset({"Gather", "GatherElements", "GatherND", "Slice", "Shape", "Size"})
# Of its time that an op spends below a roof, where neither explains it.
_LEAST = 0.1


@dataclass(frozen=True, slots=True)
class Work:
    """Operations, bytes read and written, the microseconds that both took, and how many of the bytes were copied."""

    flops: int
    moved: int
    microseconds: float
    copied: int = 0

    @property
    def intensity(self) -> float:
        """Operations for each byte."""
        return self.flops / max(self.moved, 1)

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.moved * 1e6 / self.microseconds if self.microseconds else 0.0

    @property
    def bound(self) -> str:
        """What took its time on this machine: ``"memory"``, ``"compute"``, or ``"overhead"`` of calling the kernel."""
        rate, speed = _roofs()
        moving, computing = self.moved / rate, self.flops / speed
        if max(moving, computing) * 1e6 < _LEAST * self.microseconds:
            return "overhead"
        return "memory" if moving > computing else "compute"


def work_of(trace: Trace, steps: Iterable[int], microseconds: float) -> Work:
    """What steps did in a time."""
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
    return Work(computed, moved, microseconds, copied)


@cache
def _roofs() -> tuple[float, float]:
    """Bytes a second that a copy moves here, and operations a second of a product."""
    block, square = np.ones(1 << 24, np.float32), np.ones((512, 512), np.float32)
    other = np.empty_like(block)
    copy = min(repeat(lambda: np.copyto(other, block), number=1, repeat=4))
    product = min(repeat(lambda: square @ square, number=1, repeat=4))
    return 2 * block.nbytes / copy, 2 * 512**3 / product
