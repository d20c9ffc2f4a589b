"""What the engine writes down while it runs: a log, and the ledger of the storages in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvviz.engine.ledger import Ledger
from kvviz.engine.plan import Plan, PlannedNode
from kvviz.trace.events import APPEND, IN_PLACE
from kvviz.trace.log import Log
from kvviz.trace.program import Program


class Recorder:
    """The writer of a log.

    ``on``: whether steps are written down (byte totals are counted either way).
    ``untold``: while a run begins after one whose steps were dropped: the first storage that no step knows of.
    """

    __slots__ = ("_programs", "ledger", "log", "on", "untold")

    def __init__(self, on: bool = True, poisoned: bool = False) -> None:
        self.on = on
        self.log = Log()
        self.ledger = Ledger(self.log.storages, poisoned)
        self.untold: int | None = None
        self._programs: dict[Plan, Program] = {}

    def program(self, plan: Plan) -> Program:
        """What the log tells of a plan."""
        found = self._programs.get(plan)
        if found is None:
            found = self._programs[plan] = Program(plan.graph, *plan.facts())
        return found

    def note_growth(self) -> None:
        """Write down what the op that is written next made larger."""
        grown = self.ledger.grown
        if self.on:
            self.log.grew += [(len(self.log), storage.id, more) for storage, more in grown]
        grown.clear()

    def note_written(
        self, planned: PlannedNode, args: Sequence[Any], outs: Sequence[Any], placed: Sequence[Any]
    ) -> None:
        """Write down which rows the op that is written next has overwritten in its inputs' storages."""
        if self.on and planned.written is not None:
            parts = planned.written(args, outs, planned.attributes)
            kept = tuple([part for part in parts if placed[part[0]][2] in (IN_PLACE, APPEND)])
            if kept:
                self.log.declared.written[len(self.log)] = kept

    def note_freed(self, freed: list[int]) -> None:
        """Write down storages that died between two ops."""
        if self.untold is not None:
            for storage in (storage for storage in freed if storage >= self.untold):
                # Nothing tells when it was made, so that it must not seem to be there still.
                self.log.storages.resize(storage, 0)
            freed = [storage for storage in freed if storage < self.untold]
        if freed and len(self.log):
            self.log.free(freed)
