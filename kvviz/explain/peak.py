"""The peak of a trace: when most bytes were alive, and whose they were.

Invariant: the parts of a peak sum to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvviz.engine.rows import VIEW


@dataclass(frozen=True, slots=True)
class PeakPart:
    """A storage that was alive at the peak; ``storage`` is None for bytes that were not recorded.

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
        The op that ran then; None where no op ran.
    run : int or None
        Its run; None for an empty trace.
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
        alive = _alive_at(trace, step)
    else:
        step = None
        run = next((r.index for r in trace.runs if r.peak_bytes == total), None)
        alive = {} if run is None else _alive_before(trace, run)
    storages = trace.storages
    parts = [PeakPart(id, name, storages[id].origin, storages[id].capacity) for id, name in alive.items()]
    rest = total - sum(part.bytes for part in parts)
    if rest:
        parts.append(PeakPart(None, "not recorded", "run", rest))
    found = sorted((part for part in parts if part.bytes), key=lambda part: -part.bytes)
    return Peak(total, step, run, tuple(found))


def _alive_at(trace: Any, step: int) -> dict[int, str]:
    """Storages alive while a step ran (its outputs exist, its dead inputs are not freed yet), with their values."""
    rows = trace.recorder.rows
    dead: set[int] = set()
    names: dict[int, str] = {}
    for index in range(step + 1):
        row = rows[index]
        for name, where in zip(row[1].node.outputs, row[4]):
            if where is not None:
                # A pool hands out what was freed before.
                dead.discard(where[0])
                if where[2] != VIEW:
                    names[where[0]] = name
        if index < step:
            dead.update(row[5])
    alive = {
        storage.id: names.get(storage.id, storage.name)
        for storage in trace.storages
        # The weights of a body that never runs are held too.
        if storage.origin == "weights" or (storage.born <= step and storage.id not in dead)
    }
    if rows[step][1].control and step:
        _add_last_of_body(trace, step, alive)
    return alive


def _add_last_of_body(trace: Any, step: int, alive: dict[int, str]) -> None:
    """Add what a body still held when its control node was completed: that died before the node's row was written,
    and stands last in the row before."""
    storages = trace.storages
    missing = trace.recorder.rows[step][9] - sum(storages[id].capacity for id in alive)
    for id in reversed(trace.recorder.rows[step - 1][5]):
        if missing < max(storages[id].capacity, 1):
            break
        alive[id] = storages[id].name
        missing -= storages[id].capacity


def _alive_before(trace: Any, run: int) -> dict[int, str]:
    """Storages alive before the first op of a run: weights and what the caller handed in."""
    alive = {storage.id: storage.name for storage in trace.storages if storage.origin == "weights"}
    main = next(frame for frame in trace.frames if frame.run == run and frame.parent is None)
    return {**alive, **{bound.storage: bound.name for bound in main.bindings}}
