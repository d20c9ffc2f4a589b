"""What an op of the frontier would allocate and free if it ran now. Kernels are pure, so asking changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kvviz.engine.frame import Frame
from kvviz.engine.plan import PlannedNode
from kvviz.memory.pool import Pool
from kvviz.memory.storage import root_of
from kvviz.trace.events import NEW

if TYPE_CHECKING:
    from kvviz.engine.execution import Execution

# A kernel over more bytes than this is not tried out: what it allocates is then left open.
TRIED_BYTES = 1 << 22


def preview(execution: Execution, frame: Frame, planned: PlannedNode) -> tuple[int | None, int]:
    """Bytes that a ready node would allocate (None if unknown) and free.

    ``frame``: the frame that runs now.
    ``planned``: a node of its frontier.
    """
    if planned.control:
        return None, 0
    args = [frame.vals[slot] for slot in planned.inputs]
    taken: tuple[int, ...] = ()
    if planned.watches or execution.placed:
        taken = execution.decide(frame, planned, args)[0]
    dying = {
        storage.id: storage.capacity
        for slot, count in planned.consumes
        if frame.uses[slot] == count and (storage := frame.stores[slot]) is not None and storage.holders == 1
    }
    if taken and not execution.placed:
        for position in taken:
            dying.pop(frame.stores[planned.inputs[position]].id, None)
        return 0, sum(dying.values())
    out = _try(planned, args)
    if out is None:
        return None, sum(dying.values())
    homes = execution.policy.homes
    if homes is not None:
        pool = execution.ledger.pool
        return _placed(frame, planned, out, homes(execution, frame, planned, args, out, taken), dying, pool)
    allocated = 0
    for value in out:
        if not isinstance(value, np.ndarray):
            continue
        root = root_of(value)
        lender = next((frame.stores[slot] for slot in planned.inputs if slot and _root(frame, slot) is root), None)
        if lender is None:
            allocated += value.nbytes
        else:
            dying.pop(lender.id, None)
    return allocated, sum(dying.values())


def _placed(
    frame: Frame, planned: PlannedNode, out: tuple, homes: Any, dying: dict[int, int], pool: Pool | None
) -> tuple[int, int]:
    """The same where the policy says in whose storage each output will be."""
    allocated = 0
    for value, home in zip(out, homes):
        if home.how == NEW and home.pooled and pool is not None and isinstance(value, np.ndarray) and pool.has(value):
            continue
        if home.how == NEW:
            allocated += max(getattr(value, "nbytes", 0), home.elements * getattr(value, "itemsize", 0))
        elif home.storage is None:
            dying.pop(frame.stores[planned.inputs[home.position]].id, None)
    return allocated, sum(dying.values())


def _try(planned: PlannedNode, args: list) -> tuple[Any, ...] | None:
    if sum(getattr(value, "nbytes", 0) for value in args) > TRIED_BYTES:
        return None
    try:
        with np.errstate(all="ignore"):
            out = planned.call(*args)
    except Exception:
        return None  # the error is told when the op really runs
    # Of scalars NumPy makes what is no array.
    outs = out if isinstance(out, tuple) else (out,)
    return tuple(np.asarray(value) if isinstance(value, np.generic) else value for value in outs)


def _root(frame: Frame, slot: int) -> Any:
    storage = frame.stores[slot]
    return None if storage is None else storage.root
