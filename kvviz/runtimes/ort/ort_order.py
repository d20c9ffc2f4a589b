"""onnxruntime's own order of execution: a depth-first walk upwards from the nodes without followers.

It is not the model's order, and it decides who reads a value last. Nodes that no output needs are walked too if they
are given, and because such a node is always an end of the graph, it tends to come early.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvviz.graph.model import Graph, Node
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
from kvviz.runtimes.ort.known_types import known
from kvviz.runtimes.ort.rewiring import remaining, walk


@dataclass(frozen=True, slots=True)
class OrtOrder:
    """Nodes in the order in which onnxruntime runs them; the log reports the buffers of a session with these options.

    Rule of onnxruntime 1.31 (``ExecutionOrder::DEFAULT``): nodes without a follower go on a stack in the model's order,
    and so do, when a node is first met, the makers of its inputs; a node runs when everything above it is done. So of
    two makers the later one in the model comes first.
    """

    mem_reuse: bool = True
    parallel: bool = False

    def __call__(
        self, graph: Graph, nodes: Sequence[Node], outputs: Sequence[str], log: Log | None = None
    ) -> Sequence[Node]:
        """A topological order. A Cast that onnxruntime removes runs just before its reader.

        ``nodes``: those that run. onnxruntime runs all nodes of a graph; give ``graph.nodes`` for its exact order, or
        only the needed ones for the order of the model without the others. ``log``: called with every step of the walk,
        and then with where each output will live.
        """
        originals = {node.index: node for node in nodes}

        def report(event: PlanningEvent) -> None:
            if log is not None and event.node is not None:
                log(replace(event, node=originals[event.node.index]))

        order = walk(remaining(graph, nodes, outputs).nodes, report if log is not None else None)
        if log is not None:
            self._log_buffers(graph, order, outputs, report)
        # If the input of a removed Cast is made later in the order (it was cast, cast back, and is needed in both
        # types) its maker comes earlier here.
        return [node for node, _ in pull([originals[node.index] for node in order], needs_of(nodes))]

    def _log_buffers(self, graph: Graph, order: Sequence[Node], outputs: Sequence[str], log: Log) -> None:
        facts = known(graph)
        plan = AllocationPlan(graph, order, outputs, facts.types, facts.inside, self.mem_reuse, parallel=self.parallel)
        for position, node in enumerate(order, 1):
            for name in filter(None, node.outputs):
                buffer = plan.buffers[name]
                log(PlanningEvent("buffer", node, name, buffer.kind, reason(node, buffer), planned=position))


def reason(node: Node, buffer: Buffer) -> str:
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
