"""What memory held: at the peak of a trace, and storages that were kept although nothing used them any more.

Invariant: the parts of a peak sum to it. A storage counts as kept too long from the last step that read or wrote it to
the step that freed it. A block of which only a small view is still in use counts too, without the view. Weights are
left out: the model always keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvviz.trace.index.lifetimes import Key, Life
from kvviz.trace.index.value_index import Index, index_of, live_curve
from kvviz.trace.recording import Trace
from kvviz.trace.schema.events import VIEW
from kvviz.trace.units import short, size

# A view is small up to this fraction of its block.
_SMALL = 1 / 2
ASKED = "which the caller asked for"
"""The end of the reason of a storage that is an output."""


@dataclass(frozen=True, slots=True)
class Held:
    """A storage that was held too long.

    Attributes
    ----------
    name : str
        The value that it was made for.
    storage : int
    bytes : int
        Its capacity; if a small view keeps it, without that view.
    last_use : int
        The last step that used it; if a small view keeps it, the last step that used anything else in it.
    freed : int or None
        The step that freed it; None if it was not freed.
    byte_steps : int
        Bytes times steps between the two.
    reason : str
        Why it was kept, in one sentence.
    """

    name: str
    storage: int
    bytes: int
    last_use: int
    freed: int | None
    byte_steps: int
    reason: str


def held_too_long(index: Index) -> tuple[Held, ...]:
    """Every storage that was held too long, by byte-steps; those that the caller requested come last."""
    lives, values = index.lives, index.values
    # By life, the last use of anything in it, and of anything but a small view.
    there, latest, whole = np.flatnonzero(lives.life >= 0), np.full(len(lives), -1), np.full(len(lives), -1)
    np.maximum.at(latest, lives.life[there], index.last_use[there])
    large = there[values.sizes[there] > lives.bytes[lives.life[there]] * _SMALL]
    np.maximum.at(whole, lives.life[large], index.last_use[large])
    ends = np.where(lives.freed < 0, len(index.rows) - 1, lives.freed)
    asked = (ends > lives.used) | ((whole >= 0) & (latest > whole))
    chosen = np.flatnonzero(asked & ~lives.weights & (lives.bytes > 0))
    uses = zip(chosen.tolist(), lives.some(chosen), ends[chosen].tolist(), whole[chosen].tolist())
    found = [_held(index, life, index.in_life(number), end, use) for number, life, end, use in uses]
    return tuple(sorted(found, key=lambda held: (held.reason.endswith(ASKED), -held.byte_steps, held.last_use)))


def _held(index: Index, life: Life, values: list[int], end: int, whole: int) -> Held:
    """``whole``: the last use of anything but a small view."""
    members = [index.values.key(value) for value in values]
    name = members[0][1] if members else index.trace.storages[life.storage].name
    if end > life.used:
        time = end - max(life.used, 0)
        reason = _reason(index, life, members, end)
        return Held(name, life.storage, life.bytes, life.used, life.freed, life.bytes * time, reason)
    # After the last use of the whole, only a small view is used.
    sizes, uses = index.values.sizes[values].tolist(), index.last_use[values].tolist()
    view, use = max(pair for pair in zip(sizes, uses) if pair[1] > whole)
    keeper = members[uses.index(use)][1]
    rest = life.bytes - view
    reason = f"a small view, {short(keeper)} of {size(view)}, keeps the buffer of {size(life.bytes)} alive"
    return Held(name, life.storage, rest, whole, life.freed, rest * (use - whole), reason)


def _reason(index: Index, life: Life, members: list[Key], end: int) -> str:
    stated = _stated_reason(index, life)
    if stated:
        return stated
    for frame, name in members:
        if index.frames[frame].parent is None:
            text = _held_by_the_caller(index, life, frame, name)
            if text:
                return text
    for frame, name in members:
        text = _held_by_a_frame(index, frame, name, end)
        if text:
            return text
    if index.trace.policy.places_outputs:
        return f"the policy {index.trace.policy.name!r} keeps it to the end of its graph"
    if not index.trace.policy.decides:
        return "the recording never frees it"
    return "something that is not recorded holds it, as a sequence does"


def _stated_reason(index: Index, life: Life) -> str:
    frees = [free for free in index.trace.log.declared.frees if free.storage == life.storage]
    refused = next((free for free in reversed(frees) if not free.done), None)
    if refused is not None:
        return (
            f"it was to be freed after step {refused.after}, which was refused: {refused.why or 'no reason is given'}"
        )
    if frees:
        return f"the recording frees it then: {frees[-1].why}"
    marks = [m for m in index.trace.log.declared.marks if m.storage == life.storage and m.holder >= 0]
    if life.freed is None and marks:
        kept = ", and it is retained" * bool(marks[-1].counts and marks[-1].counts[-1])
        return f"handle #{marks[0].holder} keeps it{kept}; it was made at {marks[0].line}"
    if life.freed is not None and not index.trace.policy.decides:
        return "the recording frees it then"
    return ""


def _held_by_the_caller(index: Index, life: Life, frame: int, name: str) -> str:
    place = index.places[frame, name]
    if place.bound == "borrowed":
        return f"{short(name)} belongs to the caller, who did not donate it"
    if name in index.outputs(frame):
        return f"{short(name)} is an output of the run, {ASKED}"
    if place.bound == "donated" and not any(True for _ in index.readers(frame, name)):
        return f"{short(name)} was donated, but no op reads it"
    return ""


def _held_by_a_frame(index: Index, frame: int, name: str, end: int) -> str:
    row = index.frames[frame]
    if name in index.scanned(frame):
        return f"{short(row.control_node.name)} collects {short(name)} of every iteration until it ends"
    for node, step in index.readers(frame, name):
        if index.rows[step].op.control and step >= end:
            return f"an outer frame holds {short(name)} while the body of {short(node.name)} runs"
    if row.parent is not None and name in index.outputs(frame):
        return f"{short(name)} is an output of the body of {short(row.control_node.name)}"
    if index.places[frame, name].bound and row.parent is not None:
        return f"the body of {short(row.control_node.name)} was given {short(name)} and keeps it to its end"
    return ""


GROUPS = ("weights", "inputs", "cache", "activations", "views", "held too long", "not recorded")


@dataclass(frozen=True, slots=True)
class PeakPart:
    """A storage that was alive at the peak; ``storage`` is None for bytes that were not recorded.

    ``name``: the value that lay there.
    ``origin``: ``"weights"``, ``"caller"``, ``"donated"``, ``"run"`` or ``"pool"``.
    ``bytes``: capacity.
    ``group``: ``"weights"``; ``"cache"``; ``"inputs"``: others from the caller. Of the rest, ``"held too long"``:
      nothing in it is used any more; ``"views"``: only views of its value are still used; and ``"activations"``.
    ``"not recorded"``: the peak was in a run whose steps were not kept.
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
    """When most bytes were alive, and which storages they were. Kernel scratch memory is not counted anywhere in a
    trace."""
    index = index_of(trace)
    total, rows = trace.peak_bytes, index.rows
    alive = np.asarray(rows.column("live"))
    step = int(np.argmax(alive)) if len(alive) else None
    run: int | None
    if step is not None and alive[step] >= total:
        run, moment = index.frames[rows[step].frame].run, index.moment(step)
    else:
        step = None
        live = live_curve(index)
        run = next((run for run in index.mains if live[index.binding(run)] == total), None)
        moment = 0 if run is None else index.binding(run)
    group = "activations"
    if run is not None:
        parts = [_part(index, life, moment) for life in index.lives.alive(moment)]
    else:
        # In a run whose steps were not kept: the weights are known, and the total of the rest.
        run = next((run.index for run in trace.runs if run.first == run.last and run.peak_bytes == total), None)
        weights = [life for life in index.lives if trace.log.storages[life.storage].origin == "weights"]
        parts = [] if run is None else [_part(index, life, life.last) for life in weights]
        group = "activations" if run is None else "not recorded"
    parts.append(PeakPart(None, "not recorded", "run", total - sum(part.bytes for part in parts), group))
    found = sorted((part for part in parts if part.bytes), key=lambda part: -part.bytes)
    return Peak(total, step, run, tuple(found))


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
    if life.used < len(index.rows) and index.moment(life.used) < moment:
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
