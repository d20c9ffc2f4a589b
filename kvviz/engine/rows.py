"""What is written down while running: one tuple a step, one record a frame. Everything else is derived later.

A row is ``(frame, planned, taken, masks, placed, freed, allocated, copied, written, live)``; ``placed`` has one entry
an output, ``(storage, generation, how, shape, dtype, offset, strides)`` or None for an absent output.
"""

from __future__ import annotations

from typing import Any

from kvviz.engine.ledger import Ledger
from kvviz.engine.plan import Plan, PlannedNode
from kvviz.memory.storage import Storage

Row = tuple[Any, ...]

NEW, IN_PLACE, VIEW, APPEND, POOL, PASSED = range(6)
HOW = ("new", "in place", "view", "append", "pool", "passed")
BINDINGS = ("weight", "borrowed", "donated", "captured by reference", "captured by value", "passed")
"""How a frame came by the values that it starts with."""


class FrameRow:
    """What is known of one frame: its plan, who called it, which values it started with, and before which step."""

    __slots__ = ("_bound", "attribute", "bindings", "caller", "iteration", "opened", "parent", "plan", "run")

    def __init__(
        self,
        plan: Plan,
        parent: int | None,
        caller: PlannedNode | None,
        attribute: str,
        iteration: int | None,
        run: int,
        opened: int = 0,
    ) -> None:
        self.plan = plan
        self.parent = parent
        self.caller = caller
        self.attribute = attribute
        self.iteration = iteration
        self.run = run
        self.opened = opened
        self.bindings: tuple[tuple[Any, ...], ...] = ()
        self._bound: dict[str, tuple[Any, ...]] | None = None

    def bound(self, name: str) -> tuple[Any, ...] | None:
        """What the frame started with under a name."""
        if self._bound is None or len(self._bound) != len(self.bindings):
            self._bound = {entry[0]: entry for entry in reversed(self.bindings)}
        return self._bound.get(name)

    @property
    def label(self) -> str:
        """``node[then_branch]``, ``node[body:3]``; empty for the main graph."""
        if self.caller is None:
            return ""
        suffix = "" if self.iteration is None else f":{self.iteration}"
        return f"{self.caller.node.name}[{self.attribute}{suffix}]"


class Recorder:
    """Rows and frames of a trace while it grows.

    Attributes
    ----------
    on : bool
        Whether steps are written down (byte totals are counted either way).
    untold : int or None
        While a run begins after one whose steps were dropped: the first storage that no step knows of.
    later : set of int
        Storages that died in a run whose steps were dropped. They are written to the last row before it.
    grew : list of (int, Storage, int)
        Steps at which storages became larger, and the bytes by which they did; their capacity is that at the end.
    """

    __slots__ = ("allocated", "copied", "frames", "grew", "later", "ledger", "on", "rows", "untold", "written")

    def __init__(self, on: bool = True, poisoned: bool = False) -> None:
        self.on = on
        self.rows: list[Row] = []
        self.frames: list[FrameRow] = []
        self.ledger = Ledger(poisoned)
        self.written = 0
        self.copied = 0
        self.allocated = 0
        self.untold: int | None = None
        self.later: set[int] = set()
        self.grew: list[tuple[int, Storage, int]] = []

    def note_growth(self) -> None:
        """Write down what the step that comes next in the rows made larger."""
        grown = self.ledger.grown
        if self.on:
            self.grew += [(len(self.rows), storage, more) for storage, more in grown]
        grown.clear()

    def note_freed(self, freed: list[int]) -> None:
        """Write storages that died between two ops to the row of the earlier one."""
        if self.untold is not None:
            for storage in (storage for storage in freed if storage >= self.untold):
                # Nothing tells when it was made, so that it must not seem to be there still.
                self.ledger.storages[storage].capacity = 0
            freed = [storage for storage in freed if storage < self.untold]
        if freed and self.rows:
            last = self.rows[-1]
            self.rows[-1] = (*last[:5], (*last[5], *freed), *last[6:])
