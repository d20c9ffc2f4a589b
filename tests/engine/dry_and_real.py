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


def assert_agree(dry: Trace, real: Trace) -> None:
    """Every figure, decision, reason, life of a storage and cache meter."""
    assert_steps_agree(dry, real)
    assert [(c.name, c.runs) for c in dry.caches] == [(c.name, c.runs) for c in real.caches]


def assert_steps_agree(dry: Trace, real: Trace) -> None:
    """All but the cache meters, which may look at a mask."""
    assert dry.dry and not real.dry
    for mine, theirs in zip(facts(dry), facts(real)):
        assert mine == theirs
    assert len(dry.steps) == len(real.steps)
    assert dry.peak_bytes == real.peak_bytes
    assert (dry.bytes_copied, dry.bytes_written, dry.bytes_allocated) == (
        real.bytes_copied,
        real.bytes_written,
        real.bytes_allocated,
    )
    assert [frame.bindings for frame in dry.frames] == [frame.bindings for frame in real.frames]
    assert [(s.capacity, s.origin, s.born, s.freed) for s in dry.storages] == [
        (s.capacity, s.origin, s.born, s.freed) for s in real.storages
    ]
