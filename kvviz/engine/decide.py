"""The in-place decision: may this op take over the storage of one of its inputs?

A rule is called once for every op whose kind can run in place. It returns ``(taken, masks, how)``: the input positions
that are taken over; for each refused position a bit mask of all reasons; and the keyword arguments (``out=`` or
``grown=``) for the kernel. No check stops at the first reason. A rule reads layouts (`ArrayLayout`), never numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvviz.engine.frame import Frame
from kvviz.engine.plan import KEEP, PlannedNode
from kvviz.memory.storage import Arguments, ArrayLayout, Storage, grown, is_array, is_start, repeats
from kvviz.ops.registry import Grow
from kvviz.trace import blockers as b

NOTHING: dict[str, Any] = {}
ONLY = tuple((position,) for position in range(64))  # the record of an op that takes over one input
Verdict = tuple[tuple[int, ...], tuple[tuple[int, int], ...], dict[str, Any]]
_REASON = {"": 0, "shape": b.SHAPE_DIFFERS, "dtype": b.DTYPE_DIFFERS}


def ideal(frame: Frame, planned: PlannedNode, args: Arguments) -> Verdict:
    """In place whenever memory safety allows.

    An input may be overwritten if this op is its last reader, the run owns its storage, no other live value shares
    that storage, and it has the output's shape and dtype. It must be in row-major order unless no reader of the output
    depends on the layout: the last bit of a sum or product does, and a policy must never change a result.

    A past may be appended to if the run owns it and its reserved buffer has room. Existing rows do not change, so other
    readers are not affected. Two pasts of one op are never extended into the same reserved room.
    """
    uses, stores = frame.uses, frame.stores
    for position, slot in planned.candidates:
        storage = stores[slot]
        if uses[slot] == 1 and storage.holders == 1 and storage.owned:
            array = args[position]
            fits = planned.fits
            misfit = fits(args, position, planned.attributes) if fits else elementwise_misfit(args, position)
            if not misfit:
                flags = array.flags
                if flags.writeable and (flags.c_contiguous or _in_its_order(frame, planned, array, storage)):
                    return ONLY[position], (), {"out": array}
    if planned.grows:
        return grow(frame, planned, args)
    masks = tuple([(i, overwrite_mask(frame, planned, args, i, s)) for i, s in planned.candidates])
    return (), _as_before(planned, masks), NOTHING


def _as_before(planned: PlannedNode, masks: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Refusals; equal ones of the last step of this node are reused, which saves memory."""
    if masks != planned.refusals:
        planned.refusals = masks
    return planned.refusals


def never(frame: Frame, planned: PlannedNode, args: Arguments) -> Verdict:
    positions = [i for i, _ in planned.candidates] or [g.input for g in planned.grows if args[g.input] is not None]
    return (), _as_before(planned, tuple([(i, b.POLICY) for i in positions])), NOTHING


def by_value(frame: Frame, planned: PlannedNode) -> frozenset[int]:
    """Slots that the body of a control node takes over: values that nothing else needs. An If may take captured values;
    a Loop, Scan or local function may take arguments only."""
    uses = frame.uses
    if planned.control == "If":
        given = planned.inputs
        return frozenset(s for _, s in planned.captures if uses[s] == planned.reads[s] and s not in given)
    return by_reference(frame, planned)


def by_reference(frame: Frame, planned: PlannedNode) -> frozenset[int]:
    """Slots that the body of a control node takes over if captures are always by reference: arguments of a Loop, Scan
    or local function that nothing else needs."""
    if planned.control == "If":
        return frozenset()
    uses, reads = frame.uses, planned.reads
    return frozenset(s for s in planned.inputs if s and uses[s] == 1 and reads[s] == 1)


def written_over(planned: PlannedNode, args: Arguments, position: int) -> dict[str, Any]:
    """``out=`` where our kernel can write into an input that a runtime overwrites; elsewhere the result is moved."""
    spec, array = planned.spec, args[position]
    if spec is None or position not in spec.overwrites or "out" not in spec.wants or not is_array(array):
        return NOTHING
    misfit = planned.fits(args, position, planned.attributes) if planned.fits else elementwise_misfit(args, position)
    return NOTHING if misfit or not array.flags.c_contiguous or not array.flags.writeable else {"out": array}


def elementwise_misfit(args: Sequence[Any], position: int) -> str:
    array: ArrayLayout = args[position]
    shape = array.shape
    for other in args:
        if other is None or other is array:
            continue
        theirs = other.shape
        if not theirs or theirs == shape:
            continue
        extra = len(shape) - len(theirs)
        if extra < 0:
            return "shape"
        for n, m in zip(theirs, shape[extra:]):
            if n not in (m, 1):
                return "shape"
    return ""


def _in_its_order(frame: Frame, planned: PlannedNode, array: ArrayLayout, storage: Storage) -> bool:
    """Whether an op may overwrite values that are not in row-major order: if no reader depends on the order, or if it
    writes rows inside a reserved block, whose order is fixed."""
    spec = planned.spec
    if spec is None or not spec.by_element or repeats(array):
        return False
    if spec.cost is not None and storage.room is not None:
        return rows_are_in_order(array.shape, array.strides, array.itemsize)
    return frame.plan.is_loose(planned.outputs[0])


def overwrite_mask(frame: Frame, planned: PlannedNode, args: Arguments, position: int, slot: int) -> int:
    array = args[position]
    mask = b.CONSTANT if frame.stores[slot].origin == "weights" else _ownership_mask(frame, planned, slot)
    if is_array(array):
        fits = planned.fits
        misfit = fits(args, position, planned.attributes) if fits else elementwise_misfit(args, position)
        if misfit:
            mask |= _REASON[misfit]
        flags = array.flags
        ordered = flags.c_contiguous or _in_its_order(frame, planned, array, frame.stores[slot])
        if not ordered or (not flags.writeable and not mask & (b.CONSTANT | b.BORROWED_INPUT)):
            mask |= b.NOT_CONTIGUOUS
    return mask


def _ownership_mask(frame: Frame, planned: PlannedNode, slot: int) -> int:
    storage = frame.stores[slot]
    if storage.origin == "weights":
        return b.CONSTANT
    plan = frame.plan
    mask = 0
    here = planned.reads[slot]
    if here > 1:
        mask |= b.SAME_OP_TWICE
    requested = slot in plan.is_output
    if requested:
        mask |= b.REQUESTED_OUTPUT
    left = frame.uses[slot]
    by_reference = left >= KEEP >> 1
    if by_reference:
        left = left - KEEP
    if left - here - requested > 0:
        mask |= b.NOT_LAST_USE
    if by_reference:
        mask |= b.CAPTURED_BY_REFERENCE
    if storage.holders > 1 + (not storage.owned):
        mask |= b.ALIASED
    if not storage.owned:
        mask |= b.BORROWED_INPUT
    return mask


def grow(frame: Frame, planned: PlannedNode, args: Arguments) -> Verdict:
    """Append to each past of this op, or write rows inside it; each is decided separately."""
    if len(planned.grows) == 1:
        only = planned.grows[0]
        if args[only.input] is None:
            return (), (), NOTHING
        mask, present = _grow_one(frame, planned, args, only, args[only.input])
        if present is None:
            return (), _as_before(planned, ((only.input, mask),)), NOTHING
        return ONLY[only.input], (), {"grown": (present,)}
    taken, masks, presents = [], [], []
    for one in planned.grows:
        present = None
        past = args[one.input]
        if past is not None:
            mask, present = _grow_one(frame, planned, args, one, past)
            if twice := _grown_twice(frame, planned, one, present):
                mask, present = mask | twice, None
            if present is None:
                masks.append((one.input, mask))
            else:
                taken.append(one.input)
        presents.append(present)
    if not taken:
        return (), _as_before(planned, tuple(masks)), NOTHING
    return tuple(taken), tuple(masks), {"grown": tuple(presents)}


def rows_are_in_order(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether the rows of a buffer are laid out as in a new one, so that products with them round the same way."""
    return len(shape) < 2 or strides[-2:] == (itemsize * shape[-1], itemsize)


def _grown_twice(frame: Frame, planned: PlannedNode, grow: Grow, present: ArrayLayout | None) -> int:
    """Why two pasts of one op cannot both be extended: they are one value, or share the reserved room."""
    slot = planned.inputs[grow.input]
    others = [planned.inputs[other.input] for other in planned.grows if other is not grow]
    if slot in others:
        return b.SAME_OP_TWICE
    storage = frame.stores[slot]
    return b.ALIASED if present is not None and any(frame.stores[other] is storage for other in others) else 0


def _grow_one(
    frame: Frame, planned: PlannedNode, args: Arguments, grow: Grow, past: ArrayLayout
) -> tuple[int, ArrayLayout | None]:
    slot = planned.inputs[grow.input]
    storage = frame.stores[slot]
    room = storage.room
    rows = grow.rows(args, planned.attributes)
    if rows and room is None:
        mask = b.CONSTANT if storage.origin == "weights" else 0 if storage.owned else b.BORROWED_INPUT
        return mask | b.NO_CAPACITY, None
    if rows == 0:
        mask = _ownership_mask(frame, planned, slot)
        if (
            not rows_are_in_order(past.shape, past.strides, past.itemsize)
            or repeats(past)
            or not (mask or past.flags.writeable)
        ):
            mask |= b.NOT_CONTIGUOUS
        return mask, (None if mask else past)
    mask = b.CONSTANT if storage.origin == "weights" else 0 if storage.owned else b.BORROWED_INPUT
    axis = grow.axis(args, planned.attributes)
    if (
        room is None
        or room.axis != axis
        or room.filled != past.shape[axis]
        or room.filled + rows > room.rows
        or not is_start(storage, past)
    ):
        return mask | b.NO_CAPACITY, None
    return mask, (None if mask else grown(storage, past, rows))
