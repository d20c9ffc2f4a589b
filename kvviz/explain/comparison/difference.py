"""Corresponding steps of two traces, and the first op that they run at different steps or in different ways."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvviz.explain.sentences import sentence
from kvviz.trace.recording import Trace
from kvviz.trace.run_labels import run_label
from kvviz.trace.schema.events import APPEND, IN_PLACE, VIEW, Op
from kvviz.trace.units import short

_SHARED = (IN_PLACE, VIEW, APPEND)
Place = tuple[int, tuple[str, ...], int]


def align(a: Trace, b: Trace) -> tuple[np.ndarray, np.ndarray]:
    """For each step of one trace, the step of the other at which the same op ran.

    Steps correspond if run, frame (with the iteration of a loop) and node index are the same.

    ``a_to_b, b_to_a``: one entry for each step; -1 if the other trace has no such step.
    """
    ours, theirs = places(a), places(b)
    return _lookup(ours, theirs), _lookup(theirs, ours)


def partner(to: np.ndarray, step: int) -> int:
    """The step of the other trace to show beside a step: its partner, or the partner of the nearest earlier step.

    ``to``: one side of `align`.
    ``step``: -1: before the first.
    """
    earlier = to[: step + 1]
    paired = earlier[earlier >= 0]
    return int(paired[-1]) if len(paired) else -1


def places(trace: Trace) -> list[Place]:
    """Run, frame path and node index of every step."""
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

    ``names``: labels of the traces; their policies' names by default.
    """
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
    sentence = f"{_run_label(trace, step.run)}step {index:,}: {text}"
    return Difference(kind, index, other, step.run, step.frame, step.node, step.op_type, sentence)


def _what(trace: Trace, index: int) -> str:
    """Operator, frame and node of a step."""
    step = trace.steps[index]
    return " ".join([step.op_type, " › ".join([*(short(part, 32) for part in step.frame), short(step.node)])])


def _run_label(trace: Trace, run: int) -> str:
    return f"{run_label(trace, run)}, " if len(trace.runs) > 1 else ""
