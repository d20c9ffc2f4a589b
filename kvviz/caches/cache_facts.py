from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from kvviz.caches.path_search import Link, Reader, Way, way_of
from kvviz.caches.row_contents import count, live, minus
from kvviz.errors import quoted
from kvviz.trace.index.frame_values import RunFrames
from kvviz.trace.reasons import placed_before
from kvviz.trace.recording import Trace
from kvviz.trace.records import Cache, CacheRun, Span

_INDEX = {"TensorScatter": 2, "ScatterND": 1, "ScatterElements": 1, "MultiHeadAttention": 8, "GroupQueryAttention": 5}


@dataclass
class Scene:
    trace: Trace
    frames: RunFrames
    cache: Cache
    entry: CacheRun

    @cached_property
    def way(self) -> Way:
        return way_of(self.trace, self.frames, self.cache)

    @property
    def first_way(self) -> Way:
        return way_of(self.trace, RunFrames(self.trace, 0), self.cache)

    @cached_property
    def rows(self) -> int:
        """Rows of the cache after the run, without reserved ones."""
        shape = self._shape(self.cache.output)
        return self.entry.capacity if shape is None else shape

    @cached_property
    def past_rows(self) -> int | None:
        return self._shape(self.cache.input)

    @property
    def past_block(self) -> tuple[int, int, str] | None:
        """The storage of the cache's input: its number, its reserved rows, and whether it was donated."""
        rows = reserved_rows(self.trace, self.frames.run, self.cache)
        bound = self.frames.rows[0].bound(self.cache.input)
        return None if bound is None or bound.shape is None else (bound.storage, rows, bound.how)

    @cached_property
    def readers(self) -> list[Reader]:
        return [reader for reader in self.way.readers if self.step(reader.frame, reader.node.index) is not None]

    @cached_property
    def writers(self) -> list[tuple[int, Link]]:
        found = [(self.step(link.frame, link.node.index), link) for link in self.way.links]
        return sorted(((step, link) for step, link in found if step is not None), key=lambda one: one[0])

    def reads_what_it_wrote(self) -> bool:
        """Whether attention reads the cache with the run's new rows in it, not separately."""
        return bool(self.readers) and not any(
            link.kind == "write" and link.node is not reader.node for reader in self.readers for link in reader.after
        )

    def index_input(self) -> str:
        for _, link in self.writers:
            place = _INDEX.get(link.node.op_type)
            if link.kind == "write" and place is not None and link.node.given(place):
                return quoted(link.node.inputs[place], 60)
        return "the index"

    def step(self, frame: int, index: int) -> int | None:
        return self.trace.step_of(self.frames.first + frame, index)

    def _shape(self, name: str) -> int | None:
        place = placed_before(self.trace, self.frames.first, name, len(self.trace.log))
        axis = self.cache.axis
        if place is None or place.shape is None or axis is None or not -len(place.shape) <= axis < len(place.shape):
            return None
        length: int = place.shape[axis]
        return length


def reserved_rows(trace: Trace, run: int, cache: Cache) -> int:
    """Rows of the buffer that a cache enters a run in, old ones included, if it was reserved for the cache; else 0.
    `kvviz.reserve`, ``kv_capacity`` and growth after a run reserve rows. A view into a larger buffer has no room."""
    if not run:
        layout = trace.options.layouts.get(cache.input)
        room = None if layout is None else layout.room
        return room[1] if room is not None and room[0] == cache.axis else 0
    before = cache.runs[run - 1]
    if not before.bytes_moved_outside:
        return before.capacity
    bound = RunFrames(trace, run).rows[0].bound(cache.input)
    if bound is None or bound.shape is None:
        return 0
    row = prod(n for axis, n in enumerate(bound.shape) if axis != cache.axis) * np.dtype(str(bound.dtype)).itemsize
    return trace.log.storages[bound.storage].capacity // row if row else 0


def rows_given(trace: Trace, cache: Cache) -> tuple[int, int]:
    """Rows of a cache that held tokens before the first run, and rows that there was room for. Rows whose tokens that
    run overwrote are not counted."""
    frames = RunFrames(trace, 0).rows
    bound = frames[0].bound(cache.input) if frames else None
    if bound is None or not bound.shape or cache.axis is None:
        return 0, 0
    axis = cache.axis % len(bound.shape)
    rows = bound.shape[axis]
    if not cache.runs:
        # The tokens of a static cache are known after the run.
        return rows if cache.protocol == "growing" else 0, rows
    first = cache.runs[0]
    tokens = max((count(minus(live(item.held), item.wrote)) for item in first.items), default=rows)
    return min(tokens, rows), max(rows, reserved_rows(trace, 0, cache))


def spans_text(spans: Sequence[Span]) -> str:
    """``row 3``, ``rows 3 to 7, row 9``; the first three of many."""
    parts = [f"row {a}" if b - a == 1 else f"rows {a} to {b - 1}" for a, b in spans[:3]]
    return ", ".join(parts) + (", …" if len(spans) > 3 else "")
