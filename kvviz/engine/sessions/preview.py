"""Bytes that an op of the frontier would allocate and free if it ran now. Kernels are pure, so trying one is safe."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.engine.execution import Execution
from kvviz.engine.frame import Frame
from kvviz.engine.placement import every_output, kernel_homes
from kvviz.engine.plans.plan import PlannedNode
from kvviz.trace.schema.events import NEW

# A kernel whose inputs have more bytes than this is not tried; what it would allocate is then unknown.
TRIED_BYTES = 1 << 22


def preview(execution: Execution, frame: Frame, planned: PlannedNode) -> tuple[int | None, int]:
    """Bytes that a ready node of the running frame would allocate (None if unknown) and free."""
    if planned.control:
        return None, 0
    args = [frame.vals[slot] for slot in planned.inputs]
    stores = [frame.stores[slot] for slot in planned.inputs]
    taken: tuple[int, ...] = ()
    if planned.watches or execution.placed:
        taken = execution.decide(frame, planned, args)[0]
    dying = {
        storage.id: storage.capacity
        for slot, count in planned.consumes
        if frame.uses[slot] == count and (storage := frame.stores[slot]) is not None and storage.holders == 1
    }
    allocated = 0
    if taken and not execution.placed:
        for position in taken:
            dying.pop(stores[position].id, None)
        return allocated, sum(dying.values())
    outs = _tried(planned, args)
    if outs is None:
        return None, sum(dying.values())
    pool = execution.ledger.pool
    for value, home in zip(
        outs, (execution.policy.homes or kernel_homes)(execution, frame, planned, args, outs, taken)
    ):
        if home.how != NEW:
            dying.pop((home.storage or stores[home.position]).id, None)
        elif not (home.pooled and pool is not None and isinstance(value, np.ndarray) and pool.has(value)):
            allocated += max(getattr(value, "nbytes", 0), home.elements * getattr(value, "itemsize", 0))
    return allocated, sum(dying.values())


def _tried(planned: PlannedNode, args: list[Any]) -> tuple[Any, ...] | None:
    """The outputs that a kernel returns; None if it is not tried or fails, which is reported when the op runs."""
    if sum(getattr(value, "nbytes", 0) for value in args) > TRIED_BYTES:
        return None
    try:
        with np.errstate(all="ignore"):
            outs = every_output(planned, planned.call(*args))
    except Exception:
        return None
    return tuple(np.asarray(value) if isinstance(value, np.generic) else value for value in outs)
