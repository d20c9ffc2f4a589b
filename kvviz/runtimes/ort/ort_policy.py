"""The policy ``onnxruntime``: its CPU allocation planner, carried out with our kernels.

The plan decides where every output will live before anything runs. Planned in-place ops are dispatched in place, an
output with a dead buffer moves into that storage, and every op that only relabels is a view.

Not followed (`tests/engine/ort/test_limits.py` shows each): nodes that no output needs are not run here. Local
functions, and operators that onnxruntime only has as functions, are one frame or one op here, while it expands them
into the graph. It puts Casts around float16 operators that it lacks. Unread outputs die at once here and at the end of
the run there; a Scan writes its slices straight into the result there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from kvviz.engine.decide import NOTHING, Verdict, overwrite_mask, written_over
from kvviz.engine.frame import Frame
from kvviz.engine.plan import ABSENT, PlannedNode
from kvviz.engine.policy import Policy
from kvviz.graph.model import Graph, Node
from kvviz.memory.storage import Arguments
from kvviz.runtimes.frontier import Log, PlanningEvent, needs_of, pull
from kvviz.runtimes.ort import refusal
from kvviz.runtimes.ort.allocation_plan import (
    ALIAS,
    ALLOCATE,
    ALLOCATE_OUTPUT,
    FREELIST,
    MAY_INPLACE,
    SHARE,
    AllocationPlan,
    Buffer,
)
from kvviz.runtimes.ort.known_types import known, types_of
from kvviz.runtimes.ort.planned_buffers import Notes, homes, take_notes
from kvviz.runtimes.ort.refusal import by_address
from kvviz.runtimes.ort.rewiring import remaining, rewired, walk
from kvviz.trace import blockers as b


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
        prepare=partial(take_notes, mem_reuse=mem_reuse, parallel=parallel),
        homes=homes,
        copies_state=True,
        rules=refusal.RULES,
        types_of=types_of,
        variants=variant,
    )


onnxruntime = variant()
