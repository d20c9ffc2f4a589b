"""Where the outputs of an op live under a policy that says so itself; NumPy memory is made to follow.

The dispatch (which form of the kernel is called) and the identity (in whose storage an output is) are two facts, and
runtimes such as rten and ONNX Runtime decide both by rules. An output that such a rule calls new is never a view here,
and one that it calls shared belongs to its input's storage even where our kernel computed it elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kvviz.engine.binding import dtype_of
from kvviz.engine.kernel_outputs import Placing, every_output
from kvviz.engine.plan import KEEP, PIN
from kvviz.memory.ghosts import forget, is_ghost, packed_copy
from kvviz.memory.storage import Room, Storage, address, offset_in, root_of
from kvviz.trace.events import APPEND, IN_PLACE, NEW, POOL, VIEW

if TYPE_CHECKING:
    from kvviz.engine.frame import Frame
    from kvviz.engine.plan import PlannedNode


class Home(NamedTuple):
    """Where one output lives.

    ``how``: `NEW`; `VIEW`, `IN_PLACE` or `APPEND` in the storage of the input at ``position``; `POOL` in the dead
      ``storage``.
    ``pooled``: whether new memory may come from the policy's pool.
    ``dropped``: the buffer of the input at ``position`` is thrown away and does not come back to the pool.
    ``mask``: why the input at ``position``, with which the op was called in place, could not hold the output.
    ``elements``: of new memory: for how many elements it has room, where that is more than the output has.
    """

    how: int = NEW
    position: int = -1
    storage: Storage | None = None
    pooled: bool = True
    dropped: bool = False
    mask: int = 0
    elements: int = 0


FRESH = Home()
UNPOOLED = Home(pooled=False)
_SHARED = (VIEW, IN_PLACE, APPEND)


def place_at_homes(
    execution: Any, frame: Frame, planned: PlannedNode, args: Sequence[Any], out: Any, taken: tuple[int, ...]
) -> tuple[Placing, tuple[tuple[int, int], ...]]:
    """Put outputs into their slots, in the storages that the policy names.

    Gives what `kvviz.engine.kernel_outputs.place_outputs` does, and why inputs could not hold an output.
    """
    vals, stores = frame.vals, frame.stores
    for position in taken:
        slot = planned.inputs[position]
        if frame.uses[slot] >= PIN:
            # What is handed to an op is not kept to the end of the frame.
            frame.uses[slot] -= PIN
    outs = every_output(planned, out)
    homes = execution.policy.homes(execution, frame, planned, args, outs, taken)
    placed: list[tuple | None] = []
    allocated = stored = 0
    for slot, value, home in zip(planned.outputs, outs, homes):
        if not slot:
            placed.append(None)
            continue
        if value is not None and not isinstance(value, (np.ndarray, list, tuple, dict)):
            value = np.asarray(value)
        if home.how in _SHARED and isinstance(value, np.ndarray):
            storage = stores[planned.inputs[home.position]]
            shown, offset = value, 0
            if home.how == VIEW and value.dtype != args[home.position].dtype:
                # A Cast that the runtime has removed: there is nothing but what it was to convert.
                source = args[home.position]
                shown = source if source.nbytes <= storage.capacity else storage.root
                offset = offset_in(storage, shown)
            else:
                dies = frame.uses[planned.inputs[home.position]] == 1
                value, grew = _share(storage, args, value, home, dies)
                stored += grew
                # It may be too small for NumPy's element type: rten holds int64 and bool in four bytes.
                allocated += execution.ledger.widen(storage, value.nbytes)
                shown = value
                if value.size and isinstance(storage.root, np.ndarray) and root_of(value) is storage.root:
                    offset = address(value) - address(storage.root)
            where: tuple = (storage.id, storage.generation, home.how, shown.shape, shown.dtype, offset, shown.strides)
        else:
            value, storage, more = settle(execution, args, value, home, [stores[s] for s in planned.inputs if s])
            allocated += more
            stored += getattr(value, "nbytes", 0)
            code = POOL if storage.generation else NEW
            where = (storage.id, storage.generation, code, getattr(value, "shape", None), dtype_of(value), 0, None)
        vals[slot] = value
        stores[slot] = storage
        storage.holders += 1
        placed.append(where)
    written, copied = stored, 0
    if planned.cost is not None:
        shared = any(home.how in _SHARED for home in homes)
        written, copied = planned.cost(args, outs, shared, planned.attributes)
    elif planned.moves or planned.views:
        copied = written
    pool = execution.ledger.pool
    if pool is not None:
        pool.dropped.update(stores[planned.inputs[home.position]].id for home in homes if home.dropped)
    masks = tuple([(home.position, home.mask) for home in homes if home.mask])
    return (tuple(placed), allocated, written, copied), masks


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
            copy = packed_copy(value)
            storage, more = execution.ledger.allocate(copy, False)
            if frame.uses[slot] < KEEP >> 1:
                execution.ledger.release(frame.stores[slot], freed)
            frame.vals[slot], frame.stores[slot] = copy, storage
            frame.uses[slot] = 1
            storage.holders += 1
            allocated += more
            written += copy.nbytes
    execution.recorder.note_freed(freed)
    return allocated, written


def _share(storage: Storage, args: Sequence[Any], value: np.ndarray, home: Home, dies: bool) -> tuple[np.ndarray, int]:
    """Let an output live in the storage of its input, which may die here; returns it, and the bytes written."""
    source = args[home.position]
    if home.how == IN_PLACE and value is not source and _alike(value, source):
        # Our kernel has no in-place form for this.
        if is_ghost(value):
            forget(source)
        else:
            np.copyto(source, value)
        value = source
    elif root_of(value) is not storage.root:
        # Of another type or size, which NumPy cannot put there: from now on this memory stands for the storage.
        value = _alone(value, args)
        if home.how != VIEW or (dies and storage.owned and storage.holders == 1):
            # What reads the input later, other values, and the caller keep what is there: it must stay known for ours.
            storage.root = root_of(value)
            storage.room = None
    if home.how == VIEW:
        return value, 0
    storage.generation += 1
    if home.how == IN_PLACE:
        return value, value.nbytes
    if storage.room is not None:
        storage.room = Room(storage.room.axis, storage.room.rows, value.shape[storage.room.axis])
    return value, value.nbytes - source.nbytes


def _alike(value: np.ndarray, source: np.ndarray) -> bool:
    return value.shape == source.shape and value.dtype == source.dtype and source.flags.writeable


def settle(
    execution: Any, args: Sequence[Any], value: Any, home: Home, among: list[Storage]
) -> tuple[Any, Storage, int]:
    """Give an output memory of its own: new, from the policy's pool, or a dead storage that the policy names."""
    ledger = execution.ledger
    if not isinstance(value, np.ndarray):
        # A view may lie elsewhere in NumPy: whose it is its storage tells, and not its memory.
        arrays = (part for part in args if part is not None)
        homes = {id(root_of(a)): s for a, s in zip(arrays, among) if isinstance(a, np.ndarray)}
        storage, _, allocated = ledger.place(value, among, homes)
        return value, storage, allocated
    value = _alone(value, args)
    if home.storage is None:
        storage, allocated = ledger.allocate(value, home.pooled)
        if home.elements > value.size and not storage.generation:
            allocated += ledger.widen(storage, home.elements * value.itemsize)
            if ledger.pool is not None:
                ledger.pool.made(storage, value)  # once more, as it is larger now
        return value, storage, allocated
    ledger.revive(home.storage, root_of(value))
    return value, home.storage, ledger.widen(home.storage, value.nbytes)


def _alone(value: np.ndarray, args: Sequence[Any]) -> np.ndarray:
    """A row-major array that no other value has a part of; copied where the kernel returned an input or a view."""
    given = [part for arg in args for part in (arg if isinstance(arg, (list, tuple)) else (arg,))]
    root = root_of(value)
    whole = value.flags.c_contiguous and root.nbytes == value.nbytes
    if whole and not any(isinstance(part, np.ndarray) and root_of(part) is root for part in given):
        return value
    return packed_copy(value)
