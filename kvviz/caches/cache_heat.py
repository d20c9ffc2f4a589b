"""Caches row by row: what each row holds after a run, and how much attention a query gave to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from kvviz.caches.control_values import Known
from kvviz.caches.path_search import Reader, way_of
from kvviz.caches.row_contents import NO_TOKEN
from kvviz.caches.visible_rows import Sight, cut_of, sight_of
from kvviz.errors import ReplayError
from kvviz.trace.index.frame_values import RunFrames
from kvviz.trace.recording import Trace
from kvviz.trace.records import Cache

RESERVED, VALID, STALE = 0, 1, 2
"""State of a row: never written; holds a live token; holds other data. More bits may be added."""

WRITTEN, OUTSIDE, WRAPPED, READ = 4, 8, 16, 32
"""Written in this run; holds a live token that no query of the run sees; its token replaced an older one; at least one
query may see it."""

_SCORES = {"Attention": 3, "GroupQueryAttention": 3, "MultiHeadAttention": 3}


@dataclass(frozen=True, slots=True)
class Heat:
    """A cache after one run. ``states``, (heads, capacity), has one of `RESERVED`, `VALID` and `STALE`, with `WRITTEN`,
    `OUTSIDE`, `WRAPPED` and `READ` added; ``positions``, (capacity,), the position of the token in each row, -1 where
    there is none."""

    states: np.ndarray
    positions: np.ndarray


def row_states(cache: Cache, run: int, item: int = 0) -> Iterator[tuple[int, int, int, int]]:
    """Rows after a run for one batch entry, in spans of one state: first row, row after the last, the state's bits, and
    the position of the first row's token, -1 if there is none. Nothing for recurrent states, and if the written rows
    depend on more than the control inputs."""
    entry = cache.runs[run]
    if not entry.items or cache.axis is None:
        return
    rows, capacity = entry.items[min(item, len(entry.items) - 1)], entry.capacity
    spans = (*rows.held, *rows.wrote, *(rows.read or ()))
    edges = {0, capacity, *(edge for span in spans for edge in span[:2] if 0 <= edge <= capacity)}
    for start, stop in pairwise(sorted(edges)):
        token = next((at + start - a if at != NO_TOKEN else -1 for a, b, at in rows.held if a <= start < b), None)
        bits = RESERVED if token is None else STALE if token < 0 else VALID
        bits |= WRITTEN * _within(rows.wrote, start)
        if rows.read is not None:
            seen = _within(rows.read, start)
            bits |= READ * seen | OUTSIDE * (bits & VALID and not seen)
        # In a ring buffer, the position of a row's first token is the row's number.
        if cache.protocol == "window" and token is not None and token >= capacity and token % capacity == start:
            bits |= WRAPPED
        yield start, stop, bits, -1 if token is None else token


def _within(spans: Iterable[tuple[int, int]], row: int) -> bool:
    return any(start <= row < stop for start, stop in spans)


def heat(trace: Trace, cache: Cache, run: int, item: int = 0) -> Heat | None:
    """The state of every row of a cache after a run, for one batch entry. None for recurrent states, and if the written
    rows depend on more than the control inputs."""
    if not cache.runs[run].items or cache.axis is None:
        return None
    states = np.zeros(cache.runs[run].capacity, np.uint8)
    positions = np.full(len(states), -1, np.int32)
    for start, stop, bits, token in row_states(cache, run, item):
        states[start:stop] = bits
        if token >= 0:
            positions[start:stop] = np.arange(token, token + stop - start)
    return Heat(np.tile(states, (_heads(trace, cache, run), 1)), positions)


def attention(trace: Trace, cache: Cache, run: int, query: int = -1, item: int = 0) -> np.ndarray | None:
    """Attention weights of one query of a run for each row of a cache, ``(heads, capacity)``, by query head.

    The run is repeated up to the attention (`Trace.value`), so this works for traces of this session. None if the graph
    does not show the weights: attention is inside an operator that does not output its scores (``qk_matmul_output`` of
    Attention, ``output_qk`` of GroupQueryAttention), or its mask is unknown.
    """
    frames = RunFrames(trace, run)
    if not frames.rows:
        raise ReplayError(f"attention was not recorded: the steps of run {run} were not kept")
    replayer = trace.replayer
    if replayer is None or replayer.runs[run] is None:
        raise ReplayError("attention was not recorded: the inputs of that run are not there")
    known = known_of(trace, frames)
    for shown in sources(trace, cache, frames, known):
        array = trace.value(shown.reader.node.outputs[shown.output], shown.step)
        row = row_of(known, shown, array, query, item)
        if row is None:
            continue
        start, weights = row
        capacity = cache.runs[run].capacity
        found = np.zeros((len(weights), capacity), np.float32)
        low, high = max(start, 0), min(start + weights.shape[1], capacity)
        found[:, low:high] = weights[:, low - start : high - start]
        return found
    return None


@dataclass(frozen=True, slots=True)
class Source:
    """A value that shows attention weights: its step and output, and the sequence axis of the cache."""

    reader: Reader
    step: int
    output: int
    axis: int


def known_of(trace: Trace, frames: RunFrames) -> Known:
    caches = {one.input for one in trace.caches}
    kept = trace.replayer.runs[frames.run].kept.values
    return Known(trace, frames, {name: value for name, value in kept.items() if name not in caches})


def sources(trace: Trace, cache: Cache, frames: RunFrames, known: Known) -> Iterator[Source]:
    for reader in way_of(trace, frames, cache).readers:
        step = known.step(reader.frame, reader.node.index)
        output = 0 if reader.kind == "softmax" else _SCORES.get(reader.node.op_type, 0)
        if step is None or cache.axis is None or (reader.kind != "softmax" and not output):
            continue
        if output < len(reader.node.outputs) and reader.node.outputs[output]:
            yield Source(reader, step, output, cache.axis)


def row_of(
    known: Known, source: Source, array: np.ndarray, query: int = -1, item: int = 0
) -> tuple[int, np.ndarray] | None:
    """The attention weights of a query, from the value of a source: the cache's row of the first key, and weights by
    query head and key; None if the value does not show them."""
    weights = _weights(source.reader, array, sight_of(known, source.reader, source.axis))
    if weights is None or not -weights.shape[2] <= query < weights.shape[2]:
        return None
    start, keys = cut_of(known, source.reader, source.axis, weights.shape[3])
    return start, weights[item, :, query, :keys]


def _heads(trace: Trace, cache: Cache, run: int) -> int:
    """Number of heads: the axis before the rows, if heads are separate."""
    # A run whose steps were not kept has no shapes; the number of heads does not change.
    frames = RunFrames(trace, run if trace.runs[run].last > trace.runs[run].first else 0)
    known = Known(trace, frames, {})
    shape = known.shape(0, cache.output) or known.shape(0, cache.input)
    axis = cache.axis or 0
    return shape[axis - 1] if shape is not None and axis >= 2 and axis < len(shape) else 1


def _weights(reader: Reader, array: np.ndarray, sight: Sight | None) -> np.ndarray | None:
    """Probabilities, ``(batch, heads, queries, keys)``, from the output of an attention."""
    node = reader.node
    if reader.kind == "softmax":
        return array if array.ndim == 4 else None
    shown: Any = array.astype(np.float32)
    given = node.attributes
    if node.op_type == "Attention":
        stage = int(given.get("qk_matmul_output_mode", 0))
        if stage == 0 and given.get("softcap", 0.0):
            cap = np.float32(given["softcap"])
            shown = cap * np.tanh(shown / cap)
        done, masked = stage == 3, stage == 2
        plain = not node.given(3)
    elif node.op_type == "GroupQueryAttention":
        done, masked, plain = int(given.get("qk_output", 0)) == 2, False, True
    else:
        done, masked, plain = False, True, True
    if done:
        return shown
    if not masked:
        if sight is None or not plain:
            return None
        shown = np.where(sight.allowed[:, None], shown, np.float32(-np.inf))
    top = np.max(shown, axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(shown - np.where(np.isfinite(top), top, 0))
    total = weights.sum(axis=-1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
