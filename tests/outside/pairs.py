"""Hazards by brute force: every pair of steps of the main graph, on sets of bytes."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

Bytes = frozenset[int]


def expected(trace: Any, feeds: dict[str, np.ndarray]) -> set[tuple[str, int, int, int]] | None:
    """(kind, first, second, storage) of every hazard of a run without bodies; None where this cannot tell."""
    if any(step.graph_node.captures or step.frame for step in trace.steps) or len(trace.runs) != 1:
        return None
    if any(out.how in ("pool", "passed") or out.shape is None for step in trace.steps for out in step.outs):
        return None
    at: dict[str, tuple[int, Bytes]] = {}
    for bound in trace.frames[0].bindings:
        strides = feeds[bound.name].strides if bound.name in feeds else None
        at[bound.name] = (bound.storage, bytes_of(bound, strides))
    reads: list[tuple[int, int, Bytes]] = []
    writes: list[tuple[int, int, Bytes]] = []
    made: dict[str, int] = {}
    before: dict[int, set[int]] = {}
    for step in trace.steps:
        above = {made[name] for name in step.inputs if name in made}
        before[step.index] = above.union(*(before[i] for i in above))
        looks = step.op_type in ("Shape", "Size") or all(out.how == "view" for out in step.outs)
        taken = step.decision.taken if step.op_type == "Concat" else ()
        if not looks:
            reads += [(step.index, *at[name]) for name in set(step.inputs) - {"", *taken} if name in at]
        for out in step.outs:
            region = bytes_of(out, out.strides)
            if out.how != "view":
                new = region
                if out.how == "append":
                    new = region - at[step.decision.taken[0]][1]
                writes.append((step.index, out.storage, new))
            at[out.name], made[out.name] = (out.storage, region), step.index
    found = set()
    for (kind, earlier), late in product([("WAR", r) for r in reads] + [("WAW", w) for w in writes], writes):
        if (
            earlier[0] < late[0]
            and earlier[1] == late[1]
            and earlier[2] & late[2]
            and earlier[0] not in before[late[0]]
        ):
            found.add((kind, earlier[0], late[0], late[1]))
    return found


def bytes_of(place: Any, strides: tuple[int, ...] | None) -> Bytes:
    """The bytes of its storage that a value has."""
    dtype = np.dtype(place.dtype)
    firsts = np.array([place.offset])
    steps = strides
    if steps is None:
        steps = tuple(int(np.prod(place.shape[i + 1 :], dtype=int)) * dtype.itemsize for i in range(len(place.shape)))
    for n, step in zip(place.shape, steps):
        firsts = (firsts[:, None] + np.arange(n) * step).reshape(-1)
    return frozenset((np.unique(firsts)[:, None] + np.arange(dtype.itemsize)).reshape(-1).tolist())
