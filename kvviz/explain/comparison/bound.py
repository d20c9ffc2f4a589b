"""Of what the policy ``ideal`` is a bound, and what any rules need that run the same ops in the same order.

Bytes copied: no rules copy fewer that reserve the same rows, if what is moved outside of the graph counts. Peak: a
value has bytes of its own from the op that makes it to the last op that reads it, whatever the rules are, and an op
that cannot run in place by kind has its inputs and its outputs at once. ``ideal`` holds more than that where a block is
larger than the values in it that are still read.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

from kvviz.explain.comparison.difference import places
from kvviz.trace import blockers as b
from kvviz.trace.events import APPEND, NEW, VIEW, Op
from kvviz.trace.lifetimes import Key
from kvviz.trace.outcome import copied_in_all
from kvviz.trace.recording import Trace
from kvviz.trace.units import size
from kvviz.trace.value_index import Index, Place, head_and_carried, index_of

# A copy that another runtime may not make: all of it is what was there, in the same order.
_RESHAPES = ("Reshape", "Flatten")
# Why a view or a present cannot be overwritten that has memory of its own, in order, where it was copied before.
_SHARED = b.NOT_CONTIGUOUS | b.ALIASED


class _Span(NamedTuple):
    """Bytes of a storage that are needed from one time to another: two times a step, before it is done and after.

    ``exact``: all bytes from ``low`` to ``high`` are the value's; else ``size`` of them are.
    """

    first: int
    last: int
    low: int
    high: int
    size: int
    exact: bool


def least_peak(trace: Trace) -> int:
    """Bytes that any rules need at once which run the ops of a trace in its order.

    ``trace``: of the policy ``ideal``, or another one that lets views be views.
    """
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
    """What a run under ``ideal`` says of a run under other rules: of what it is a bound, or why it is none."""
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
    """Bytes that other rules need not copy for what is not theirs: a buffer that happens to be larger than the value in
    it, which takes new rows; and a value in order and by itself, because they copied it before or were given it so.

    Both traces run the same ops in the same order.
    """
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


# -- what is needed, and how long -------------------------------------------------------------------------------------


def _spans(index: Index) -> dict[int, list[_Span]]:
    """By storage, what is needed of it; weights left out."""
    found: dict[int, list[_Span]] = {}
    storages = index.trace.log.storages
    shown: dict[Key, Place] = {}  # a copy that need not be one counts where its source lies
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
    """When a value begins to need bytes of its own."""
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
    """When it is read last; before ``first`` for what takes an input's bytes and nobody reads."""
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
    """When what a frame hands out is taken from it."""
    frame = index.frames[number]
    if frame.parent is None:
        return _end(index, frame.run)
    step = index.step_of(frame.parent, frame.caller.node.index) if frame.caller is not None else None
    if step is None or name in index.scanned(number):
        return -1  # A runtime may write scan outputs where they are wanted.
    if frame.iteration is None or index.bodies[frame.parent, frame.caller.node.index][-1] == number:
        carried = frame.iteration is None or head_and_carried(frame.caller.node)[1]
        return 2 * index.moment(step) if carried else -1
    after = index.bodies[frame.parent, frame.caller.node.index]
    following = after[after.index(number) + 1]
    return 2 * (index.frames[following].opened + frame.run + 1)


def _end(index: Index, run: int) -> int:
    return 2 * (index.trace.runs[run].last + run) + 1


def _bytes(place: Place, storages: Any) -> tuple[int, int, int, bool]:
    """Where a value lies: ``low, high, size, exact`` of a span."""
    itemsize = getattr(place.dtype, "itemsize", 1)
    shape, strides = place.shape or (), place.strides
    if 0 in shape:
        return 0, 0, 0, True
    if strides is None:
        size = prod(shape) * itemsize
        # How an input lies that is a part of a block is not recorded.
        exact = not place.bound or size == storages[place.storage].capacity
        return place.offset, place.offset + size, size, exact
    size = prod(n for n, stride in zip(shape, strides) if stride) * itemsize
    low = place.offset + sum((n - 1) * stride for n, stride in zip(shape, strides) if stride < 0)
    high = place.offset + sum((n - 1) * stride for n, stride in zip(shape, strides) if stride > 0) + itemsize
    return low, high, size, high - low == size


def _count(spans: list[_Span], changes: dict[int, int]) -> None:
    """Add up how the bytes of a storage that are needed change with time."""
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
    """Bytes in at least one of the spans; less where it is not known which of its bytes one has."""
    total = end = 0
    for low, high in sorted((span.low, span.high) for span in active if span.exact):
        total += max(high - max(low, end), 0)
        end = max(end, high)
    return max([total, *(span.size for span in active if not span.exact)])
