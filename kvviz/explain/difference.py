"""Corresponding steps of two traces: the first difference between them, and what another order changes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvviz.errors import ReplayError
from kvviz.explain.sentences import sentence
from kvviz.trace.index.hazards import Hazard, explaining, find_hazards
from kvviz.trace.recording import Trace
from kvviz.trace.schema.events import APPEND, IN_PLACE, VIEW, Op
from kvviz.trace.units import run_label, short
from kvviz.trace.value_summaries import Kept

_SHARED = (IN_PLACE, VIEW, APPEND)
Place = tuple[int, tuple[str, ...], int]


def align(a: Trace, b: Trace) -> tuple[np.ndarray, np.ndarray]:
    """For each step of one trace, the step of the other at which the same op ran, or -1, as (a to b, b to a). Steps
    correspond if run, frame (with the iteration of a loop) and node index are the same."""
    ours, theirs = places(a), places(b)
    return _lookup(ours, theirs), _lookup(theirs, ours)


def partner(to: np.ndarray, step: int) -> int:
    """The step of the other trace to show beside a step (-1: before the first): its partner, or that of the nearest
    earlier step. ``to``: one side of `align`."""
    earlier = to[: step + 1]
    paired = earlier[earlier >= 0]
    return int(paired[-1]) if len(paired) else -1


def places(trace: Trace) -> list[Place]:
    frames = [(frame.run, frame.path) for frame in trace.frames]
    return [(*frames[row.frame], row.op.node.index) for row in trace.log]


def _lookup(wanted: list[Place], among: list[Place]) -> np.ndarray:
    step_of = {place: step for step, place in enumerate(among)}
    return np.fromiter((step_of.get(place, -1) for place in wanted), np.int64, len(wanted))


@dataclass(frozen=True, slots=True)
class Difference:
    """The first op of a trace whose place or decision differs from that in another trace.

    ``kind``: ``"order"``: another op runs there; ``"dispatch"``: only one of them was called in place; ``"taken"``:
    other inputs were handed over; ``"identity"``: an output lives elsewhere; ``"end"``: the other trace is shorter.
    ``step, other``: the step in this trace, and the one with the same number in the other; -1 if it is shorter.
    ``sentence``: what each of them did.
    """

    kind: str
    step: int
    other: int
    run: int
    frame: tuple[str, ...]
    node: str
    op_type: str
    sentence: str


def first_difference(a: Trace, b: Trace, names: tuple[str, str] | None = None) -> Difference | None:
    """The first op of trace ``a`` that trace ``b`` runs at another step or in another way; None if there is none.
    ``names``: labels of the traces; their policies' names by default."""
    if names is None:
        names = (a.policy.name, b.policy.name) if a.policy.name != b.policy.name else ("the first", "the second")
    ours, theirs = places(a), places(b)
    for step, place in enumerate(ours):
        if step >= len(theirs):
            return _difference("end", a, step, -1, f"{_what(a, step)} did not run with {names[1]}")
        if place != theirs[step]:
            text = f"{names[0]} runs {_what(a, step)} here, {names[1]} runs {_what(b, step)}"
            return _difference("order", a, step, step, text)
        kind = _decided_otherwise(a, b, step)
        if kind:
            mine, other = (sentence(trace.steps[step], trace) for trace in (a, b))
            if mine == other:
                mine, other = (_called(trace.log[step]) for trace in (a, b))
            text = f"{_what(a, step)}: with {names[0]}, {mine} With {names[1]}, {other}"
            return _difference(kind, a, step, step, text)
    return None


def _decided_otherwise(a: Trace, b: Trace, step: int) -> str:
    """The kind of difference between two decisions, or an empty string."""
    mine, other = a.log[step], b.log[step]
    if bool(mine.taken) != bool(other.taken):
        return "dispatch"
    if mine.taken != other.taken:
        return "taken"
    shared = [[where is not None and where.how in _SHARED for where in row.outs] for row in (mine, other)]
    if shared[0] != shared[1]:
        return "identity"
    # Records are made only if an output could live in one of several inputs, or came out of a body.
    if mine.op.control or (any(shared[0]) and len(mine.op.node.inputs) > 1):
        shares = [trace.steps[step].decision.shares for trace in (a, b)]
        return "identity" if shares[0] != shares[1] else ""
    return ""


def _called(row: Op) -> str:
    """How an op was called, if its results alone do not show it."""
    return "it is called in place." if row.taken else "it is not called in place."


def _difference(kind: str, trace: Trace, index: int, other: int, text: str) -> Difference:
    step = trace.steps[index]
    sentence = f"{run_label(trace, step.run)}, " * (len(trace.runs) > 1) + f"step {index:,}: {text}"
    return Difference(kind, index, other, step.run, step.frame, step.node, step.op_type, sentence)


def _what(trace: Trace, index: int) -> str:
    step = trace.steps[index]
    return " ".join([step.op_type, " › ".join([*(short(part, 32) for part in step.frame), short(step.node)])])


_FIGURES = ("smallest", "largest", "mean")


@dataclass(frozen=True, slots=True)
class ValueChange:
    """The first step of a trace that made other numbers than its partner. ``step, other``: its number, and that of its
    partner. ``sentence``: which numbers differ, and, if both traces can be run again, which bytes. ``why``: the broken
    pair that explains it; empty if there is none."""

    step: int
    other: int
    sentence: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class OrderChange:
    """The effect of running trace ``a`` in the order of trace ``b``. ``moved``: the fewest steps of ``b`` without which
    both have the same order, ascending. ``broken``: hazards that only the order of ``b`` breaks."""

    moved: tuple[int, ...]
    broken: tuple[Hazard, ...]


def order_change(a: Trace, b: Trace) -> OrderChange | None:
    """What trace ``b`` runs in another order than trace ``a``; None if their common ops have the same order."""
    partners = align(b, a)[0]
    paired = np.flatnonzero(partners >= 0)
    order = partners[paired]
    if not (np.diff(order) < 0).any():
        return None
    stays = _longest_ascent(order.tolist())
    moved = tuple(step for place, step in enumerate(paired.tolist()) if place not in stays)
    # If no op declared what it touches, a schedule follows the edges and breaks nothing.
    if not b.log.declared.accesses:
        return OrderChange(moved, ())
    known = {_key(hazard, range(len(a.log))) for hazard in find_hazards(a) if hazard.broken}
    broken = tuple(hazard for hazard in find_hazards(b) if hazard.broken and _key(hazard, partners) not in known)
    return OrderChange(moved, broken)


def value_change(a: Trace, b: Trace, broken: Sequence[Hazard] = ()) -> ValueChange | None:
    """The first step of trace ``b`` whose outputs have other kept numbers than those of its partner in trace ``a``;
    None if all outputs with numbers in both agree. ``broken``: the hazards that the order of ``b`` breaks."""
    if a.value_summaries is None or b.value_summaries is None:
        return None
    mine, theirs = b.value_summaries.values, a.value_summaries.values
    partners = align(b, a)[0].tolist()
    for step, slot in sorted(key for key in mine if key[0] >= 0):
        other = partners[step] if step < len(partners) else -1
        was, now = theirs.get((other, slot)) if other >= 0 else None, mine[step, slot]
        where = b.log[step].outs[slot]
        # A view makes nothing: its bytes may be written later.
        if was is None or _same(was, now) or where is None or where.how == VIEW:
            continue
        node = b.log[step].op.node
        what = f"{node.op_type} {short(node.name)}"
        changes = [f"{text} {x:.4g} → {y:.4g}" for text, x, y in zip(_FIGURES, was.numbers, now.numbers) if x != y]
        text = f": {', '.join(changes)}" if changes else ""
        parts = _bytes(a, b, node.outputs[slot], other, step) if broken else ""
        sentence = f"step {step:,}: {what} is the first that made other numbers{text}{parts}"
        read = {access.storage for access in b.log.declared.accesses.get(step, ()) if not access.writes}
        pair = explaining(broken, step, read)
        return ValueChange(step, other, sentence, "" if pair is None else pair.sentence)
    return None


def _bytes(a: Trace, b: Trace, name: str, other: int, step: int) -> str:
    """Which bytes of a value differ, if both traces can be run again up to there."""
    if a.replayer is None or b.replayer is None:
        return ""
    try:
        was, now = _stored(a, name, other), _stored(b, name, step)
    except ReplayError:
        return ""
    if len(was) != len(now):
        return ""
    differ = np.flatnonzero(was != now)
    if not len(differ):
        return ""
    return f"; {len(differ):,} of its {len(now):,} bytes differ, between byte {differ[0]:,} and {differ[-1]:,}"


def _stored(trace: Trace, name: str, step: int) -> np.ndarray:
    """The bytes of a value right after a step, in its own element type."""
    own = getattr(trace.replayer, "stored", None)
    held = trace.value(name, step).tobytes() if own is None else own(trace, name, step)
    return np.frombuffer(held, np.uint8)


def _key(hazard: Hazard, place: Sequence[int] | np.ndarray) -> tuple[str, frozenset[int], str]:
    return hazard.kind, frozenset((int(place[hazard.first]), int(place[hazard.second]))), hazard.value


def _longest_ascent(numbers: Sequence[int]) -> set[int]:
    """Positions of a longest increasing subsequence of distinct numbers."""
    tails: list[int] = []
    places: list[int] = []
    before = [-1] * len(numbers)
    for place, number in enumerate(numbers):
        at = bisect_left(tails, number)
        if at == len(tails):
            tails.append(number)
            places.append(place)
        tails[at], places[at] = number, place
        before[place] = places[at - 1] if at else -1
    found, place = set(), places[-1] if places else -1
    while place >= 0:
        found.add(place)
        place = before[place]
    return found


def _same(one: Kept, two: Kept) -> bool:
    """Whether everything kept of both is the same; the mean of no numbers is NaN."""
    numbers = np.array_equal(one.numbers, two.numbers, equal_nan=True)
    if not numbers or one.histogram is None or two.histogram is None:
        return bool(numbers)
    return np.array_equal(one.histogram, two.histogram)
