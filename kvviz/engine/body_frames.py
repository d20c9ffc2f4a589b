"""Common parts of all bodies: binding captures and arguments, returning results, and the state of a loop."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.engine.frame import Frame
from kvviz.engine.ledger import Ledger
from kvviz.engine.plan import KEEP, Plan, PlannedNode
from kvviz.engine.planning import plan_for
from kvviz.engine.run_state import RunState
from kvviz.errors import OpError
from kvviz.graph.model import Graph
from kvviz.memory.ghosts import ghost, is_ghost, packed_copy
from kvviz.memory.storage import Storage, offset_in, root_of
from kvviz.trace.schema.events import PASSED


def finish(
    execution: RunState,
    frame: Frame | None,
    planned: PlannedNode,
    parent: Frame,
    placed: tuple,
    allocated: int,
    written: int,
    spent: list[Storage],
) -> None:
    """Log a control node and release what its body still holds. ``spent``: storages of the parts of stacked scan
    outputs."""
    live = execution.ledger.live
    freed: list[int] = []
    if frame is not None:
        freed = close(execution, frame)
        execution.stack.pop()
    for storage in spent:
        execution.ledger.release(storage, freed)
    execution.note(parent, planned, (), (), placed, allocated, written, written, live)
    execution.recorder.note_freed(freed)


def close(execution: RunState, frame: Frame) -> list[int]:
    freed: list[int] = []
    for slot, storage in enumerate(frame.stores):
        if storage is not None and frame.uses[slot] < KEEP >> 1:
            execution.ledger.release(storage, freed)
    frame.vals = []
    frame.stores = []
    return freed


def own_copy(execution: RunState, value: np.ndarray) -> tuple[np.ndarray, Storage, int]:
    """A copy in a storage of its own, not from the pool; and the bytes allocated."""
    copy = packed_copy(value)
    return copy, *execution.ledger.allocate(copy, False)


def own_outputs(execution: RunState, frame: Frame) -> tuple[int, int]:
    """Copy the outputs of a finished body that it does not own: captured values, weights, borrowed arguments. Returns
    bytes allocated and written."""
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
    if not slot:
        return None
    if storage is None:
        raise OpError(f"the body gave no value for output {parent.plan.names[slot]!r}")
    parent.bind(slot, value, storage)
    return passed(value, storage)


def passed(value: Any, storage: Storage) -> tuple:
    if isinstance(value, np.ndarray):
        offset = offset_in(storage, value)
        return (storage.id, storage.generation, PASSED, value.shape, value.dtype, offset, value.strides)
    return (storage.id, storage.generation, PASSED, None, type(value).__name__, 0, None)


def capture(
    execution: RunState, frame: Frame, plan: Plan, parent: Frame, planned: PlannedNode, taken: frozenset[int]
) -> list[tuple[str, int, str]]:
    """Bind the values that a body captures; returns (name, slot, how) for the trace. ``taken``: slots of the parent
    that the policy lets the body take over. Each iteration of a loop gets a copy of them."""
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
    """Bind one argument of a body, by value if the policy lets the body take it over; returns how."""
    if not outer or parent.stores[outer] is None:
        return ""
    if outer in taken:
        move(parent, outer, frame, slot)
        return "passed"
    frame.bind_by_reference(slot, parent.vals[outer], parent.stores[outer])
    return "captured by reference"


def move(parent: Frame, outer: int, frame: Frame, slot: int) -> None:
    frame.vals[slot] = parent.vals[outer]
    frame.stores[slot] = parent.stores[outer]
    parent.vals[outer] = parent.stores[outer] = None


def body_plan(execution: RunState, graph: Graph) -> Plan:
    """The plan of a body, with the kernels that the main graph's plan has, if others are registered meanwhile."""
    bodies = execution.main.plan.bodies
    plan = bodies.get(graph)
    if plan is None:
        outputs = tuple(value.name for value in graph.outputs)
        plan = bodies[graph] = plan_for(graph, outputs, execution.policy, execution.dry)
    return plan


class LoopState:
    """The state of a running Loop or Scan between iterations.

    ``trips``: upper limit of the iterations; None for no limit.
    ``head``: body inputs before the carried values: 2 for Loop (iteration, condition), 0 for Scan.
    ``carried``: number of carried values (Loop) or state variables (Scan).
    ``collected``: for each scan output the (value, storage) of every iteration.
    ``sliced``: scan inputs.
    ``restarts``, ``finals``: Scan-8 only: iterations that begin a new batch item with the initial state variables, and
      the final ones of each item.
    ``taken``: slots of the parent that the policy lets the body take over.
    ``allocated, cloned``: bytes of new capacity for the loop's own values, and of copies of captured values.
    """

    def __init__(self, plan: Plan, trips: int | None, head: int, carried: int, outputs: int) -> None:
        self.plan = plan
        self.trips = trips
        self.head = head
        self.carried = carried
        self.iteration = 0
        self.collected: list[list[tuple[Any, Storage]]] = [[] for _ in range(outputs)]
        self.sliced: list[tuple[int, np.ndarray, int, bool]] = []
        self.out_axes: list[int] = [0] * outputs
        self.out_backward: list[bool] = [False] * outputs
        self.restarts: dict[int, list[tuple[int, np.ndarray]]] = {}
        self.finals: list[list[tuple[Any, Storage]]] = []
        self.batches: list[int] = []
        self.taken: frozenset[int] = frozenset()
        self.allocated = 0
        self.cloned = 0

    def clone(self, ledger: Ledger, value: Any, frame: Frame, slot: int) -> None:
        if not isinstance(value, np.ndarray):
            parts = [packed_copy(part) for part in value] if isinstance(value, (list, tuple)) else value
            storage = ledger.new(0, None)
            if isinstance(parts, list):
                storage.parts = tuple(self._block(ledger, part) for part in parts)
            for part in storage.parts:
                part.holders += 1
            frame.bind(slot, parts, storage)
            return
        copy, block = _cloned(value)
        frame.bind(slot, copy, self._block(ledger, block))

    def _block(self, ledger: Ledger, block: np.ndarray) -> Storage:
        storage = ledger.new(block.nbytes, root_of(block))
        if ledger.pool is not None:
            ledger.pool.made(storage, block)
        self.allocated += block.nbytes
        self.cloned += block.nbytes
        return storage


def _cloned(value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A copy with the same strides but no room behind the last element, and the block that it lies in."""
    if value.flags.c_contiguous or any(stride <= 0 or stride % value.itemsize for stride in value.strides):
        copy = packed_copy(value)
        return copy, copy
    size = 1 + sum((n - 1) * stride for n, stride in zip(value.shape, value.strides)) // value.itemsize
    block = ghost((size,), value.dtype) if is_ghost(value) else np.zeros(size, value.dtype)
    copy = np.ndarray(value.shape, value.dtype, block, 0, value.strides)
    if block.base is None:
        copy[...] = value
    return copy, block
