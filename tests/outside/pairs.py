"""Hazards by brute force: every pair of accesses of the main graph, on sets of bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

Bytes = frozenset[int]
Found = dict[tuple[str, int, int, int, str, bool, bool], int]
"""Bytes by (kind, first, second, storage, value, ordered, broken)."""
# Of these inputs only the shape or the type is asked (ONNX's operator texts).
LOOKED_AT = {("Shape", 0), ("Size", 0), ("EyeLike", 0), ("OptionalHasElement", 0), ("CastLike", 1)}
SCATTERS = ("ScatterND", "ScatterElements", "Scatter")


class _Access(NamedTuple):
    """``source`` is the write that made what is read or overwritten."""

    step: int
    writes: bool
    storage: int
    bytes: Bytes
    value: str
    source: _Access | None


def expected(trace: Any, feeds: dict[str, np.ndarray], level: str = "exact", ordered: bool = False) -> Found | None:
    """Every hazard of a run without bodies; None where this cannot tell."""
    if any(step.graph_node.captures or step.frame for step in trace.steps) or len(trace.runs) != 1:
        return None
    if any(out.how in ("pool", "passed") or out.shape is None for step in trace.steps for out in step.outs):
        return None
    accesses, before = _walked(trace, feeds, level)
    found: Found = Counter()
    for late in accesses:
        for early in accesses:
            shared = len(early.bytes & late.bytes)
            if early.storage != late.storage or early.step >= late.step or not shared:
                continue
            above = early.step in before[late.step]
            pair = early.step, late.step, late.storage
            if late.writes and (ordered or not above) and not (above and _covered(early, late)):
                kind, value = ("WAW", late.value) if early.writes else ("WAR", early.value)
                key = (kind, *pair, value, above, False)
                found[key] += shared
            elif not late.writes and early.writes and _sources(late) and early in _sources(late):
                if ordered and not _covered(early, late):
                    key = ("RAW", *pair, late.value, True, False)
                    found[key] += shared
            elif not late.writes and early.writes and early.step > (late.source.step if late.source else -1):
                key = ("WAR", *pair, late.value, False, True)
                found[key] += shared
    return dict(found)


def _sources(access: _Access) -> list[_Access]:
    found = []
    while access.source is not None:
        access = access.source
        found.append(access)
    return found


def _covered(early: _Access, late: _Access) -> bool:
    """Whether a write in between, from which the later access has its value, touches all of one of the two."""
    between = (write.bytes for write in _sources(late) if early.step < write.step)
    return any(early.bytes <= write or late.bytes <= write for write in between)


def _walked(trace: Any, feeds: dict[str, np.ndarray], level: str) -> tuple[list[_Access], dict[int, set[int]]]:
    """All accesses, and of each step those that a path of the graph leads from."""

    def coarse(storage: int, some: Bytes) -> Bytes:
        if level == "exact" or not some:
            return some
        return frozenset(range(min(some), max(some) + 1) if level == "range" else range(sizes[storage]))

    sizes = {storage.id: storage.capacity for storage in trace.storages}
    weights = {bound.name for bound in trace.frames[0].bindings if bound.how == "weight"}
    at: dict[str, tuple[int, Bytes]] = {}
    for bound in trace.frames[0].bindings:
        strides = feeds[bound.name].strides if bound.name in feeds else None
        at[bound.name] = (bound.storage, bytes_of(bound, strides))
    accesses: list[_Access] = []
    made: dict[str, int] = {}
    source: dict[str, _Access | None] = {}
    before: dict[int, set[int]] = {}
    for step in trace.steps:
        above = {made[name] for name in step.inputs if name in made}
        before[step.index] = above.union(*(before[i] for i in above))
        taken = step.decision.taken if step.op_type == "Concat" else ()
        given = [name for i, name in enumerate(step.inputs) if name and (step.op_type, i) not in LOOKED_AT]
        new: list[_Access] = []
        if any(out.how != "view" for out in step.outs):
            for name in dict.fromkeys(given):
                if name in at and name not in weights and name not in taken:
                    storage, region = at[name]
                    new.append(_Access(step.index, False, storage, coarse(storage, region), name, source.get(name)))
        for out in step.outs:
            region = bytes_of(out, out.strides)
            given_by = [source.get(name) for name in step.inputs if name in at and at[name][0] == out.storage]
            last = max((write for write in given_by if write), key=lambda write: write.step, default=None)
            if out.how == "view":
                source[out.name] = last
            else:
                some = region - at[step.decision.taken[0]][1] if out.how == "append" else region
                if out.how == "in place" and step.op_type in SCATTERS:
                    indices = _value(trace, feeds, made, step.inputs[1])
                    some = frozenset(_scattered(step, out, indices))
                write = _Access(step.index, True, out.storage, coarse(out.storage, some), out.name, last)
                new.append(write)
                source[out.name] = write
            at[out.name], made[out.name] = (out.storage, region), step.index
        accesses += new
    return accesses, before


def _value(trace: Any, feeds: dict[str, np.ndarray], made: dict[str, int], name: str) -> np.ndarray:
    if name in made:
        value: np.ndarray = trace.value(name, made[name])
        return value
    return feeds[name] if name in feeds else np.asarray(trace.graph.weights[name])


def _scattered(step: Any, out: Any, indices: np.ndarray) -> Iterator[int]:
    """The bytes that a scatter writes, element by element as its text has it."""
    mark = np.zeros(out.shape, np.bool_)
    for place in np.ndindex(indices.shape[:-1] if step.op_type == "ScatterND" else indices.shape):
        if step.op_type == "ScatterND":
            mark[tuple(indices[place])] = True
        else:
            spot = list(place)
            spot[step.graph_node.attributes.get("axis", 0)] = int(indices[place])
            mark[tuple(spot)] = True
    size = np.dtype(out.dtype).itemsize
    steps = out.strides or tuple(int(np.prod(out.shape[i + 1 :], dtype=int)) * size for i in range(len(out.shape)))
    for element in np.argwhere(mark).tolist():
        first = out.offset + sum(at * step for at, step in zip(element, steps))
        yield from range(first, first + size)


def bytes_of(place: Any, strides: tuple[int, ...] | None) -> Bytes:
    dtype = np.dtype(place.dtype)
    firsts = np.array([place.offset])
    steps = strides
    if steps is None:
        steps = tuple(int(np.prod(place.shape[i + 1 :], dtype=int)) * dtype.itemsize for i in range(len(place.shape)))
    for n, step in zip(place.shape, steps):
        firsts = (firsts[:, None] + np.arange(n) * step).reshape(-1)
    return frozenset((np.unique(firsts)[:, None] + np.arange(dtype.itemsize)).reshape(-1).tolist())


def told(hazards: Any) -> Found:
    """Hazards as `expected` gives them."""
    return {(h.kind, h.first, h.second, h.storage, h.value, h.ordered, h.broken): h.bytes for h in hazards}
