"""How a step ended. Python, tables, the report, the query language, counts and the page all take it from here.

Dispatch and identity are two facts. `Op.taken` says with which inputs an op was called in place; whether it ran in
place depends on where its outputs lie. A call in place that still took other memory is a state of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from kvviz.trace.reasons import is_missed
from kvviz.trace.schema.events import APPEND, HOW, IN_PLACE, VIEW, Op
from kvviz.trace.schema.log import Log
from kvviz.trace.trace_data import TraceData

OUTCOMES = ("elsewhere", "missed", "in_place", "foreign", "view", "new")
"""The ways in which a step can end; of several that hold of one step, the first is its outcome.

``"elsewhere"``: called in place, and no output lies in memory of an input. ``"in_place"``: an output lies in memory of
an input, which it overwrote or continued. ``"missed"``: see `kvviz.trace.reasons.is_missed`.
"""
DECISIONS = ("missed", "in_place", "elsewhere", "run", "copied", "view", "foreign", "new")
"""Predicates of a step. ``"run"`` is about the dispatch: it was not called in place."""


def endings(trace: TraceData, row: Op) -> set[str]:
    hows = {where.how for where in row.outs if where is not None}
    found = {"view"} if VIEW in hows else set()
    # A runtime without views calls a Reshape in place, and gives it the buffer of its input.
    if IN_PLACE in hows or APPEND in hows or (row.taken and VIEW in hows):
        found.add("in_place")
    elif row.taken:
        found.add("elsewhere")
    if is_missed(trace, row):
        found.add("missed")
    if row.op.foreign:
        found.add("foreign")
    if not found:
        found.add("new")
    if not row.taken:
        found.add("run")
    if row.copied > 0:
        found.add("copied")
    return found


class Kinds:
    """The steps of a log by kind: the same op, refused for the same reasons, with outputs of the same kinds. `endings`
    are equal for all steps of a kind. ``kind``: by step. ``examples``: the first step of each kind. ``allocated,
    copied, spent``: bytes of every step; see `spent`."""

    def __init__(self, log: Log) -> None:
        numbers, outs = log.tables()
        _, node, refusal, allocated, copied, written, _, ends = numbers.T
        self.allocated, self.copied, self.spent = allocated.copy(), copied.copy(), np.maximum(allocated, copied)
        asked = node * len(log.refusals.entries) + refusal
        hows = np.zeros(len(numbers), np.int64)
        there = outs[:, 0] >= 0
        steps = np.repeat(np.arange(len(numbers)), np.diff(ends, prepend=0))
        np.bitwise_or.at(hows, steps[there], 1 << outs[there, 2])
        key = (asked << len(HOW) | hows) * 12 + 4 * np.sign(copied) + 2 * (copied == written) + (allocated != 0)
        _, first, self.kind = np.unique(key, return_index=True, return_inverse=True)
        self.examples = [log[step] for step in first.tolist()]

    def where(self, holds: Iterable[bool], stop: int | None = None) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.flatnonzero(np.array(list(holds), bool)[self.kind[:stop]])


def outcome(trace: TraceData, row: Op) -> str:
    found = endings(trace, row)
    return next(end for end in OUTCOMES if end in found)


def spent(row: Op) -> int:
    """Bytes that a step spent on its outputs: new capacity, or bytes moved into capacity from the pool."""
    return max(row.allocated, row.copied)


def copied_in_all(trace: TraceData) -> int:
    return int(trace.bytes_copied + sum(run.bytes_moved_outside for run in trace.runs))
