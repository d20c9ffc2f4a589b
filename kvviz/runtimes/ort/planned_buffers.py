"""Where outputs live at run time, as the plan said: dead buffers are found again, and too small ones are an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvviz.engine.frame import Frame
from kvviz.engine.placement import FRESH, Home
from kvviz.engine.plans.plan import PlannedNode
from kvviz.errors import OpError
from kvviz.memory.storage import Arguments, ArrayLayout, Storage, is_array
from kvviz.runtimes.ort.allocation_plan import ALIAS, ALLOCATE_OUTPUT, FREELIST, MAY_INPLACE, Buffer
from kvviz.runtimes.ort.known_types import known
from kvviz.runtimes.ort.ort_operators import by_address
from kvviz.runtimes.ort.planned_nodes import Notes
from kvviz.trace.schema.events import IN_PLACE, POOL, VIEW

if TYPE_CHECKING:
    from kvviz.engine.execution import Execution


def remember(frame: Frame, planned: PlannedNode) -> None:
    """Note in which storages the values are that a node reads, for those who take them over when they are dead."""
    if frame.notes is None:
        frame.notes = {}
    for slot, root in planned.notes.reads:
        storage = frame.stores[slot]
        if storage is not None:
            frame.notes[root] = storage.id


def homes(
    execution: Execution, frame: Frame, planned: PlannedNode, args: Arguments, outs: Arguments, taken: tuple[int, ...]
) -> list[Home]:
    """Where each output of an op lives."""
    notes: Notes = planned.notes
    remember(frame, planned)
    found = [
        FRESH if buffer is None else _home(execution, frame, planned, buffer, out, taken)
        for buffer, out in zip(notes.buffers, outs)
    ]
    if not notes.makes:
        return found
    # New storages are numbered in the order of the outputs.
    number = len(execution.ledger.storages)
    ids: dict[int, int] = {}
    for j, (buffer, home, out) in enumerate(zip(notes.buffers, found, outs)):
        if buffer is not None and home is FRESH and is_array(out):
            ids[j] = number
            number += 1
    for j, root in notes.makes:
        if j in ids:
            frame.notes[root] = ids[j]
    return found


def _home(
    execution: Execution, frame: Frame, planned: PlannedNode, buffer: Buffer, out: Any, taken: tuple[int, ...]
) -> Home:
    if buffer.rule == ALIAS:
        return Home(VIEW, buffer.position)
    if taken and (buffer.rule == MAY_INPLACE or buffer.kind == ALLOCATE_OUTPUT):
        places = {present: past for past, present in by_address(planned.node)} or {0: taken[0]}
        position = places.get(planned.node.outputs.index(buffer.value))
        return FRESH if position is None else Home(IN_PLACE, position)
    if buffer.rule == FREELIST:
        return _dead(execution, frame, planned, buffer, out)
    caller = frame.caller
    if buffer.kind == ALLOCATE_OUTPUT and caller is not None and caller.control == "If" and frame.parent is not None:
        # A branch computes its outputs right where the If wants them.
        place = frame.plan.outputs.index(frame.plan.slots[buffer.value])
        outside = caller.notes.buffers[place] if place < len(caller.notes.buffers) else None
        if outside is not None and outside.rule == FREELIST:
            return _dead(execution, frame.parent, caller, outside, out)
    return FRESH


def _dead(execution: Execution, frame: Frame, planned: PlannedNode, buffer: Buffer, out: Any) -> Home:
    """The storage that the plan names, if it exists and is dead; both can fail only where another order was chosen."""
    number = (frame.notes or {}).get(buffer.root)
    if number is None:
        number = _recorded(execution, frame, buffer.root)
    if number is None or number >= len(execution.ledger.storages) or not is_array(out):
        return FRESH
    storage = execution.ledger.storages[number]
    if storage is None or storage.holders or not storage.owned:
        return FRESH
    if storage.capacity < out.nbytes:
        raise OpError(_mismatch(frame, planned, buffer, out, storage))
    return Home(POOL, -1, storage)


def _recorded(execution: Execution, frame: Frame, name: str) -> int | None:
    """Where a control node put an output that nobody reads."""
    for row in reversed(execution.log):
        if row.frame == frame.id and name in row.op.node.outputs:
            where = row.outs[row.op.node.outputs.index(name)]
            return None if where is None else where.storage
    return None


def _mismatch(frame: Frame, planned: PlannedNode, buffer: Buffer, out: ArrayLayout, storage: Storage) -> str:
    shape = known(frame.plan.graph).types[buffer.value].shape or ()
    names = ", ".join(repr(dim) for dim in dict.fromkeys(shape) if isinstance(dim, str))
    return (
        f"node {planned.node.name!r} ({planned.node.qualified_op}) fails in onnxruntime: by the names of dimensions "
        f"({names}) {buffer.value!r} and {buffer.root!r} have one size, so the plan gives the buffer of the one to the "
        f"other, but it has {storage.capacity} bytes and {out.nbytes} are needed; give dimensions of different lengths "
        "different names in the model"
    )
