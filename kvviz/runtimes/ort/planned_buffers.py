"""Where outputs live at run time, by onnxruntime's plan, which is noted for every node when a plan is made.

Dead buffers are found again; too small ones are an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvviz.engine.frame import Frame
from kvviz.engine.placement import FRESH, Home
from kvviz.engine.plan import Plan, PlannedNode
from kvviz.errors import OpError
from kvviz.graph.model import Graph, Node, Value
from kvviz.memory.storage import Arguments, ArrayLayout, Storage, is_array
from kvviz.runtimes.ort import refusal
from kvviz.runtimes.ort.allocation_plan import (
    ALIAS,
    ALLOCATE_OUTPUT,
    FREELIST,
    MAY_INPLACE,
    REUSE,
    AllocationPlan,
    Buffer,
)
from kvviz.runtimes.ort.known_types import known
from kvviz.runtimes.ort.refusal import by_address
from kvviz.runtimes.ort.rewiring import is_cast, is_unsafe, remaining
from kvviz.trace import blockers as b
from kvviz.trace.schema.events import IN_PLACE, POOL, VIEW

if TYPE_CHECKING:
    from kvviz.engine.execution import Execution


@dataclass(frozen=True, slots=True)
class Notes:
    """The plan of one node.

    ``buffers``: one per output, None for an absent one.
    ``take``: input that the op overwrites, -1 if none.
    ``bound``: input that it overwrites if the caller donates it: one buffer bound to an input and an output of the
      graph.
    ``masks``: input positions that it could overwrite but does not, with all reasons.
    ``removed``: a Cast that onnxruntime removes: here it runs, but costs nothing.
    """

    buffers: tuple[Buffer | None, ...]
    take: int = -1
    bound: int = -1
    masks: tuple[tuple[int, int], ...] = ()
    removed: bool = False

    @property
    def summary(self) -> str:
        return "a Cast that onnxruntime removes" if self.removed else "; ".join(map(str, filter(None, self.buffers)))


def take_notes(plan: Plan, mem_reuse: bool = True, parallel: bool = False) -> None:
    """Plan the buffers of a graph as onnxruntime does, and note the results on every node, as `Notes`. Every requested
    value counts as an output of the graph, as if the model had been changed to return it: inspecting a value changes
    the plan."""
    graph, facts = plan.graph, known(plan.graph)
    outputs = [plan.names[slot] for slot in plan.outputs]
    rewritten = remaining(graph, [planned.node for planned in plan.order], outputs)
    left = {node.index: node for node in rewritten.nodes}
    order = [left[planned.node.index] for planned in plan.order if planned.node.index in left]
    allocations = AllocationPlan(graph, order, outputs, facts.types, facts.inside, mem_reuse, parallel=parallel)
    for planned in plan.order:
        node = left.get(planned.node.index)
        if node is None:
            cast = planned.node
            planned.notes = Notes((Buffer(cast.outputs[0], REUSE, cast.inputs[0], ALIAS, 0),), removed=True)
            if _is_idle(graph, cast, facts.types):
                planned.call = _idle
        else:
            planned.notes = _notes(node, allocations)


def _is_idle(graph: Graph, node: Node, types: Mapping[str, Value]) -> bool:
    """Whether a Cast that onnxruntime removes need not do anything: it has nothing to do, or its reader casts again."""
    source, target = (types.get(name) for name in (node.inputs[0], node.outputs[0]))
    if source is None or target is None or is_unsafe(source.dtype, target.dtype):
        return False
    return source.dtype == target.dtype or all(is_cast(reader) for reader in graph.consumers.get(node.outputs[0], ()))


def _idle(value: Any) -> Any:
    return value


def _notes(node: Node, allocations: AllocationPlan) -> Notes:
    buffers = tuple(allocations.buffers[name] if name else None for name in node.outputs)
    given = [buffer for buffer in buffers if buffer is not None]
    masks: dict[int, int] = {}
    for buffer in given:
        for position, mask in buffer.refused:
            masks[position] = masks.get(position, 0) | mask
    bound = -1
    for buffer in given:
        for position, mask in buffer.refused:
            if buffer.kind == ALLOCATE_OUTPUT and mask == refusal.OUTPUT | b.BORROWED_INPUT:
                # Binding one buffer to both sides would suffice.
                bound, masks[position] = position, b.BORROWED_INPUT
    return Notes(
        buffers,
        next((buffer.position for buffer in given if buffer.rule == MAY_INPLACE), -1),
        bound,
        tuple(sorted(masks.items())),
    )


def homes(
    execution: Execution, frame: Frame, planned: PlannedNode, args: Arguments, outs: Arguments, taken: tuple[int, ...]
) -> list[Home]:
    return [
        FRESH if buffer is None else _home(frame, planned, buffer, out, taken)
        for buffer, out in zip(planned.notes.buffers, outs)
    ]


def _home(frame: Frame, planned: PlannedNode, buffer: Buffer, out: Any, taken: tuple[int, ...]) -> Home:
    if buffer.rule == ALIAS:
        return Home(VIEW, buffer.position)
    if taken and (buffer.rule == MAY_INPLACE or buffer.kind == ALLOCATE_OUTPUT):
        places = {present: past for past, present in by_address(planned.node)} or {0: taken[0]}
        position = places.get(planned.node.outputs.index(buffer.value))
        return FRESH if position is None else Home(IN_PLACE, position)
    if buffer.rule == FREELIST:
        return _dead(frame, planned, buffer, out)
    caller = frame.caller
    if buffer.kind == ALLOCATE_OUTPUT and caller is not None and caller.control == "If" and frame.parent is not None:
        # A branch computes its outputs right in the If's outputs.
        place = frame.plan.outputs.index(frame.plan.slots[buffer.value])
        outside = caller.notes.buffers[place] if place < len(caller.notes.buffers) else None
        if outside is not None and outside.rule == FREELIST:
            return _dead(frame.parent, caller, outside, out)
    return FRESH


def _dead(frame: Frame, planned: PlannedNode, buffer: Buffer, out: Any) -> Home:
    """The planned storage, if it exists and is dead; both can fail only in another order."""
    storage = frame.gone.get(frame.plan.slots[buffer.root])
    if storage is None or storage.holders or not storage.owned or not is_array(out):
        return FRESH
    if storage.capacity < out.nbytes:
        raise OpError(_mismatch(frame, planned, buffer, out, storage))
    return Home(POOL, -1, storage)


def _mismatch(frame: Frame, planned: PlannedNode, buffer: Buffer, out: ArrayLayout, storage: Storage) -> str:
    shape = known(frame.plan.graph).types[buffer.value].shape or ()
    names = ", ".join(repr(dim) for dim in dict.fromkeys(shape) if isinstance(dim, str))
    return (
        f"node {planned.node.name!r} ({planned.node.qualified_op}) fails in onnxruntime: by the names of dimensions "
        f"({names}) {buffer.value!r} and {buffer.root!r} have one size, so the plan gives the buffer of the one to the "
        f"other, but it has {storage.capacity} bytes and {out.nbytes} are needed; give dimensions of different lengths "
        "different names in the model"
    )
