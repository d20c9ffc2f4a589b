"""Where the outputs of an op live: in new memory, or in that of an input as a view, overwritten or appended to.

There is one rule, `place`, for all policies. `Execution.execute` has the usual cases of a lone output written out.

A policy with ``homes`` names the place of each output, and NumPy memory is made to follow: which form of the kernel is
called and in whose storage an output is are two facts, and runtimes such as rten and ONNX Runtime decide both by rules.
An output that such a rule calls new is never a view here, and one that it calls shared belongs to its input's storage
even if our kernel computed it elsewhere. For any other policy an output lives where its kernel has put it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kvviz.engine.binding import dtype_of
from kvviz.engine.ledger import Ledger
from kvviz.engine.plan import KEEP, PIN
from kvviz.errors import OpError
from kvviz.memory.ghosts import forget, is_ghost, packed_copy
from kvviz.memory.storage import Storage, address, root_of
from kvviz.trace.schema.events import APPEND, IN_PLACE, NEW, POOL, VIEW

if TYPE_CHECKING:
    from kvviz.engine.frame import Frame
    from kvviz.engine.plan import PlannedNode


class Home(NamedTuple):
    """Where one output lives.

    ``how``: `NEW`; `VIEW`, `IN_PLACE` or `APPEND` in the storage of the input at ``position``; `POOL` in the dead
      ``storage``.
    ``storage``: for a view also that of an element, if the input is a list.
    ``pooled``: whether new memory may come from the policy's pool.
    ``dropped``: the buffer of the input at ``position`` is discarded and does not return to the pool.
    ``mask``: why the input at ``position``, with which the op was called in place, could not hold the output.
    ``elements``: room of new memory in elements, if that is more than the output has.
    """

    how: int = NEW
    position: int = -1
    storage: Storage | None = None
    pooled: bool = True
    dropped: bool = False
    mask: int = 0
    elements: int = 0


FRESH = Home()
UNUSUAL = -1
UNPOOLED = Home(pooled=False)
_SHARED = (VIEW, IN_PLACE, APPEND)
Masks = tuple[tuple[int, int], ...]


def place(
    execution: Any,
    frame: Frame,
    planned: PlannedNode,
    args: Sequence[Any],
    out: Any,
    taken: tuple[int, ...],
    home: Home | None = None,
) -> tuple[tuple, int, int, int, Masks]:
    """Put what a kernel returned, called in place with the inputs ``taken``, into the slots of an op.

    ``home``: of a lone output, if the policy already chose it. Returns ``placed``: one entry per output for the trace,
    see `kvviz.trace.schema.events.Output`; bytes ``allocated, written, copied``; ``masks``: why inputs that were taken
    could not hold an output.
    """
    ledger, vals, stores, policy = execution.ledger, frame.vals, frame.stores, execution.policy
    for position in taken:
        slot = planned.inputs[position]
        if PIN <= frame.uses[slot] < KEEP >> 1:
            # Values handed to an op are not kept to the end of the frame.
            frame.uses[slot] -= PIN
    outs = (out,) if type(out) is np.ndarray and len(planned.outputs) == 1 else every_output(planned, out)
    homes = [home] if home is not None else (policy.homes or kernel_homes)(execution, frame, planned, args, outs, taken)
    placed: list[tuple | None] = []
    masks: Masks = ()
    allocated = stored = 0
    for slot, value, home in zip(planned.outputs, outs, homes):
        if not slot:
            placed.append(None)
            continue
        array = type(value) is np.ndarray
        if not array:
            value = np.asarray(value) if isinstance(value, np.generic) else value
            array = isinstance(value, np.ndarray)
        if array and home.how in _SHARED:
            storage = home.storage or stores[planned.inputs[home.position]]
            dies = frame.uses[planned.inputs[home.position]] == 1
            value, shown, grew, more = _share(ledger, storage, args, value, home, dies)
            inside = shown.size and root_of(shown) is storage.root
            offset = address(shown) - address(storage.root) if inside else 0
            strides = strides_of(planned, shown) if len(outs) == 1 else shown.strides
            where: tuple = (storage.id, storage.generation, home.how, shown.shape, shown.dtype, offset, strides)
        elif array:
            value, storage, more = settle(ledger, args, value, home)
            grew, code = value.nbytes, POOL if storage.generation else NEW
            where = (storage.id, storage.generation, code, value.shape, value.dtype, 0, None)
        else:
            given = [(args[i], stores[slot]) for i, slot in enumerate(planned.inputs) if slot]
            # A view may lie elsewhere in NumPy: its storage decides whose it is, not its memory.
            known = {id(root_of(arg)): storage for arg, storage in given if isinstance(arg, np.ndarray)}
            storage, more = _listed(ledger, value, known, [storage for _, storage in given])
            grew, where = 0, (storage.id, storage.generation, NEW, None, dtype_of(value), 0, None)
        allocated += more
        stored += grew
        vals[slot], stores[slot] = value, storage
        storage.holders += 1
        placed.append(where)
        if home.mask:
            masks += ((home.position, home.mask),)
        if home.dropped and ledger.pool is not None:
            ledger.pool.dropped.add(stores[planned.inputs[home.position]].id)
    written, copied = stored, 0
    if planned.cost is not None:
        shared = any(home.how in _SHARED for home in homes) if policy.homes else bool(taken)
        written, copied = planned.cost(args, outs, shared, planned.attributes)
    elif planned.moves or (policy.homes and planned.views):
        copied = written
    return tuple(placed), allocated, written, copied, masks


def every_output(planned: PlannedNode, out: Any) -> tuple:
    """A kernel's result, one entry per output; raises `OpError` if the node names more outputs than its operator
    has."""
    outs = out if isinstance(out, tuple) else (out,)
    if len(outs) < len(planned.outputs) and any(planned.outputs[len(outs) :]):
        node, made = planned.node, len(outs)
        raise OpError(
            f"node {node.name!r} ({node.qualified_op}) names {len(node.outputs)} outputs "
            f"({', '.join(node.outputs)}), but the operator makes {made}: remove {', '.join(node.outputs[made:])}"
        )
    return outs


def kernel_homes(
    execution: Any, frame: Frame, planned: PlannedNode, args: Sequence[Any], outs: tuple, taken: tuple[int, ...]
) -> list[Home]:
    sources = taken + planned.views if planned.spec is not None else range(len(args))
    if not sources:
        return [FRESH] * len(outs)
    among = [(i, frame.stores[slot]) for i in sources if i < len(args) and (slot := planned.inputs[i])]
    return [_found(value, among, args, taken) if isinstance(value, np.ndarray) else FRESH for value in outs]


def _found(value: np.ndarray, among: list[tuple[int, Storage]], args: Sequence[Any], taken: tuple[int, ...]) -> Home:
    root = root_of(value)
    for position, lent in among:
        storage = lent if lent.root is root else _owner(root, lent.parts) if lent.parts else None
        if storage is None:
            continue
        for past in taken:
            # An empty past has no memory to share.
            if not args[past].size or np.may_share_memory(args[past], value):
                return Home(IN_PLACE if value.shape == args[past].shape else APPEND, past, storage)
        return Home(VIEW, position, storage)
    return FRESH


def _owner(root: np.ndarray, among: Sequence[Storage]) -> Storage | None:
    """The storage, perhaps of an element of a list, that has a root."""
    for storage in among:
        for one in (storage, *storage.parts):
            if one.root is root:
                return one
    return None


def elements_of(value: Any, among: Iterable[Storage]) -> list[Storage]:
    """The storages, among these and their elements, that a list of arrays holds."""
    stores = list(among)
    roots = [root_of(element) for element in value or () if isinstance(element, np.ndarray)]
    return [found for root in roots if (found := _owner(root, stores)) is not None]


def usual_place(
    frame: Frame, planned: PlannedNode, args: Sequence[Any], out: np.ndarray, taken: tuple[int, ...], home: Home
) -> tuple[int, Storage | None]:
    """How a lone output lives whose home the policy names, and the storage that it shares; `UNUSUAL` for cases that
    `Execution.execute` does not have written out."""
    if home is FRESH:
        return (UNUSUAL if taken or planned.views else NEW), None
    how, pinned = home.how, False
    for position in taken:
        pinned |= frame.uses[planned.inputs[position]] >= PIN
    usual = how == VIEW or (how == IN_PLACE and not (planned.moves or planned.views))
    if not usual or pinned or home[2:] != FRESH[2:]:
        return UNUSUAL, None
    storage: Storage = frame.stores[planned.inputs[home.position]]
    return (how, storage) if root_of(out) is storage.root else (UNUSUAL, None)


def lender(frame: Frame, planned: PlannedNode, args: Sequence[Any], out: np.ndarray) -> Storage | None:
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
    """Strides; equal ones of the last step of this node are reused."""
    strides = out.strides
    if strides != planned.strides:
        planned.strides = strides
    return planned.strides


def _share(
    ledger: Ledger, storage: Storage, args: Sequence[Any], value: np.ndarray, home: Home, dies: bool
) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Let an output live in the storage of its input, which may die here. Returns it, what the trace shows of it, the
    bytes written, and those by which the storage grew."""
    source, allocated = args[home.position], 0
    if root_of(value) is not storage.root:
        if home.how == VIEW and value.dtype != source.dtype:
            # A Cast that the runtime has removed: only the unconverted value exists.
            return value, source if source.nbytes <= storage.capacity else storage.root, 0, 0
        if home.how == IN_PLACE and value.shape == source.shape and value.dtype == source.dtype:
            # Our kernel has no in-place form for this.
            if is_ghost(value):
                forget(source)
            else:
                np.copyto(source, value)
            value = source
        else:
            # Of another type or size, which NumPy cannot put there: from now on this memory stands for the storage.
            value = _alone(value, args)
            if home.how != VIEW or (dies and storage.owned and storage.holders == 1):
                # Later reads of the input, other values and the caller keep the old contents, which must stay known.
                storage.root, storage.room = root_of(value), None
        # It may be too small for NumPy's element type: rten stores int64 and bool in four bytes.
        allocated = ledger.widen(storage, value.nbytes)
    if home.how == VIEW:
        return value, value, 0, allocated
    storage.generation += 1
    if home.how == IN_PLACE:
        return value, value, value.nbytes, allocated
    if storage.room is not None:
        storage.room.filled = value.shape[storage.room.axis]
    return value, value, value.nbytes - source.nbytes, allocated


def settle(ledger: Ledger, args: Sequence[Any], value: np.ndarray, home: Home) -> tuple[np.ndarray, Storage, int]:
    """Give an output memory of its own: new, from the policy's pool, or a dead storage that the policy names."""
    value = _alone(value, args)
    if home.storage is not None:
        ledger.revive(home.storage, root_of(value))
        return value, home.storage, ledger.widen(home.storage, value.nbytes)
    storage, allocated = ledger.allocate(value, home.pooled)
    if home.elements and home.elements > value.size and not storage.generation:
        allocated += ledger.widen(storage, home.elements * value.itemsize)
        if ledger.pool is not None:
            ledger.pool.made(storage, value)  # once more, as it is larger now
    return value, storage, allocated


def _listed(ledger: Ledger, value: Any, known: dict[int, Storage], among: list[Storage]) -> tuple[Storage, int]:
    """A storage for a list, which holds those of its elements; they stay where they are. ``known`` has storages by the
    id of a root."""
    storage, allocated = ledger.new(0, None), 0
    parts: list[Storage] = []
    for element in value if isinstance(value, (list, tuple)) else ():
        part, more = None, 0
        if isinstance(element, np.ndarray):
            root = root_of(element)
            part = known.get(id(root)) or _owner(root, among)
            if part is None:
                part, more = ledger.allocate(element)
        else:
            part, more = _listed(ledger, element, known, among)
        part.holders += 1
        parts.append(part)
        among.append(part)
        allocated += more
    storage.parts = tuple(parts)
    return storage, allocated


def _alone(value: np.ndarray, args: Sequence[Any]) -> np.ndarray:
    """A row-major array that shares no memory; copied if the kernel returned an input or a view."""
    root = root_of(value)
    if not value.flags.c_contiguous or root.nbytes != value.nbytes:
        return packed_copy(value)
    for arg in args:
        if isinstance(arg, np.ndarray):
            if root_of(arg) is root:
                return packed_copy(value)
        elif arg is not None and any(isinstance(part, np.ndarray) and root_of(part) is root for part in arg):
            return packed_copy(value)
    return value
