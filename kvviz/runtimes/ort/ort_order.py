"""onnxruntime's own order of execution: a depth-first walk upwards from the nodes that nothing follows.

It is not the model's order, and it decides who reads a value last. Nodes that no output needs are walked too where
they are given, and because such a node is always an end of the graph, it tends to come early.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kvviz.graph.model import Graph, Node
from kvviz.runtimes.frontier import Log, PlanningEvent
from kvviz.runtimes.ort import planning_story
from kvviz.runtimes.ort.planning_story import walk
from kvviz.runtimes.ort.rewiring import remaining


def schedule(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str], log: Log | None = None) -> Sequence[Node]:
    """Nodes in the order in which onnxruntime runs them.

    ``graph``: the graph that the nodes are in.
    ``nodes``: those that run. onnxruntime runs all nodes of a graph; give ``graph.nodes`` to have its very order, or
      only the needed ones to have the order of the model without the others.
    ``outputs``: what is wanted.
    ``log``: called with every step of the walk, and then with where each output will live.

    Returns a topological order. A Cast that onnxruntime removes runs just before what reads it.

    Rule of onnxruntime 1.31 (``ExecutionOrder::DEFAULT``): nodes without a follower go on a stack in the model's
    order, and so do, when a node is met for the first time, the makers of what it reads; a node runs when everything
    that was put above it is done. So of two makers the one that the model lists later comes first.
    """
    return OrtOrder()(graph, nodes, outputs, log)


@dataclass(frozen=True, slots=True)
class OrtOrder:
    """The same order; what the log reports of buffers is the plan of a session with these options."""

    mem_reuse: bool = True
    parallel: bool = False

    def __call__(
        self, graph: Graph, nodes: Sequence[Node], outputs: Sequence[str], log: Log | None = None
    ) -> Sequence[Node]:
        """Nodes in the order in which onnxruntime runs them."""
        rewritten = remaining(graph, nodes, outputs)
        report = None if log is None else _of_originals(nodes, log)
        order = walk(rewritten.nodes, report)
        if report is not None:
            planning_story.log_buffers(graph, order, outputs, report, self.mem_reuse, self.parallel)
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
