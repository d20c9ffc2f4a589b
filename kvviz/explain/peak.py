"""The peak of a trace: when most bytes were alive, and whose they were.

Invariant: the parts of a peak sum to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvviz.engine.reasons import placed_before
from kvviz.engine.rows import VIEW

# Bytes of which no row tells the storage: a row places a sequence as a whole, not its elements.
UNTOLD = "elements of sequences"


@dataclass(frozen=True, slots=True)
class PeakPart:
    """A storage that was alive at the peak; ``storage`` is None for the elements of sequences, all together.

    Attributes
    ----------
    storage : int or None
    name : str
        The value that lay there.
    origin : str
        ``"weights"``, ``"caller"``, ``"donated"``, ``"run"`` or ``"pool"``.
    bytes : int
        Capacity.
    """

    storage: int | None
    name: str
    origin: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Peak:
    """The moment at which most bytes were alive.

    Attributes
    ----------
    bytes : int
        ``trace.peak_bytes``.
    step : int or None
        The op that ran then; None where it was between two runs, when the caller held what the one before returned
        and had handed in the inputs of the next.
    run : int or None
        The run of that step, or the run that began; None for an empty trace.
    parts : tuple of PeakPart
        The largest first; their bytes sum to ``bytes``.
    """

    bytes: int
    step: int | None
    run: int | None
    parts: tuple[PeakPart, ...]


def peak(trace: Any) -> Peak:
    """When most bytes were alive, and which storages they were.

    Kernel scratch is not counted, as nowhere in a trace.
    """
    rows = trace.recorder.rows
    total = trace.peak_bytes
    step = max(range(len(rows)), key=lambda index: rows[index][9], default=None)
    run: int | None
    if step is not None and rows[step][9] >= total:
        run = trace.frames[rows[step][0]].run
        alive = _alive_at(trace, run, step)
    else:
        step = None
        run = next((r.index for r in trace.runs if r.peak_bytes == total), None)
        alive = {} if run is None else _alive_before(trace, run)
    storages = trace.storages
    parts = [PeakPart(id, name, storages[id].origin, storages[id].capacity) for id, name in alive.items()]
    rest = total - sum(part.bytes for part in parts)
    if rest:
        parts.append(PeakPart(None, UNTOLD, "run", rest))
    found = sorted((part for part in parts if part.bytes), key=lambda part: -part.bytes)
    return Peak(total, step, run, tuple(found))


def _alive_at(trace: Any, run: int, step: int) -> dict[int, str]:
    """Storages alive while a step ran (its outputs exist, its dead inputs are not freed yet), with their values."""
    rows, frames, storages = trace.recorder.rows, trace.frames, trace.storages
    opened = _main_frame(trace, run)
    alive = _at_start(trace, opened)
    for index in range(trace.runs[run].first, step + 1):
        frame, planned, _, _, placed, freed, *_ = rows[index]
        while opened < frame:
            opened += 1
            for bound in frames[opened].bindings:
                # A body without ops shows only when a later one opens; what it held may be dead by then.
                died = storages[bound.storage].freed
                if died is None or died >= index:
                    alive.setdefault(bound.storage, bound.name)
        for name, where in zip(planned.node.outputs, placed):
            if where is not None and (where[2] != VIEW or where[0] not in alive):
                alive[where[0]] = name
        if index < step:
            for storage in freed:
                alive.pop(storage, None)
    if rows[step][1].control and step:
        _add_last_of_body(trace, step, alive)
    return alive


def _add_last_of_body(trace: Any, step: int, alive: dict[int, str]) -> None:
    """What a body still held when its control node was completed: its row is written after they died, and the row
    before lists them last."""
    storages = trace.storages
    missing = trace.recorder.rows[step][9] - sum(storages[id].capacity for id in alive)
    for id in reversed(trace.recorder.rows[step - 1][5]):
        if missing < storages[id].capacity or missing <= 0:
            break
        if id not in alive:
            alive[id] = storages[id].name
            missing -= storages[id].capacity


def _alive_before(trace: Any, run: int) -> dict[int, str]:
    """Storages alive when a run's inputs are there and the caller still holds what the run before returned."""
    alive = _at_start(trace, _main_frame(trace, run))
    if run:
        before = _main_frame(trace, run - 1)
        for bound in trace.frames[before].bindings:
            if bound.how == "borrowed":
                alive.setdefault(bound.storage, bound.name)
        plan = trace.recorder.frames[before].plan
        for name in (name for name, slot in plan.slots.items() if slot in plan.is_output):
            where = placed_before(trace, before, name, trace.runs[run].first - 1)
            if where is not None:
                alive.setdefault(where[0], name)
    return alive


def _at_start(trace: Any, frame: int) -> dict[int, str]:
    """All weights (those of bodies that never run too) and what the caller handed in."""
    alive = {storage.id: storage.name for storage in trace.storages if storage.origin == "weights"}
    for bound in trace.frames[frame].bindings:
        alive[bound.storage] = bound.name
    return alive


def _main_frame(trace: Any, run: int) -> int:
    return next(frame.id for frame in trace.frames if frame.run == run and frame.parent is None)
