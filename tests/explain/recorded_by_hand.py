"""Traces of ops that write wherever they are told to, also where no engine would let them: written by hand."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from kvviz.graph.model import Graph, Node, Value
from kvviz.trace.recording import Trace
from kvviz.trace.records import Run
from kvviz.trace.schema.events import IN_PLACE, NEW, VIEW, Bind, FrameEvent, OpNode, Output, Program
from kvviz.trace.schema.log import Log
from kvviz.trace.trace_data import PolicyFacts

CAPACITY = 12
BYTE = np.dtype(np.uint8)


class Written(NamedTuple):
    """An op: the values it reads, and where its output lies; the storage is that of its first input, or a new one."""

    inputs: tuple[str, ...]
    how: int
    offset: int = 0
    shape: tuple[int, ...] = (CAPACITY,)
    strides: tuple[int, ...] = (1,)
    op_type: str = "Op"


def recorded(ops: Sequence[Written]) -> Trace:
    """A run of ops ``n0``, ``n1``, … that make values ``v0``, ``v1``, … of bytes, from an input ``x``."""
    nodes = [
        Node(f"n{i}", op.op_type, "", op.inputs, (f"v{i}",), i, {}, {}, (), 21, None, ()) for i, op in enumerate(ops)
    ]
    x = Value("x", BYTE, (CAPACITY,))
    graph = Graph("hand", (x,), (Value(f"v{len(ops) - 1}"),), tuple(nodes), {})
    records = [OpNode(node, i) for i, node in enumerate(nodes)]
    log = Log()
    log.storages.add(CAPACITY, "donated")
    frame = FrameEvent(Program(graph, records, (f"v{len(ops) - 1}",)), None, None, "", None, 0)
    frame.bindings = (Bind("x", 0, 0, "donated", (CAPACITY,), BYTE, 0),)
    log.frames.append(frame)
    where = {"x": 0}
    for i, op in enumerate(ops):
        if op.how == NEW:
            log.storages.add(CAPACITY, "run")
        where[f"v{i}"] = len(log.storages) - 1 if op.how == NEW else where[op.inputs[0]]
        out = Output(where[f"v{i}"], 0, op.how, op.shape, BYTE, op.offset, op.strides)
        log.write((0, records[i], (0,) if op.how == IN_PLACE else (), (), (out,), (), 0, 0, 0, 0))
    trace = Trace(graph, PolicyFacts("hand"), log)
    trace.runs.append(Run(0, 0, len(ops)))
    return trace


@st.composite
def recordings(draw: st.DrawFn) -> Trace:
    """Random ones, in which ops may overwrite what others still need."""
    ops: list[Written] = []
    for i in range(draw(st.integers(1, 9))):
        names = st.sampled_from(["x", *(f"v{k}" for k in range(i))])
        inputs = tuple(draw(st.lists(names, min_size=1, max_size=3)))
        how = draw(st.sampled_from((IN_PLACE, IN_PLACE, IN_PLACE, VIEW, NEW)))
        region = draw(_regions()) if how != NEW else ((0, (CAPACITY,), (1,)))
        ops.append(Written(inputs, how, *region))
    return recorded(ops)


@st.composite
def _regions(draw: st.DrawFn) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Some bytes of a storage: one axis or two, with gaps and backwards too."""
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=2)))
    strides = tuple(draw(st.sampled_from((1, 2, 3, 4, -1, -2))) for _ in shape)
    reach = [(n - 1) * stride if n else 0 for n, stride in zip(shape, strides)]
    low, high = sum(min(part, 0) for part in reach), sum(max(part, 0) for part in reach)
    if high - low >= CAPACITY:
        return 0, (CAPACITY,), (1,)
    return draw(st.integers(-low, CAPACITY - 1 - high)), shape, strides
