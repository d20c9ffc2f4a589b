"""Proposed changes that may let an op take over one of its inputs, derived from the reasons against it.

A proposal may fail. `kvviz.fixes.trial` runs with it, and asks again with the remaining reasons.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvviz.caches.growths import growths
from kvviz.engine.plans.policy import Policy
from kvviz.fixes.changes import (
    ByValue,
    Capacity,
    Change,
    Donate,
    Drop,
    FixDims,
    GrowAfter,
    Reserve,
    RunFirst,
    Swap,
    UsePolicy,
)
from kvviz.ops.registry import find
from kvviz.runtimes.ort.known_types import free_dims
from kvviz.trace import blockers as b
from kvviz.trace.index.value_index import Index
from kvviz.trace.recording import Trace

Proposal = tuple[Change, ...]

_HOPELESS = b.CONSTANT | b.SAME_OP_TWICE | b.SHAPE_DIFFERS | b.DTYPE_DIFFERS | b.NOT_CONTIGUOUS | b.OP_CANNOT


def proposals(index: Index, step: int, position: int, trace: Trace, policy: Policy) -> list[Proposal]:
    """Further changes that might let a step take over an input, the most likely first; empty if none would.

    ``index``: of a replay of ``trace``, which ran under ``policy``.
    """
    row = index.rows[step]
    masks = dict(row.masks)
    mask = masks.get(position, 0)
    if not mask or mask & _HOPELESS or row.op.foreign:
        return []
    if mask & b.POLICY:
        return [(UsePolicy("ideal"),)]
    if mask & b.NO_CAPACITY:
        return _room(index, step, position, trace)
    wanted = [position] if not mask & b.OTHER_INPUT_BUSY else sorted({position, *masks})
    cleared: dict[Change, None] = {}
    for which in wanted:
        if masks.get(which, 0) & _HOPELESS:
            return []
        found = _cleared(index, step, which, trace)
        if found is None:
            return []
        cleared.update(dict.fromkeys(found))
    first = tuple(cleared)
    proposed = [first] if first else []
    # The caller cannot change how a real runtime passes captured values.
    if mask & b.CAPTURED_BY_REFERENCE and not policy.version:
        proposed.append((*first, ByValue()))
    if b.rules(mask):
        node = row.op.node
        spec = find(node.domain, node.op_type, node.opset)
        if spec is not None and spec.commutative and len(node.inputs) == 2:
            proposed.append((*first, Swap(index.frames[row.frame].program.graph.path, node.index)))
        if policy.types_of is not None and (dims := free_dims(trace)):
            proposed.append((FixDims(dims), *first))
    return proposed


def _cleared(index: Index, step: int, position: int, trace: Trace) -> Sequence[Change] | None:
    """The changes after which nothing else needs the bytes of an input: later readers run first, outputs are dropped,
    or the caller donates it. None if a reader cannot be moved."""
    row = index.rows[step]
    path = index.path(row.frame)
    nodes = [index.frames[frame].control_node for frame in path[1:]] + [row.op.node]
    place = index.places[row.frame, row.op.node.inputs[position]]
    options = trace.options
    found: dict[Change, None] = {}
    for bind in index.frames[path[0]].bindings:
        if bind.storage == place.storage and bind.how == "borrowed":
            spot = options.layouts.get(bind.name)
            if bind.name in options.lent or (spot is not None and spot.repeats):
                return None
            found[Donate(bind.name)] = None
    for frame, node in zip(path, nodes):
        ran = index.step_of(frame, node.index)
        now = len(index.rows) if ran is None else ran
        for at, name in index.sharing((row.frame, row.op.node.inputs[position])):
            if at != frame or (not index.places[at, name].bound and index.places[at, name].step >= now):
                continue
            if name in index.outputs(frame):
                if frame != path[0] or options.kind != "run" or len(index.outputs(frame)) == 1:
                    return None
                found[Drop(name)] = None
            for reader, when in index.readers(frame, name):
                if reader is not node and when > now:
                    found[RunFirst(index.frames[frame].program.graph.path, reader.index, node.index)] = None
    return tuple(found)


def _room(index: Index, step: int, position: int, trace: Trace) -> list[Proposal]:
    """Changes that give a past room for new rows, according to its source."""
    row, options = index.rows[step], trace.options
    run = index.frames[row.frame].run
    name = row.op.node.inputs[position]
    found = [growth for growth in growths(index, run) if growth.steps[-1] == step]
    growth = next((growth for growth in found if (growth.frame, growth.past) == (row.frame, name)), None)
    if growth is None:
        return []
    if options.kind == "decode":
        proposed: list[Proposal] = []
        if (options.kv_capacity or 0) < options.rows:
            proposed.append((Capacity(options.rows),))
        return [*proposed, (GrowAfter(),)] if options.growth != "after" else proposed
    if options.kind != "run":
        return []
    rows = max(other.rows for other in growths(index, run) if other.input == growth.input)
    spot = options.layouts.get(growth.input)
    room = None if spot is None else spot.room
    changes: list[Change] = []
    if room is None or room[0] != growth.axis or room[1] < rows:
        changes.append(Reserve(growth.input, growth.axis, rows))
    main = index.path(row.frame)[0]
    if index.places[main, growth.input].bound == "borrowed":
        changes.append(Donate(growth.input))
    return [tuple(changes)]
