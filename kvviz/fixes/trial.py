"""Trying changes: a run is made again with them on ghosts, and compared with the same run without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvviz.errors import KvvizError
from kvviz.fixes.changes import Change, Drop, RunFirst
from kvviz.fixes.proposals import proposals
from kvviz.fixes.replays import Replays, reaches_over_runs
from kvviz.trace.events import Op
from kvviz.trace.recording import Trace
from kvviz.trace.value_index import index_of

# Sets of changes that are tried for one op.
_TRIES = 10

Where = tuple[int, tuple[str, ...], str]
"""A step as both traces have it: run, path of the frame, and name of the node."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What changes did.

    ``changes``: after them the op takes over its input.
    ``saved``: bytes that its step does not spend any more.
    ``elsewhere``: bytes that all other steps spend more, in sum; negative where they spend less.
    ``worse``: the step that spends most more, by operator, name and bytes; None where none does.
    ``peak``: bytes by which the peak is higher.
    """

    changes: tuple[Change, ...]
    saved: int
    elsewhere: int
    worse: tuple[str, str, int] | None
    peak: int


def find_changes(replays: Replays, step: int, position: int) -> Trial | None:
    """The first set of changes after which a step takes over an input; None where none was found.

    A run is tried alone, but for changes that reach over several runs.
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
            # It is not the run that was recorded.
            return None
        inputs = row.op.node.inputs
        places = [place for place, one in enumerate(inputs) if one == name]
        if _takes(row, places):
            return (
                _judged(replays, run, where, *_fewest(replays, run, where, name, replay, changes)) if changes else None
            )
        place = position if inputs[position : position + 1] == (name,) else places[0]
        policy = replays.policy_after(changes)
        for more in proposals(index_of(replay), at, place, trace, policy):
            wanted = tuple(dict.fromkeys((*changes, *more)))
            if frozenset(wanted) not in tried:
                tried.add(frozenset(wanted))
                queue.append(wanted)
    return None


def _takes(row: Op, places: Sequence[int]) -> bool:
    """Whether an op takes over one of these inputs, and nothing is said against it."""
    return any(place in row.taken and place not in dict(row.masks) for place in places)


def _fewest(
    replays: Replays, run: int, where: Where, name: str, replay: Trace, changes: tuple[Change, ...]
) -> tuple[Trace, tuple[Change, ...]]:
    """Changes without those that are not needed: a reader that a dropped output alone needed need not run first."""
    if not any(isinstance(change, Drop) for change in changes):
        return replay, changes
    for change in changes:
        if isinstance(change, RunFirst):
            fewer = tuple(other for other in changes if other != change)
            again = _replayed(replays, run, fewer)
            at = None if again is None else _same_step(again, where, False)
            if again is not None and at is not None:
                row = again.log[at]
                if _takes(row, [place for place, one in enumerate(row.op.node.inputs) if one == name]):
                    replay, changes = again, fewer
    return replay, changes


def saved_between(before: Op, after: Op) -> int:
    """Bytes that an op does not spend after a change, new memory or copies; negative where it spends more."""
    saved = max(before.allocated - after.allocated, before.copied - after.copied)
    return saved or min(before.allocated - after.allocated, before.copied - after.copied)


def saved_at(replays: Replays, step: int, changes: tuple[Change, ...]) -> int | None:
    """What a step saves after changes that were tried for a step that is like it; None where that is not known."""
    trace = replays.trace
    whole = reaches_over_runs(trace, changes)
    where = place_of_step(trace, step)
    before, after = (_replayed(replays, where[0], of) for of in ((), changes))
    if whole:
        before = _replayed_before(replays, where[0], whole)
    if before is None or after is None or (whole and where[0] >= len(after.runs)):
        return None
    at, then = _same_step(before, where, whole), _same_step(after, where, whole)
    return None if at is None or then is None else saved_between(before.log[at], after.log[then])


def place_of_step(trace: Any, step: int) -> Where:
    """A step as every replay has it."""
    row = trace.log[step]
    frame = trace.frames[row.frame]
    return frame.run, frame.path, row.op.node.name


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
    steps = _steps(replay)
    # Of a long decode only the first runs were made; a later one went as they did.
    return steps.get((min(run, len(replay.runs) - 1) if whole else 0, path, name))


def _judged(replays: Replays, run: int, where: Where, after: Trace, changes: tuple[Change, ...]) -> Trial | None:
    whole = reaches_over_runs(replays.trace, changes)
    before = _replayed_before(replays, run, whole)
    if before is None:
        return None
    at, then = _same_step(before, where, whole), _same_step(after, where, whole)
    if at is None or then is None:
        return None
    elsewhere, worst = 0, None
    steps = _steps(after)
    for place, step in _steps(before).items():
        other = steps.get(place)
        if step == at or other is None:
            continue
        more = -saved_between(before.log[step], after.log[other])
        elsewhere += more
        if more > (worst[2] if worst else 0):
            node = after.log[other].op.node
            worst = node.op_type, node.name, more
    peak = after.peak_bytes - before.peak_bytes
    return Trial(changes, saved_between(before.log[at], after.log[then]), elsewhere, worst, peak)


def _replayed_before(replays: Replays, run: int, whole: bool) -> Trace | None:
    try:
        return replays.decode() if whole else replays.run(run)
    except KvvizError:
        return None
