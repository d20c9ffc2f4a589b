"""Trials of changes: a run is repeated with them on ghosts, and their effect is measured on the whole trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvviz.errors import KvvizError
from kvviz.fixes.changes import Change, Drop, RunFirst
from kvviz.fixes.proposals import proposals
from kvviz.fixes.replays import Replays, reaches_over_runs
from kvviz.trace.index.value_index import index_of
from kvviz.trace.recording import Trace
from kvviz.trace.schema.events import Op

# At most this many sets of changes are tried for one op.
_TRIES = 10

Where = tuple[int, tuple[str, ...], str]
"""A step as both traces have it: run, path of the frame, and name of the node."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of changes on the part of a trace that they were tried on.

    ``runs``: the runs in that part.
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
        """Bytes of new memory or copies that a step saves, and those that all others spend more.

        Their difference is the saving that remains in total, of the better kind. Bytes moved between runs are copies.
        """
        _, *fell = self.falls.get(where, ("", 0, 0))
        saved = max(fell)
        return max(saved, 0), max(saved, 0) - max(map(min, fell, (self.total[0], self.total[1] - self.moved)))

    def worse(self, where: Where) -> tuple[str, str, int] | None:
        """The other step whose spending grows most, preferably of the same run, by operator, name and bytes."""
        more = {at: -min(fell) for at, (_, *fell) in self.falls.items() if at != where and min(fell) < 0}
        most = max(more, key=lambda at: (at[0] == where[0], more[at]), default=None)
        return None if most is None else (self.falls[most][0], most[2], more[most])


def find_changes(replays: Replays, step: int, position: int) -> tuple[Change, ...] | None:
    """The first set of changes after which a step takes over an input; None if none was found.

    A run is tried alone, unless a change affects several runs.
    """
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
    """The effect of changes on a trace, or on one run of a long one; None if it is not known."""
    whole = replays.is_short or reaches_over_runs(replays.trace, changes)
    key = None if whole else run, changes
    if key not in replays.effects:
        replays.effects[key] = _effect(replays, run, changes, whole)
    found: Effect | None = replays.effects[key]
    return found


def place_of_step(trace: Trace, step: int) -> Where:
    """The place of a step, the same in every replay."""
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
    """Inputs that an op takes over without a reason against it."""
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
    """The steps of a replay, by place."""
    found: dict[Where, int] | None = trace.notes.get("steps by place")
    if found is None:
        frames = trace.frames
        found = {
            (frames[row.frame].run, frames[row.frame].path, row.op.node.name): i for i, row in enumerate(trace.log)
        }
        trace.notes["steps by place"] = found
    return found


def _same_step(replay: Trace, where: Where, whole: bool) -> int | None:
    run, path, name = where
    # Of a long decode only the first runs were repeated; later ones count as the last of them.
    return _steps(replay).get((min(run, len(replay.runs) - 1) if whole else 0, path, name))
