"""onnxruntime's own order of execution: a depth-first walk upwards from the nodes that nothing follows.

It is not the model's order, and it decides who reads a value last. Nodes that no output needs are walked too where
they are given, and because such a node is always an end of the graph, it tends to come early.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kvviz.graph.model import Graph, Node
from kvviz.runtimes.frontier import Log, PlanningEvent
from kvviz.runtimes.ort import refusal
from kvviz.runtimes.ort.allocation_plan import (
    ALIAS,
    ALLOCATE,
    ALLOCATE_OUTPUT,
    FREELIST,
    MAY_INPLACE,
    SHARE,
    Buffer,
    allocation_plan,
)
from kvviz.runtimes.ort.known_types import known
from kvviz.runtimes.ort.rewiring import remaining, walk


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
        rewritten = remaining(graph, nodes, outputs)
        report = None if log is None else _of_originals(nodes, log)
        order = walk(rewritten.nodes, report)
        if report is not None:
            log_buffers(graph, order, outputs, report, self.mem_reuse, self.parallel)
        if rewritten.stands_for:
            return list(_with_casts(order, nodes))
        given = {node.index: node for node in nodes}
        return [given[node.index] for node in order]


def _of_originals(nodes: Sequence[Node], log: Log) -> Log:
    """A log that gets the nodes of the model in place of rewritten ones."""
    originals = {node.index: node for node in nodes}

    def report(event: PlanningEvent) -> None:
        log(event if event.node is None else replace(event, node=originals[event.node.index]))

    return report


def _with_casts(order: Sequence[Node], nodes: Sequence[Node]) -> Iterator[Node]:
    """The given nodes in an order of the rewritten ones, removed Casts put in before what reads them.

    A removed Cast reads what it is written to read. Where that is made later in the order (it was cast, cast back, and
    is needed in both types) its maker comes earlier here.
    """
    originals = {node.index: node for node in nodes}
    makers = {name: node for node in nodes for name in node.outputs if name}
    done: set[int] = set()
    for node in order:
        pending = [originals[node.index]] if node.index not in done else []
        while pending:
            last = pending[-1]
            before = (makers[name] for name in (*last.inputs, *last.captures) if name in makers)
            missing = next((maker for maker in before if maker.index not in done), None)
            if missing is None:
                done.add(last.index)
                yield pending.pop()
            else:
                pending.append(missing)


# -- what is logged of a plan, for people ----------------------------------------------------------------------------


def log_buffers(
    graph: Graph,
    order: Sequence[Node],
    outputs: Sequence[str],
    log: Log,
    mem_reuse: bool = True,
    parallel: bool = False,
) -> None:
    """Log for every output of every node, in running order, what the allocation plan says."""
    facts = known(graph)
    plan = allocation_plan(graph, order, outputs, facts.types, facts.inside, mem_reuse, parallel=parallel)
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
