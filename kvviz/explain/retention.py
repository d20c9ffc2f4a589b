"""Storages that were kept although nothing in them was used any more, and who kept them.

A storage counts from the last step that read or wrote it to the step with which it died. A block of which only a small
view is still in use counts too, less that view. Weights are left out: the model keeps them for good.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from kvviz.trace.element_types import nbytes
from kvviz.trace.lifetimes import Key, Life
from kvviz.trace.units import short, size
from kvviz.trace.value_index import Index

# A view is small if it is at most this part of its block.
_SMALL = 1 / 2
_ASKED = "which the caller asked for"


@dataclass(frozen=True, slots=True)
class Held:
    """A storage that was held too long.

    Attributes
    ----------
    name : str
        The value that it was made for.
    storage : int
    bytes : int
        Its capacity; where a small view keeps it, without that view.
    last_use : int
        The last step that used it; where a small view keeps it, the last step that used anything else in it.
    freed : int or None
        The step with which it died; None where it lives on.
    byte_steps : int
        Bytes times steps between the two.
    reason : str
        Who kept it, in one sentence.
    """

    name: str
    storage: int
    bytes: int
    last_use: int
    freed: int | None
    byte_steps: int
    reason: str


def held_too_long(index: Index) -> tuple[Held, ...]:
    """Every storage that was held too long, by byte-steps; what the caller asked for comes last."""
    found = []
    storages = index.trace.log.storages
    for life in index.lives:
        if storages[life.storage].origin != "weights" and life.bytes:
            held = _held(index, life)
            if held is not None:
                found.append(held)
    return tuple(sorted(found, key=lambda held: (held.reason.endswith(_ASKED), -held.byte_steps, held.last_use)))


def is_past_use(index: Index, life: Life, moment: int) -> bool:
    """Whether nothing in a storage is used any more after a moment of its life."""
    return life.used < len(index.rows) and index.moment(life.used) < moment


def _held(index: Index, life: Life) -> Held | None:
    end = len(index.rows) - 1 if life.freed is None else life.freed
    members = _members(index, life)
    name = members[0][1] if members else index.trace.storages[life.storage].name
    if end > life.used:
        time = end - max(life.used, 0)
        reason = _reason(index, life, members, end)
        return Held(name, life.storage, life.bytes, life.used, life.freed, life.bytes * time, reason)
    return _kept_by_a_view(index, life, members, name) if len(members) > 1 else None


def _kept_by_a_view(index: Index, life: Life, members: list[Key], name: str) -> Held | None:
    """A buffer in which, from some step on, only a small view is used."""
    uses = [(_last_use(index, key), index.places[key]) for key in members]
    whole = max((use for use, place in uses if nbytes(place.shape, place.dtype) > life.bytes * _SMALL), default=None)
    small = [(nbytes(place.shape, place.dtype), use) for use, place in uses if whole is not None and use > whole]
    if whole is None or not small:
        return None
    view, use = max(small)
    keeper = next(key for key in members if _last_use(index, key) == use)
    rest = life.bytes - view
    reason = f"a small view, {short(keeper[1])} of {size(view)}, keeps the buffer of {size(life.bytes)} alive"
    return Held(name, life.storage, rest, whole, life.freed, rest * (use - whole), reason)


def _members(index: Index, life: Life) -> list[Key]:
    """Values that lay in a storage during one of its lives, in the order in which they were made."""
    keys, moments = index.in_storage(life.storage), index.made_in(life.storage)
    return keys[bisect_left(moments, life.first - 1) : bisect_right(moments, life.last)]


def _last_use(index: Index, key: Key) -> int:
    """The last step that read or made a value; bodies read what they captured themselves."""
    frame, name = key
    place = index.places[key]
    steps = [step for node, step in index.readers(frame, name) if not index.rows[step].op.control]
    return max([*steps, place.step])


def _reason(index: Index, life: Life, members: list[Key], end: int) -> str:
    """Who held a storage last."""
    told = _told(index, life)
    if told:
        return told
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


def _told(index: Index, life: Life) -> str:
    """What the producer said of letting it go."""
    frees = [free for free in index.trace.log.declared.frees if free.storage == life.storage]
    refused = next((free for free in reversed(frees) if not free.done), None)
    if refused is not None:
        return f"it was to be freed after step {refused.after}, which was refused: {refused.why or 'no reason is told'}"
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
        return f"{short(name)} is an output of the run, {_ASKED}"
    if place.bound == "donated" and not any(True for _ in index.readers(frame, name)):
        return f"{short(name)} was donated, but no op reads it"
    return ""


def _held_by_a_frame(index: Index, frame: int, name: str, end: int) -> str:
    row = index.frames[frame]
    if name in index.scanned(frame):
        return f"{short(row.caller.node.name)} collects {short(name)} of every iteration until it ends"
    for node, step in index.readers(frame, name):
        if index.rows[step].op.control and step >= end:
            return f"an outer frame holds {short(name)} while the body of {short(node.name)} runs"
    if row.parent is not None and name in index.outputs(frame):
        return f"{short(name)} is an output of the body of {short(row.caller.node.name)}"
    if index.places[frame, name].bound and row.parent is not None:
        return f"the body of {short(row.caller.node.name)} was given {short(name)} and keeps it to its end"
    return ""
