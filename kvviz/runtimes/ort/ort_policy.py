"""The policy ``onnxruntime``: its CPU allocation planner, carried out with our kernels.

The plan decides where every output will live before anything runs. Planned in-place ops are dispatched in place, an
output with a dead buffer moves into that storage, and every op that only relabels is a view.

Not followed: nodes that no output needs are not run here. Local functions, and operators that onnxruntime only has as
functions, are one frame or one op here, while it expands them into the graph. It puts Casts around float16 operators
that it lacks. Unread outputs die at once here and at the end of the run there; a Scan writes its slices straight into
the result there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from kvviz.engine.decide import NOTHING, Verdict, overwrite_mask, written_over
from kvviz.engine.frame import Frame
from kvviz.engine.placement import FRESH, Home
from kvviz.engine.plan import ABSENT, Plan, PlannedNode
from kvviz.engine.policy import Policy
from kvviz.errors import OpError
from kvviz.graph.model import Graph, Node, Value
from kvviz.memory.storage import Arguments, ArrayLayout, Storage, is_array
from kvviz.runtimes.frontier import Log, PlanningEvent, needs_of, pull
from kvviz.runtimes.ort import refusal
from kvviz.runtimes.ort.allocation_plan import (
    ALIAS,
    ALLOCATE,
    ALLOCATE_OUTPUT,
    FREELIST,
    MAY_INPLACE,
    REUSE,
    SHARE,
    AllocationPlan,
    Buffer,
)
from kvviz.runtimes.ort.known_types import known, types_of
from kvviz.runtimes.ort.refusal import by_address
from kvviz.runtimes.ort.rewiring import is_cast, is_unsafe, remaining, rewired, walk
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


def _take_notes(plan: Plan, mem_reuse: bool = True, parallel: bool = False) -> None:
    """Plan the buffers of a graph, and note the results on every node. Every requested value counts as an output of the
    graph, as if the model had been changed to return it: inspecting a value changes the plan."""
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


def _homes(
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


@dataclass(frozen=True, slots=True)
class OrtOrder:
    """Nodes in the order in which onnxruntime runs them; the log reports the buffers of a session with these options.

    Rule of onnxruntime 1.31 (``ExecutionOrder::DEFAULT``): nodes without a follower go on a stack in the model's
    order, and so do, when a node is met for the first time, the makers of what it reads; a node runs when everything
    that was put above it is done. So of two makers the one that the model lists later comes first.
    """

    mem_reuse: bool = True
    parallel: bool = False

    def __call__(
        self, graph: Graph, nodes: Sequence[Node], outputs: Sequence[str], log: Log | None = None
    ) -> Sequence[Node]:
        """A topological order. A Cast that onnxruntime removes runs just before what reads it.

        ``graph``: the graph that the nodes are in.
        ``nodes``: those that run. onnxruntime runs all nodes of a graph; give ``graph.nodes`` to have its very order,
          or only the needed ones to have the order of the model without the others.
        ``outputs``: what is wanted.
        ``log``: called with every step of the walk, and then with where each output will live.
        """
        originals = {node.index: node for node in nodes}

        def report(event: PlanningEvent) -> None:
            if log is not None and event.node is not None:
                log(replace(event, node=originals[event.node.index]))

        order = walk(remaining(graph, nodes, outputs).nodes, report if log is not None else None)
        if log is not None:
            self._log_buffers(graph, order, outputs, report)
        # Where what a removed Cast reads is made later in the order (it was cast, cast back, and is needed in both
        # types) its maker comes earlier here.
        return [node for node, _ in pull([originals[node.index] for node in order], needs_of(nodes))]

    def _log_buffers(self, graph: Graph, order: Sequence[Node], outputs: Sequence[str], log: Log) -> None:
        """Log for every output of every node, in running order, what the allocation plan says."""
        facts = known(graph)
        plan = AllocationPlan(graph, order, outputs, facts.types, facts.inside, self.mem_reuse, parallel=self.parallel)
        for position, node in enumerate(order, 1):
            for name in filter(None, node.outputs):
                buffer = plan.buffers[name]
                log(PlanningEvent("buffer", node, name, buffer.kind, reason(node, buffer), planned=position))


def reason(node: Node, buffer: Buffer) -> str:
    """Why a value has the buffer that it has, in one sentence."""
    name, op = buffer.value, node.op_type
    if buffer.kind == ALLOCATE_OUTPUT:
        return f"{name} is an output of the graph: it gets memory of its own"
    if buffer.kind == SHARE:
        return f"{name} is what the loop carries, handed on as it is: it shares the memory of {node.inputs[0]}"
    if buffer.rule == ALIAS:
        source = node.inputs[buffer.position]
        return f"{op} only gives {source} another name or shape: it shares the buffer of {buffer.root}"
    if buffer.rule == MAY_INPLACE:
        return (
            f"{op} may run in place, nobody else needs {node.inputs[buffer.position]}, and both have one size: "
            f"it overwrites the buffer of {buffer.root}"
        )
    if buffer.rule == FREELIST:
        return f"the buffer of {buffer.root} is dead and of the same size: {name} takes it over"
    assert buffer.kind == ALLOCATE
    if not buffer.refused:
        return f"{op} does not run in place, and no dead buffer of that size is free: new memory"
    words = "; ".join(_refusal(node, position, mask) for position, mask in buffer.refused)
    return f"{words}; and no dead buffer of that size is free: new memory"


def _refusal(node: Node, position: int, mask: int) -> str:
    return f"{node.op_type} may not overwrite {node.inputs[position]} ({', '.join(refusal.words(mask))})"


VERSION = "1.31.1"
_ABOUT = (
    "onnxruntime's CPU allocation planner with graph optimisations off and one thread: its order; in place only where "
    "the kernel says so and nobody else needs the input; dead buffers of the same size are taken over; outputs of the "
    "graph have memory of their own, unless the input that such an op overwrites is donated (one buffer bound to both)"
)


def in_place(frame: Frame, planned: PlannedNode, args: Arguments) -> Verdict:
    """The planned dispatch, after checking again that nothing needs the input: a person may have chosen another
    order."""
    notes: Notes = planned.notes
    position = notes.take
    if position < 0:
        if presents := _one_buffer(frame, planned, args):
            return tuple(grow.input for grow in planned.grows), (), {"grown": presents}
        position = notes.bound
        if position < 0 or frame.stores[planned.inputs[position]].origin != "donated":
            return (), _masks(frame, planned, notes), NOTHING
    slot = planned.inputs[position]
    storage = frame.stores[slot]
    if frame.uses[slot] != 1 or storage.holders != 1 or not storage.owned:
        return (), ((position, overwrite_mask(frame, planned, args, position, slot)),), NOTHING
    return (position,), (), written_over(planned, args, position)


def _one_buffer(frame: Frame, planned: PlannedNode, args: Arguments) -> tuple[Any, ...]:
    """The presents of an op that are outputs of the graph, if each is bound to the buffer of its past; else none."""
    pairs, buffers = by_address(planned.node), planned.notes.buffers
    if not pairs or len(buffers) <= pairs[-1][1]:
        return ()
    for past, present in pairs:
        slot = planned.inputs[past] if past < len(planned.inputs) else ABSENT
        storage, buffer = frame.stores[slot], buffers[present]
        if storage is None or storage.origin != "donated" or buffer is None or buffer.kind != ALLOCATE_OUTPUT:
            return ()
        if frame.uses[slot] != 1 or storage.holders != 1 or not storage.owned:
            return ()
    if any(grow.rows(args, planned.attributes) for grow in planned.grows):
        # It is longer than its past.
        return ()
    return tuple(args[past] for past, _ in pairs)


def _masks(frame: Frame, planned: PlannedNode, notes: Notes) -> tuple[tuple[int, int], ...]:
    """The plan's reasons. The plan counts every input of the graph as the caller's; donated ones get other reasons."""
    return tuple(
        (position, mask & ~b.BORROWED_INPUT or mask)
        if mask & b.BORROWED_INPUT and frame.stores[planned.inputs[position]].origin == "donated"
        else (position, mask)
        for position, mask in notes.masks
    )


def lend(frame: Frame, planned: PlannedNode) -> frozenset[int]:
    """Bodies take nothing over: their captures and arguments belong to the outer graph."""
    return frozenset()


def variant(mem_reuse: bool = True, parallel: bool = False) -> Policy:
    """onnxruntime with session options changed. ``mem_reuse``: ``SessionOptions.enable_mem_reuse``: whether dead
    buffers are reused. It has no effect on what runs in place. ``parallel``: ``ExecutionMode.ORT_PARALLEL``: in the
    main graph every output has memory of its own. Bodies run sequentially there, too, and are planned as usual."""
    return _made(bool(mem_reuse), bool(parallel))


@cache
def _made(mem_reuse: bool, parallel: bool) -> Policy:
    return Policy(
        "onnxruntime" + " in parallel" * parallel + " without mem_reuse" * (not mem_reuse),
        _ABOUT,
        VERSION,
        in_place=in_place,
        schedule=OrtOrder(mem_reuse, parallel),
        captures=lend,
        rewrite=rewired,
        prepare=partial(_take_notes, mem_reuse=mem_reuse, parallel=parallel),
        homes=_homes,
        copies_state=True,
        rules=refusal.RULES,
        types_of=types_of,
        variants=variant,
    )


onnxruntime = variant()
