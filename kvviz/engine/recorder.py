"""Recording while the engine runs: the log, and the ledger of its storages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvviz.engine.ledger import Ledger
from kvviz.engine.plans.plan import Plan, PlannedNode
from kvviz.trace.schema.events import APPEND, IN_PLACE, Program
from kvviz.trace.schema.log import Log


class Recorder:
    """The writer of a log.

    ``on``: whether steps are logged (byte totals are counted either way).
    ``unlogged``: while a run begins after one whose steps were dropped: the first storage that no step refers to.
    """

    __slots__ = ("_programs", "ledger", "log", "on", "unlogged")

    def __init__(self, on: bool = True, poisoned: bool = False) -> None:
        self.on = on
        self.log = Log()
        self.ledger = Ledger(self.log.storages, poisoned)
        self.unlogged: int | None = None
        self._programs: dict[Plan, Program] = {}

    def program(self, plan: Plan) -> Program:
        """The program that the log records for a plan."""
        found = self._programs.get(plan)
        if found is None:
            found = self._programs[plan] = Program(plan.graph, *plan.facts())
        return found

    def note_growth(self) -> None:
        """Log which storages the op that is logged next made larger."""
        grown = self.ledger.grown
        if self.on:
            self.log.grew += [(len(self.log), storage.id, more) for storage, more in grown]
        grown.clear()

    def note_written(
        self, planned: PlannedNode, args: Sequence[Any], outs: Sequence[Any], placed: Sequence[Any]
    ) -> None:
        """Log which rows the op that is logged next overwrote in the storages of its inputs."""
        if self.on and planned.written is not None:
            parts = planned.written(args, outs, planned.attributes)
            kept = tuple([part for part in parts if placed[part[0]][2] in (IN_PLACE, APPEND)])
            if kept:
                self.log.declared.written[len(self.log)] = kept

    def note_freed(self, freed: list[int]) -> None:
        """Log storages that died between two ops."""
        if self.unlogged is not None:
            for storage in (storage for storage in freed if storage >= self.unlogged):
                # No step made it, so it must not appear to be alive.
                self.log.storages.resize(storage, 0)
            freed = [storage for storage in freed if storage < self.unlogged]
        if freed and len(self.log):
            self.log.free(freed)
