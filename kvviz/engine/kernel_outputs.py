"""Where the outputs of an op live: in new memory, in an input's storage as a view, or overwritten or appended to there.

`Execution.execute` knows the usual cases of one output itself; all others are told apart here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvviz.engine.binding import dtype_of
from kvviz.engine.frame import Frame
from kvviz.engine.ledger import Ledger
from kvviz.engine.plan import PlannedNode
from kvviz.errors import OpError
from kvviz.memory.storage import Storage, address
from kvviz.trace.events import APPEND, IN_PLACE, NEW, VIEW

Placing = tuple[tuple, int, int, int]
_KEPT_AS_IT_IS = (np.ndarray, list, tuple, dict)


def lender(frame: Frame, planned: PlannedNode, args: Sequence[Any], out: np.ndarray) -> Storage | None:
    """The storage of an op's first input, if its output lies there."""
    position = planned.views[0]
    storage: Storage = frame.stores[planned.inputs[position]]
    if out is args[position]:
        return storage
    base, root = out.base, storage.root
    while base is not root:
        if not isinstance(base, np.ndarray):
            return None
        base = base.base
    return None if base is None else storage


def strides_of(planned: PlannedNode, out: np.ndarray) -> tuple[int, ...] | None:
    """Strides, as one record with those of the last step of this node where they are the same."""
    strides = out.strides
    if strides != planned.strides:
        planned.strides = strides
    return planned.strides


def every_output(planned: PlannedNode, out: Any) -> tuple:
    """What a kernel returned, one entry an output.

    Raises `OpError`: when the node names more outputs than its operator has.
    """
    outs = out if isinstance(out, tuple) else (out,)
    if any(planned.outputs[len(outs) :]):
        node, made = planned.node, len(outs)
        raise OpError(
            f"node {node.name!r} ({node.qualified_op}) names {len(node.outputs)} outputs "
            f"({', '.join(node.outputs)}), but the operator makes {made}: remove {', '.join(node.outputs[made:])}"
        )
    return outs


def place_outputs(
    ledger: Ledger, frame: Frame, planned: PlannedNode, args: Sequence[Any], out: Any, taken: tuple[int, ...]
) -> Placing:
    """Put outputs into their slots.

    ``placed``: one entry an output for the trace; see `kvviz.engine.rows`.
    ``allocated, written, copied``: bytes.
    """
    if taken and planned.plain and planned.grows and type(out) is np.ndarray:
        return _appended(frame, planned, args, out, taken[0])
    outs = every_output(planned, out)
    stores = frame.stores
    if taken or planned.views:
        sources = taken + planned.views
    else:
        sources = tuple(range(len(args))) if planned.foreign or planned.spec is None else ()
    among = [stores[slot] for i in sources if i < len(args) and (slot := planned.inputs[i])]
    placed: list[tuple | None] = []
    allocated = written = 0
    for slot, value in zip(planned.outputs, outs):
        if not slot:
            placed.append(None)
            continue
        if type(value) is not np.ndarray and value is not None and not isinstance(value, _KEPT_AS_IT_IS):
            value = np.asarray(value)
        storage, shared, more = ledger.place(value, among)
        allocated += more
        offset, strides, code = 0, None, NEW
        if shared is None:
            written += getattr(value, "nbytes", 0)
        else:
            code, grew = _how_shared(args, value, shared, taken) if taken else (VIEW, 0)
            written += grew
            strides = value.strides
            if shared.root is not None and value.size:
                offset = address(value) - address(shared.root)
            if code != VIEW:
                storage.generation += 1
        frame.vals[slot] = value
        stores[slot] = storage
        storage.holders += 1
        shape = getattr(value, "shape", None)
        placed.append((storage.id, storage.generation, code, shape, dtype_of(value), offset, strides))
    copied = 0
    if planned.cost is not None:
        written, copied = planned.cost(args, outs, bool(taken), planned.attributes)
    elif planned.moves:
        copied = written
    return tuple(placed), allocated, written, copied


def _appended(frame: Frame, planned: PlannedNode, args: Sequence[Any], out: np.ndarray, position: int) -> Placing:
    """A lone output that continues its past, in the past's storage."""
    storage, shape = frame.stores[planned.inputs[position]], out.shape
    assert storage.room is not None and planned.cost is not None
    storage.room.filled = shape[storage.room.axis]
    storage.generation += 1
    storage.holders += 1
    slot = planned.outputs[0]
    frame.vals[slot], frame.stores[slot] = out, storage
    offset = address(out) - address(storage.root)
    where = (storage.id, storage.generation, APPEND, shape, out.dtype, offset, strides_of(planned, out))
    written, copied = planned.cost(args, (out,), True, planned.attributes)
    return (where,), 0, written, copied


def _how_shared(args: Sequence[Any], value: np.ndarray, shared: Storage, taken: tuple[int, ...]) -> tuple[int, int]:
    """How an output came to lie in an input's storage, and the bytes that were written there."""
    for position in taken:
        past = args[position]
        elsewhere = shared.root is None or not np.may_share_memory(past, value)
        if elsewhere and past.size:
            continue
        if value.shape == past.shape:
            return IN_PLACE, value.nbytes
        if shared.room is not None:
            shared.room.filled = value.shape[shared.room.axis]
        return APPEND, value.nbytes - past.nbytes
    return VIEW, 0
