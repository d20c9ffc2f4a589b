"""Trials of changes: a run is repeated with them on ghosts, and their effect is measured on the whole trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvviz.caches.growths import growths
from kvviz.engine.policy import Policy
from kvviz.errors import KvvizError
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
from kvviz.fixes.replays import Replays, reaches_over_runs
from kvviz.ops.registry import find
from kvviz.runtimes.ort.known_types import free_dims
from kvviz.trace import blockers as b
from kvviz.trace.index.value_index import Index, index_of
from kvviz.trace.recording import Trace
from kvviz.trace.schema.events import Op
from kvviz.trace.trace_data import noted

Proposal = tuple[Change, ...]

_HOPELESS = b.CONSTANT | b.SAME_OP_TWICE | b.SHAPE_DIFFERS | b.DTYPE_DIFFERS | b.NOT_CONTIGUOUS | b.OP_CANNOT


def proposals(index: Index, step: int, position: int, trace: Trace, policy: Policy) -> list[Proposal]:
    """Further changes that might let a step take over an input, the most likely first; empty if none would. ``index``:
    of a replay of ``trace``, which ran under ``policy``."""
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
    """Changes that give a past room for new rows, by its source."""
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


# The maximum number of sets of changes tried for one op.
_TRIES = 10

Where = tuple[int, tuple[str, ...], str]
"""A step as both traces have it: run, path of the frame, and name of the node."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of changes on the part of a trace that they were tried on.

    ``runs``: in that part.
    ``falls``: operator, and bytes allocated and copied that a step saves, if not 0.
    ``takes``: inputs that ops newly take over, by name.
    ``total``: bytes allocated, and bytes copied, that are saved in total.
    ``moved``: additional bytes that the caller moves between runs.
    ``peak``: bytes by which the peak is higher.
    """

    runs: range
    falls: dict[Where, tuple[str, int, int]]
    takes: frozenset[tuple[Where, str]]
    total: tuple[int, int]
    moved: int
    peak: int

    def at(self, where: Where) -> Where:
        """The place of a step here. Of a long decode, only the first runs were tried; later ones count as the last."""
        return (where[0] if where[0] in self.runs else self.runs[-1], *where[1:])

    def gain(self, where: Where) -> tuple[int, int]:
        """Bytes of new memory or copies that a step saves, and those that all others spend more. Their difference is
        the saving that remains in total, of the better kind. Bytes moved between runs are copies."""
        _, *fell = self.falls.get(where, ("", 0, 0))
        saved = max(fell)
        return max(saved, 0), max(saved, 0) - max(map(min, fell, (self.total[0], self.total[1] - self.moved)))

    def worse(self, where: Where) -> tuple[str, str, int] | None:
        """The other step whose spending grows most, preferably of the same run, by operator, name and bytes."""
        more = {at: -min(fell) for at, (_, *fell) in self.falls.items() if at != where and min(fell) < 0}
        most = max(more, key=lambda at: (at[0] == where[0], more[at]), default=None)
        return None if most is None else (self.falls[most][0], most[2], more[most])


def find_changes(replays: Replays, step: int, position: int) -> tuple[Change, ...] | None:
    """The first set of changes after which a step takes over an input; None if none was found. A run is tried alone,
    unless a change affects several runs."""
    trace = replays.trace
    run = trace.log.frames[trace.log[step].frame].run
    where = place_of_step(trace, step)
    name = trace.log[step].op.node.inputs[position]
    queue: list[tuple[Change, ...]] = [()]
    tried: set[frozenset[Change]] = {frozenset()}
    while queue and len(tried) <= _TRIES:
        changes = queue.pop(0)
        replay = _replayed(replays, run, changes)
        if replay is None:
            continue
        at = _same_step(replay, where, reaches_over_runs(trace, changes))
        if at is None:
            continue
        row = replay.log[at]
        if not changes and (row.taken, row.masks) != (trace.log[step].taken, trace.log[step].masks):
            # The replay differs from the recorded run.
            return None
        if name in _taken(row):
            return _fewest(replays, run, where, name, changes) if changes else None
        inputs = row.op.node.inputs
        place = position if inputs[position : position + 1] == (name,) else inputs.index(name)
        policy = replays.policy_after(changes)
        for more in proposals(index_of(replay), at, place, trace, policy):
            wanted = tuple(dict.fromkeys((*changes, *more)))
            if frozenset(wanted) not in tried:
                tried.add(frozenset(wanted))
                queue.append(wanted)
    return None


def effect_of(replays: Replays, run: int, changes: tuple[Change, ...]) -> Effect | None:
    whole = replays.is_short or reaches_over_runs(replays.trace, changes)
    key = None if whole else run, changes
    if key not in replays.effects:
        replays.effects[key] = _effect(replays, run, changes, whole)
    found: Effect | None = replays.effects[key]
    return found


def place_of_step(trace: Trace, step: int) -> Where:
    row = trace.log[step]
    frame = trace.frames[row.frame]
    return frame.run, frame.path, row.op.node.name


def _effect(replays: Replays, run: int, changes: tuple[Change, ...], whole: bool) -> Effect | None:
    runs = range(run, run + 1)
    try:
        if not whole:
            pairs = [(replays.run(run), replays.run(run, changes))]
        elif replays.trace.options.kind == "decode":
            pairs = [(replays.decode(), replays.decode(changes))]
            runs = range(len(pairs[0][1].runs))
        else:
            runs = range(len(replays.trace.runs))
            pairs = [(replays.run(one), replays.run(one, changes)) for one in runs]
    except (KvvizError, ValueError):
        return None
    falls, takes = {}, set()
    for number, (before, after) in enumerate(pairs, runs[0]):
        steps, other = _steps(after), after.log
        for place, step in _steps(before).items():
            if place not in steps:
                continue
            row, there = before.log[step], other[steps[place]]
            where = (place[0] + number, *place[1:])
            fell = row.allocated - there.allocated, row.copied - there.copied
            if any(fell):
                falls[where] = (row.op.node.op_type, *fell)
            if (row.taken, row.masks) != (there.taken, there.masks):
                takes |= {(where, name) for name in _taken(there)}

    def fell_by(bytes_of: Any) -> int:
        return sum(bytes_of(before) - bytes_of(after) for before, after in pairs)

    return Effect(
        runs,
        falls,
        frozenset(takes),
        (fell_by(lambda t: t.bytes_allocated), fell_by(lambda t: t.bytes_copied)),
        -fell_by(lambda t: sum(one.bytes_moved_outside for one in t.runs)),
        max(after.peak_bytes for _, after in pairs) - max(before.peak_bytes for before, _ in pairs),
    )


def _taken(row: Op) -> set[str]:
    return {row.op.node.inputs[place] for place in row.taken if place not in dict(row.masks)}


def _fewest(replays: Replays, run: int, where: Where, name: str, changes: tuple[Change, ...]) -> tuple[Change, ...]:
    """The necessary changes: a reader that only a dropped output needed does not have to run first."""
    if not any(isinstance(change, Drop) for change in changes):
        return changes
    for change in changes:
        if isinstance(change, RunFirst):
            fewer = tuple(other for other in changes if other != change)
            again = _replayed(replays, run, fewer)
            at = None if again is None else _same_step(again, where, False)
            if again is not None and at is not None and name in _taken(again.log[at]):
                changes = fewer
    return changes


def _replayed(replays: Replays, run: int, changes: tuple[Change, ...]) -> Trace | None:
    try:
        return replays.decode(changes) if reaches_over_runs(replays.trace, changes) else replays.run(run, changes)
    except (KvvizError, ValueError):
        return None


def _steps(trace: Trace) -> dict[Where, int]:
    steps = range(len(trace.log))
    return noted(trace.notes, "steps by place", lambda: {place_of_step(trace, step): step for step in steps})


def _same_step(replay: Trace, where: Where, whole: bool) -> int | None:
    run, path, name = where
    # Of a long decode only the first runs were repeated; later ones count as the last of them.
    return _steps(replay).get((min(run, len(replay.runs) - 1) if whole else 0, path, name))
