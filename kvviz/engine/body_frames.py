"""Frames of control nodes: entering an If branch, a loop body or a local function, and leaving it again.

Captures and arguments are passed *by value* (the frame takes over the hold) where the outer frame needs the value no
more, and *by reference* otherwise. A loop body may be entered again, so it gets captures by reference only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.engine.frame import Frame
from kvviz.engine.plan import KEEP, Plan, PlannedNode
from kvviz.engine.planning import plan_for
from kvviz.errors import OpError
from kvviz.graph.model import Graph
from kvviz.memory.ghosts import packed_copy
from kvviz.memory.storage import Storage, offset_in
from kvviz.trace.events import PASSED


def finish(
    execution: Any,
    frame: Frame | None,
    planned: PlannedNode,
    parent: Frame,
    placed: tuple,
    allocated: int,
    written: int,
    spent: list[Storage],
) -> None:
    """Log a control node. What its body still holds and what it ``spent`` on scan outputs dies with this step."""
    live = execution.ledger.live
    freed: list[int] = []
    if frame is not None:
        freed = close(execution, frame)
        execution.stack.pop()
    for storage in spent:
        execution.ledger.release(storage, freed)
    execution.note(parent, planned, (), (), placed, allocated, written, written, live)
    execution.recorder.note_freed(freed)


def close(execution: Any, frame: Frame) -> list[int]:
    """Release every value that a finished frame holds; returns the storages that died of it."""
    freed: list[int] = []
    for slot, storage in enumerate(frame.stores):
        if storage is not None and frame.uses[slot] < KEEP >> 1:
            execution.ledger.release(storage, freed)
    frame.vals = []
    frame.stores = []
    return freed


def own_copy(execution: Any, value: np.ndarray) -> tuple[np.ndarray, Storage, int]:
    """A copy in a storage of its own, which does not come from the pool; and the bytes allocated."""
    copy = packed_copy(value)
    return copy, *execution.ledger.allocate(copy, False)


def own_outputs(execution: Any, frame: Frame) -> tuple[int, int]:
    """Copy the outputs of a finished body that it does not own: what it captured, weights, arguments lent to it.

    ``allocated, written``: bytes.
    """
    plan = frame.plan
    lent = {slot for _, slot in plan.captured}
    allocated = written = 0
    freed: list[int] = []
    for slot in plan.outputs:
        value = frame.vals[slot]
        if (slot in lent or frame.uses[slot] >= KEEP >> 1) and isinstance(value, np.ndarray):
            copy, storage, more = own_copy(execution, value)
            if frame.uses[slot] < KEEP >> 1:
                execution.ledger.release(frame.stores[slot], freed)
            frame.bind(slot, copy, storage)
            frame.uses[slot] = 1
            allocated += more
            written += copy.nbytes
    execution.recorder.note_freed(freed)
    return allocated, written


def hand_out(parent: Frame, slot: int, value: Any, storage: Storage | None) -> tuple | None:
    """Bind a body's output to the slot of its control node's output."""
    if not slot:
        return None
    if storage is None:
        raise OpError(f"the body gave no value for output {parent.plan.names[slot]!r}")
    parent.bind(slot, value, storage)
    return passed(value, storage)


def passed(value: Any, storage: Storage) -> tuple:
    """The trace's record of a value that moved between frames."""
    if isinstance(value, np.ndarray):
        offset = offset_in(storage, value)
        return (storage.id, storage.generation, PASSED, value.shape, value.dtype, offset, value.strides)
    return (storage.id, storage.generation, PASSED, None, type(value).__name__, 0, None)


def capture(
    execution: Any, frame: Frame, plan: Plan, parent: Frame, planned: PlannedNode, taken: frozenset[int]
) -> list[tuple[str, int, str]]:
    """Bind what a body reads from outside; returns (name, slot, how) for the trace.

    ``taken`` are the parent's slots that the policy lets the body take over. A body that is entered again gets a copy
    of them each time.
    """
    noted: list[tuple[str, int, str]] = []
    for name, slot in plan.captured:
        outer = parent.plan.slots.get(name)
        if outer is None or parent.stores[outer] is None:
            raise OpError(f"node {planned.node.name!r} reads {name!r} from outside, which does not exist there")
        if outer in taken:
            if frame.control is None:
                move(parent, outer, frame, slot)
            else:
                frame.control.clone(execution.ledger, parent.vals[outer], frame, slot)
            noted.append((name, slot, "captured by value"))
        else:
            frame.bind_by_reference(slot, parent.vals[outer], parent.stores[outer])
            noted.append((name, slot, "captured by reference"))
    return noted


def pass_argument(parent: Frame, outer: int, frame: Frame, slot: int, taken: frozenset[int]) -> str:
    """Bind one argument of a body: by value where the policy lets the body take it over."""
    if not outer or parent.stores[outer] is None:
        return ""
    if outer in taken:
        move(parent, outer, frame, slot)
        return "passed"
    frame.bind_by_reference(slot, parent.vals[outer], parent.stores[outer])
    return "captured by reference"


def move(parent: Frame, outer: int, frame: Frame, slot: int) -> None:
    """Hand a value and its hold from one frame to another."""
    frame.vals[slot] = parent.vals[outer]
    frame.stores[slot] = parent.stores[outer]
    parent.vals[outer] = parent.stores[outer] = None


def body_plan(execution: Any, graph: Graph) -> Plan:
    """The plan of a body: all of its outputs are wanted."""
    return plan_for(graph, tuple(value.name for value in graph.outputs), execution.policy, execution.dry)
