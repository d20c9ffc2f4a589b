"""Steps of which a test says the same, so that a query about a long trace is asked once of each group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np

from kvviz.trace.outcome import Kinds
from kvviz.trace.schema.events import HOW
from kvviz.trace.schema.log import COLUMNS, Ints, distinct
from kvviz.trace.trace_data import TraceData

NUMBERS = ("allocated", "copied", "written", "live")
"""Fields that are columns of the log."""


class StepGroups:
    """The steps of a trace, grouped by what a field hangs on."""

    def __init__(self, trace: TraceData) -> None:
        self.trace = trace
        self._ops, self._outs = trace.log.tables()
        self._known: dict[str, Ints] = {}

    def number(self, field: str) -> Ints:
        """The number that every step has in a field of `NUMBERS`, or its own for ``"step"``."""
        steps: Ints = np.arange(len(self._ops))
        return steps if field == "step" else self._ops[:, COLUMNS["op"].index(field)]

    def examples(self, by: str, steps: Ints) -> tuple[Ints, Ints]:
        """The first step of every group among some steps, and for each step the place of its group."""
        if by not in self._known:
            self._known[by] = _BY[by](self)
        groups = self._known[by][steps]
        found, places = distinct(groups, int(groups.max(initial=-1)) + 1)
        first = np.empty(len(found), np.int64)
        first[places[::-1]] = steps[::-1]
        return first, places

    @cached_property
    def _kinds(self) -> Kinds:
        return Kinds(self.trace.log)

    def _of_runs(self) -> Ints:
        runs: Ints = np.array([frame.run for frame in self.trace.log.frames], np.int64)
        return runs[self._ops[:, 0]]

    def _of_outputs(self) -> Ints:
        """Steps of one output by how it came about and its form; each other step is a group."""
        ends = self._ops[:, -1]
        if not len(self._outs):
            return np.zeros(len(ends), np.int64)
        storage, _, how, _, form = self._outs[np.maximum(ends - 1, 0)].T
        groups = (form * len(HOW) + how) * 2 + (storage < 0)
        single = np.diff(ends, prepend=0) == 1
        return np.where(single, groups, int(groups.max(initial=0)) + 1 + np.arange(len(ends)))

    def _of_reasons(self) -> Ints:
        """By kind, but for steps that wrote what could have been a view: their inputs say why."""
        kinds, free = self._kinds, not self.trace.policy.places_outputs
        by_kind = [
            bool(row.masks or row.taken or not (row.op.views and row.written and free)) for row in kinds.examples
        ]
        of_kind = np.array(by_kind, bool)[kinds.kind]
        return np.where(of_kind, kinds.kind, len(by_kind) + np.arange(len(of_kind)))

    def _of_spent(self) -> Ints:
        values, spent = np.unique(self._kinds.spent, return_inverse=True)
        return self._kinds.kind * len(values) + spent


_BY: Mapping[str, Callable[[StepGroups], Ints]] = {
    "node": lambda groups: groups._ops[:, 1],
    "frame": lambda groups: groups._ops[:, 0],
    "run": StepGroups._of_runs,
    "kind": lambda groups: groups._kinds.kind,
    "outputs": StepGroups._of_outputs,
    "reasons": StepGroups._of_reasons,
    "spent": StepGroups._of_spent,
}
HANGS_ON = {
    **dict.fromkeys(("run", "word"), "run"),
    **dict.fromkeys(("frame", "iteration", "depth"), "frame"),
    **dict.fromkeys(("how", "shape", "dtype", "bytes"), "outputs"),
    "decision": "kind",
    "blocker": "reasons",
    "missed": "spent",
}
"""By field of a step, what it hangs on; of the others it takes each step to know them."""
