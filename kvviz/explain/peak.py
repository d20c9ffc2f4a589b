"""The peak of a trace: when most bytes were alive, and what they held.

Invariant: the parts of a peak sum to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvviz.explain.retention import is_past_use
from kvviz.trace.index.lifetimes import Key, Life
from kvviz.trace.index.value_index import Index, index_of, live_curve
from kvviz.trace.recording import Trace
from kvviz.trace.schema.events import VIEW

GROUPS = ("weights", "inputs", "cache", "activations", "views", "held too long", "not recorded")


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
    group : str
        ``"weights"``; ``"cache"``: it holds a cache; ``"inputs"``: others from the caller. Of the rest,
        ``"held too long"``: nothing in it is used any more; ``"views"``: only views of its value are still used; and
        ``"activations"``. ``"not recorded"``: the peak was in a run whose steps were not kept.
    """

    storage: int | None
    name: str
    origin: str
    bytes: int
    group: str = "activations"


@dataclass(frozen=True, slots=True)
class Peak:
    """The moment at which most bytes were alive.

    Attributes
    ----------
    bytes : int
        ``trace.peak_bytes``.
    step : int or None
        The op that ran then; None if no op ran, or in a run whose steps were not kept.
    run : int or None
        Its run; None for an empty trace.
    parts : tuple of PeakPart
        The largest first; their bytes sum to ``bytes``.
    """

    bytes: int
    step: int | None
    run: int | None
    parts: tuple[PeakPart, ...]

    @property
    def groups(self) -> dict[str, int]:
        """Bytes by group, in the order of `GROUPS`; empty groups are left out."""
        sums = {group: sum(part.bytes for part in self.parts if part.group == group) for group in GROUPS}
        return {group: nbytes for group, nbytes in sums.items() if nbytes}


def peak(trace: Trace) -> Peak:
    """When most bytes were alive, and which storages they were.

    Kernel scratch memory is not counted anywhere in a trace.
    """
    index = index_of(trace)
    total, rows = trace.peak_bytes, index.rows
    alive = np.asarray(rows.column("live"))
    step = int(np.argmax(alive)) if len(alive) else None
    run: int | None = None
    moment: int | None = None
    if step is not None and alive[step] >= total:
        run, moment = index.frames[rows[step].frame].run, index.moment(step)
    else:
        step = None
        live = live_curve(index)
        run = next((run for run in index.mains if live[index.binding(run)] == total), None)
        moment = None if run is None else index.binding(run)
    if run is None:
        return _forgotten(index, total)
    parts = [] if moment is None else [_part(index, life, moment) for life in index.lives.alive(moment)]
    rest = total - sum(part.bytes for part in parts)
    if rest:
        parts.append(PeakPart(None, "not recorded", "run", rest))
    found = sorted((part for part in parts if part.bytes), key=lambda part: -part.bytes)
    return Peak(total, step, run, tuple(found))


def _forgotten(index: Index, total: int) -> Peak:
    """The peak of a run whose steps were not kept: the weights are known, and the total of the rest."""
    runs = index.trace.runs
    run = next((run.index for run in runs if run.first == run.last and run.peak_bytes == total), None)
    storages = index.trace.log.storages
    lives = [life for life in index.lives if run is not None and storages[life.storage].origin == "weights"]
    parts = [_part(index, life, life.last) for life in lives]
    rest = total - sum(part.bytes for part in parts)
    parts.append(PeakPart(None, "not recorded", "run", rest, "activations" if run is None else "not recorded"))
    found = sorted((part for part in parts if part.bytes), key=lambda part: -part.bytes)
    return Peak(total, None, run, tuple(found))


def _part(index: Index, life: Life, moment: int) -> PeakPart:
    origin = index.trace.log.storages[life.storage].origin
    size = life.bytes - sum(more for at, more in life.grew if at > moment)
    there = index.numbers_in(life.storage)
    there = there[index.lives.made[there] <= moment]
    made = there[index.values.how[there] != VIEW]
    name = index.values.key(int(made[-1]))[1] if len(made) else index.trace.storages[life.storage].name
    return PeakPart(life.storage, name, origin, size, _group(index, life, moment, origin, there.tolist()))


def _group(index: Index, life: Life, moment: int, origin: str, numbers: list[int]) -> str:
    if origin == "weights":
        return "weights"
    there = [index.values.key(number) for number in numbers]
    main = index.mains[index.run_at(moment)]
    caches = {name for cache in index.trace.caches for name in (cache.input, cache.output)}
    mine = {name for frame, name in there if frame == main}
    if mine & caches:
        return "cache"
    if any(index.places[main, name].bound in ("borrowed", "donated") for name in mine):
        return "inputs"
    if is_past_use(index, life, moment):
        return "held too long"
    return "views" if _is_for_views(index, moment, dict(zip(numbers, there))) else "activations"


def _is_for_views(index: Index, moment: int, there: dict[int, Key]) -> bool:
    """Whether only views in a storage are still to be read, not the values that were written there."""
    views = [number for number in there if index.values.how[number] == VIEW]
    return bool(views) and not any(
        _is_read(index, number, key, moment) for number, key in there.items() if number not in views
    )


def _is_read(index: Index, number: int, key: Key, moment: int) -> bool:
    """Whether a value is read at a moment or later, or is an output."""
    later = any(index.moment(step) >= moment for _, step in index.readers(*key))
    return later or index.lives.made[number] == moment or key[1] in index.outputs(key[0])
