"""What a dry run must agree with the real one on."""

from typing import Any

import numpy as np

from kvviz import Trace
from kvviz.trace.schema.regions import packed_strides


def steps_of(out: Any) -> list[int]:
    """The strides of an output along the axes on which it steps; NumPy leaves those of all others as they came."""
    if out.shape is None or 0 in out.shape:
        return []
    strides = out.strides or packed_strides(out.shape, np.dtype(out.dtype).itemsize)
    return [stride for n, stride in zip(out.shape, strides) if n > 1]


def facts(trace: Trace) -> list[tuple[Any, ...]]:
    """All that a trace says of its steps: decisions with their reasons, places, bytes."""
    return [
        (
            *(step.node, step.frame, step.decision.dispatch, step.decision.taken),
            tuple((blocker.code, blocker.input, blocker.message) for blocker in step.decision.blockers),
            *(step.allocated, step.copied, step.written, step.live_bytes, tuple(step.freed)),
            tuple((o.storage, o.generation, o.how, o.offset, o.shape, steps_of(o), o.dtype) for o in step.outs),
        )
        for step in trace.steps
    ]


def said(trace: Trace, caches: bool = True) -> dict[str, Any]:
    """Every figure, decision, reason, life of a storage and cache meter."""
    return {
        "steps": facts(trace),
        "totals": (trace.peak_bytes, trace.bytes_copied, trace.bytes_written, trace.bytes_allocated),
        "bindings": [frame.bindings for frame in trace.frames],
        "storages": [(s.capacity, s.origin, s.born, s.freed) for s in trace.storages],
        "caches": [(cache.name, cache.runs) for cache in trace.caches if caches],
    }


def assert_agree(dry: Trace, real: Trace, caches: bool = True) -> None:
    """Both say the same; the meters of ``caches`` may look at a mask, which a dry run has not."""
    assert dry.dry and not real.dry
    assert said(dry, caches) == said(real, caches)
