"""What a run did to each cache: rows reserved and valid, bytes moved and stored, and the storage that it lives in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kvviz.engine.reasons import placed_before
from kvviz.engine.records import Cache, CacheRun
from kvviz.engine.rows import APPEND, NEW, POOL
from kvviz.engine.trace import Trace
from kvviz.graph.caches import CachePair
from kvviz.graph.model import Node
from kvviz.memory.storage import find_room, root_of

# Position of the past among the inputs, by the position of the output that carries it on.
PAST = {
    "Concat": {0: 0},
    "ScatterND": {0: 0},
    "ScatterElements": {0: 0},
    "Scatter": {0: 0},
    "TensorScatter": {0: 0},
    "Attention": {1: 4, 2: 5},
    "MultiHeadAttention": {1: 6, 2: 7},
    "GroupQueryAttention": {1: 3, 2: 4},
}
MOVES = {"Transpose", "Reshape", "Identity", "Squeeze", "Unsqueeze", "Slice", "Cast", "Expand", "Flatten", "Split"}


def new_caches(pairs: tuple[CachePair, ...]) -> list[Cache]:
    """Empty meters, one a cache pair."""
    return [Cache(pair.name, pair.input, pair.output, pair.protocol, pair.axis) for pair in pairs]


def read_meters(trace: Trace, feeds: dict[str, Any], valid: int | None = None) -> None:
    """Add one entry for the last run to every cache of a trace.

    Parameters
    ----------
    trace : Trace
        Its ``outputs`` are those of the run.
    feeds : dict
        The run's inputs.
    valid : int, optional
        Rows that hold real tokens now; the present's length where it is not given.
    """
    run = len(trace.runs) - 1
    frame = next((i for i, row in enumerate(trace.recorder.frames) if row.run == run and row.parent is None), None)
    for cache in trace.caches:
        present = trace.outputs.get(cache.output)
        dummy = isinstance(present, np.ndarray) and not present.size and cache.protocol == "cross"
        if dummy or not isinstance(present, np.ndarray):
            # Not given back, or (cross-attention in the cached branch of a merged decoder) only as an empty dummy.
            present = feeds.get(cache.input)
        if not isinstance(present, np.ndarray):
            continue
        rows = present.shape[cache.axis] if cache.axis is not None else 1
        room = find_room(root_of(present), present)
        capacity = room.rows if room is not None and room.axis == cache.axis else rows
        moved = stored = 0
        storage = -1
        if frame is not None:
            for copied, written in _chain(trace, frame, cache.output):
                moved += copied
                stored += written
            where = placed_before(trace, frame, cache.output, len(trace.recorder.rows))
            storage = where[0] if where else -1
        real = rows if valid is None or cache.protocol in ("cross", "state") or cache.axis is None else min(valid, rows)
        cache.runs.append(CacheRun(capacity, real, moved, stored, storage))


def _chain(trace: Trace, frame: int, name: str) -> Iterator[tuple[int, int]]:
    """(copied, written) of each step that carried a cache from its input to its output, last step first."""
    rows = trace.recorder.rows
    here = placed_before(trace, frame, name, len(rows))
    size = _nbytes(here[2], here[3]) if here is not None else 0
    while True:
        graph = trace.recorder.frames[frame].plan.graph
        node = graph.producers.get(name)
        if node is None:
            return
        step = trace.step_of(frame, node.index)
        if step is None:
            return
        position = node.outputs.index(name)
        if rows[step][1].control:
            inner = _last_body(trace, frame, node)
            if inner is None:
                return
            body = trace.recorder.frames[inner].plan.graph
            offset = 1 if node.op_type == "Loop" else 0
            yield from _chain(trace, inner, body.outputs[position + offset].name)
            return
        past = PAST.get(node.op_type, {}).get(position)
        if past is not None:
            yield _writer(trace, frame, step, node, position, past)
        elif node.op_type in MOVES:
            yield rows[step][7], rows[step][8]
            past = 0
        else:
            # What computed the rows may have computed more, as one projection of queries, keys and values does.
            yield 0, min(rows[step][8], size) if len(node.outputs) == 1 else 0
            return
        if past >= len(node.inputs) or not node.inputs[past]:
            return
        name = node.inputs[past]


def _writer(trace: Trace, frame: int, step: int, node: Node, position: int, past: int) -> tuple[int, int]:
    """Bytes that a cache-writing op moved and stored for one of its presents."""
    row = trace.recorder.rows[step]
    if len(node.outputs) == 1:
        return row[7], row[8]
    where = row[4][position]
    if where is None or where[3] is None:
        return 0, 0
    size = _nbytes(where[3], where[4])
    name = node.inputs[past] if past < len(node.inputs) else ""
    before = placed_before(trace, frame, name, step) if name else None
    had = _nbytes(before[2], before[3]) if before is not None and before[2] is not None else 0
    if where[2] == APPEND:
        return 0, size - had
    if where[2] in (NEW, POOL):
        return had, size
    return row[7], row[8]


def _last_body(trace: Trace, frame: int, node: Node) -> int | None:
    found = None
    for index, row in enumerate(trace.recorder.frames):
        if row.parent == frame and row.caller is not None and row.caller.node is node:
            found = index
    return found


def _nbytes(shape: tuple[int, ...] | None, dtype: Any) -> int:
    return int(np.prod(shape or (1,), dtype=np.int64)) * np.dtype(dtype).itemsize if shape is not None else 0
