"""What the policy ``ideal`` bounds, and what any rules need that run the same ops in the same order.

Bytes copied: no rules that reserve the same rows copy fewer, if bytes moved outside of the graph count. Peak: under any
rules, a value has bytes of its own from the op that makes it to the last op that reads it, and an op that cannot run in
place by kind has its inputs and its outputs at the same time. ``ideal`` holds more than that if a block is larger than
the values in it that are still read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kvviz.explain.difference import places
from kvviz.trace import blockers as b
from kvviz.trace.index.frame_values import head_and_carried
from kvviz.trace.index.lifetimes import Key
from kvviz.trace.index.value_index import Index, Place, index_of
from kvviz.trace.outcome import copied_in_all
from kvviz.trace.recording import Trace
from kvviz.trace.schema.element_types import unit
from kvviz.trace.schema.events import APPEND, NEW, VIEW, Op
from kvviz.trace.schema.regions import Region, bounds, overlap, packed_strides
from kvviz.trace.units import size

# A copy that another runtime may avoid: it has the same elements in the same order.
_RESHAPES = ("Reshape", "Flatten")
# Reasons that block a view or a present, but not a copy of it with memory of its own.
_SHARED = b.NOT_CONTIGUOUS | b.ALIASED


class _Span(NamedTuple):
    """Bytes of a storage that are needed for a period. Each step has two times: before and after it is done. ``exact``:
    all bytes from ``low`` to ``high`` belong to the value; otherwise ``size`` of them do."""

    first: int
    last: int
    low: int
    high: int
    size: int
    exact: bool


def least_peak(trace: Trace) -> int:
    """The bytes that any rules need at the same time to run the ops of a trace in its order. ``trace``: of the policy
    ``ideal``, or another one that does not copy views."""
    index = index_of(trace)
    changes: dict[int, int] = {}
    for spans in _spans(index).values():
        _count(spans, changes)
    most = now = 0
    for time in sorted(changes):
        now += changes[time]
        most = max(most, now)
    return most + sum(storage.capacity for storage in trace.log.storages if storage.origin == "weights")


def bound(ideal: Trace, other: Trace) -> str:
    """What a run under ``ideal`` bounds for a run under other rules, or why it bounds nothing."""
    ours, theirs = places(ideal), places(other)
    if sorted(ours) != sorted(theirs):
        return "no bound here, because other nodes run: the graph was changed"
    if ours != theirs:
        return "no bound here, because the ops run in another order"
    parts = []
    if copied_in_all(ideal) <= copied_in_all(other):
        parts.append("no rules copy fewer bytes than ideal in this order")
    else:
        room, order = spared(ideal, other)
        why = [f"{size(room)} less were copied by appending to rows that nobody reserved"] * bool(room)
        why += [f"ideal copies {size(order)} of views, which lay in order and by themselves there"] * bool(order)
        parts.append("no bound on bytes copied, because " + " and ".join(why or ["other kernels ran"]))
    least = least_peak(ideal)
    if ideal.peak_bytes <= least:
        parts.append("none has a lower peak")
    else:
        rest = ideal.peak_bytes - least
        parts.append(
            f"none has a peak below {size(least)}: {size(rest)} of ideal's peak are rows reserved, or parts of blocks "
            "of which a view is left, or layouts that an op does not overwrite"
        )
    return "; ".join(parts)


def spared(ideal: Trace, other: Trace) -> tuple[int, int]:
    """Bytes that other rules avoid copying by chance: a buffer that happens to be larger than the value in it takes new
    rows, or a value is contiguous and alone in its buffer because it was copied earlier or given that way. Both traces
    run the same ops in the same order."""
    room = order = 0
    pairs: Iterator[tuple[Op, Op]] = zip(ideal.log, other.log)
    for mine, theirs in pairs:
        more = mine.copied - theirs.copied
        if more > 0:
            if _has(theirs, APPEND) and not _has(mine, APPEND):
                room += more
            elif mine.op.node.op_type in _RESHAPES or any(mask & _SHARED for _, mask in mine.masks):
                order += more
    return room, order


def _has(row: Op, how: int) -> bool:
    return any(out is not None and out.how == how for out in row.outs)


def _spans(index: Index) -> dict[int, list[_Span]]:
    found: dict[int, list[_Span]] = {}
    storages = index.trace.log.storages
    shown: dict[Key, Place] = {}  # a copy that could be avoided counts at its source
    for key, place in index.places.items():
        if place.shape is None or storages[place.storage].origin == "weights":
            continue
        first = _made(index, key, place)
        place = shown[key] = _source(index, key, place, shown)
        last = _needed(index, key, first)
        if place.bound == "borrowed" and index.frames[key[0]].parent is None:
            whole = storages[place.storage].capacity
            found.setdefault(place.storage, []).append(_Span(first, last, 0, whole, whole, True))
        elif last >= first:
            found.setdefault(place.storage, []).append(_Span(first, last, *_bytes(place, storages)))
    return found


def _source(index: Index, key: Key, place: Place, shown: dict[Key, Place]) -> Place:
    if place.bound or place.how != NEW:
        return place
    node = index.rows[place.step].op.node
    if node.op_type not in _RESHAPES or node.domain:
        return place
    return shown.get((key[0], node.inputs[0]), place)


def _made(index: Index, key: Key, place: Place) -> int:
    frame = index.frames[key[0]]
    if place.bound or frame.opened > place.step:
        return 2 * (place.step + frame.run + (frame.parent is not None))
    op = index.rows[place.step].op
    position = op.node.outputs.index(key[1])
    grows = {grow.output for grow in op.grows}
    if op.grows and position not in grows:
        late = place.how == VIEW
    else:
        late = bool(op.control or op.overwrites or op.views or grows)
    return 2 * index.moment(place.step) + late


def _needed(index: Index, key: Key, first: int) -> int:
    """The time of its last read; before ``first`` if it takes over an input's bytes and nothing reads it."""
    number, name = key
    frame = index.frames[number]
    last = first - first % 2
    for node, step in index.readers(number, name):
        bodies = index.bodies.get((number, node.index))
        moment = index.frames[bodies[-1]].opened + frame.run + 1 if bodies else index.moment(step)
        last = max(last, 2 * moment)
    if name in index.outputs(number):
        last = max(last, _handed_out(index, number, name))
    if frame.parent is None and index.places[key].bound == "borrowed":
        last = max(last, _end(index, frame.run))
    return last


def _handed_out(index: Index, number: int, name: str) -> int:
    """The time at which an output is taken from its frame."""
    frame = index.frames[number]
    if frame.parent is None:
        return _end(index, frame.run)
    step = index.step_of(frame.parent, frame.control_node.index)
    if step is None or name in index.scanned(number):
        return -1  # A runtime may write scan outputs where they are wanted.
    if frame.iteration is None or index.bodies[frame.parent, frame.control_node.index][-1] == number:
        carried = frame.iteration is None or head_and_carried(frame.control_node)[1]
        return 2 * index.moment(step) if carried else -1
    after = index.bodies[frame.parent, frame.control_node.index]
    following = after[after.index(number) + 1]
    return 2 * (index.frames[following].opened + frame.run + 1)


def _end(index: Index, run: int) -> int:
    return 2 * (index.trace.runs[run].last + run) + 1


def _bytes(place: Place, storages: Any) -> tuple[int, int, int, bool]:
    """Where a value lies: ``low, high, size, exact`` of a span."""
    shape, strides = place.shape or (), place.strides
    steps = packed_strides(*unit(shape, place.dtype)) if strides is None else strides
    region = Region(place.offset, shape, steps, place.dtype)
    low, high = bounds(region)
    size = overlap(region, region)
    # The layout of an input that is part of a block is not recorded.
    known = strides is not None or not place.bound or size == storages[place.storage].capacity
    return low, high, size, known and high - low == size


def _count(spans: list[_Span], changes: dict[int, int]) -> None:
    starts = sorted(spans)
    active: list[_Span] = []
    covered, next_start = 0, 0
    for time in sorted({span.first for span in spans} | {span.last + 1 for span in spans}):
        active = [span for span in active if span.last >= time]
        while next_start < len(starts) and starts[next_start].first == time:
            active.append(starts[next_start])
            next_start += 1
        now = _covered(active)
        changes[time] = changes.get(time, 0) + now - covered
        covered = now


def _covered(active: list[_Span]) -> int:
    """Bytes in at least one of the spans; a lower bound if the bytes of a span are not known exactly."""
    total = end = 0
    for low, high in sorted((span.low, span.high) for span in active if span.exact):
        total += max(high - max(low, end), 0)
        end = max(end, high)
    return max([total, *(span.size for span in active if not span.exact)])
