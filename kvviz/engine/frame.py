"""One activation of a graph: its values, their storages, and the remaining reads of each."""

from __future__ import annotations

from typing import Any

from kvviz.engine.plan import KEEP, Plan, PlannedNode
from kvviz.graph.topological_order import frontier
from kvviz.memory.storage import Storage


class Frame:
    """Values by slot while one graph runs.

    ``id``: number in the trace.
    ``vals, stores``: value and storage of each slot; None if it does not exist yet or no longer exists.
    ``uses``: readings left. `KEEP` or more: this frame never releases the value (weights, captures by reference).
    ``done``: 1 for every planned node that has run.
    ``caller``: the control node of the parent that this frame is the body of.
    ``control``: the state of a Loop or Scan that the frame is an iteration of.
    ``gone``: by slot, the storage of each value that was released, under a policy that places outputs.
    ``program``: the step program of its plan, if it has one.
    ``ahead``: segments of that which have not been tried, by the position of their first op.
    ``watch``: what the ops do, while the program is made.
    """

    __slots__ = (
        "ahead",
        "caller",
        "control",
        "done",
        "gone",
        "id",
        "next_position",
        "parent",
        "plan",
        "program",
        "stores",
        "uses",
        "vals",
        "watch",
    )

    def __init__(self, id: int, plan: Plan, parent: Frame | None = None, caller: PlannedNode | None = None) -> None:
        self.id = id
        self.plan = plan
        size = len(plan.names)
        self.vals: list[Any] = [None] * size
        self.stores: list[Any] = [None] * size
        self.uses = plan.uses.copy()
        self.done = bytearray(len(plan.order))
        self.next_position = 0
        self.parent = parent
        self.caller = caller
        self.control: Any = None
        self.gone: dict[int, Storage] = {}
        self.program: Any = None
        self.ahead: dict[int, Any] = {}
        self.watch: Any = None

    def bind(self, slot: int, value: Any, storage: Storage) -> None:
        """Put a value into a slot and hold its storage."""
        self.vals[slot] = value
        self.stores[slot] = storage
        storage.holders += 1

    def bind_by_reference(self, slot: int, value: Any, storage: Storage) -> None:
        """Put a value into a slot without holding its storage: an outer frame holds it while this frame lives."""
        self.vals[slot] = value
        self.stores[slot] = storage
        self.uses[slot] += KEEP

    def following(self) -> PlannedNode | None:
        """The first node in plan order that has not run, or None when all have."""
        done = self.done
        position = done.find(0, self.next_position)
        if position < 0:
            return None
        self.next_position = position
        return self.plan.order[position]

    def frontier(self) -> tuple[PlannedNode, ...]:
        """Nodes whose inputs are all ready and that have not run, in plan order."""
        order = self.plan.order
        return tuple(order[at] for at in frontier((planned.depends for planned in order), self.done))
