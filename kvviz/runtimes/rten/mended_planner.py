"""rten's planner with one quirk put right: of ops that could run in place, one goes first that can do so now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvviz.graph.model import Graph, Node
from kvviz.runtimes.rten.rten_operators import in_place_inputs, is_commutative
from kvviz.runtimes.rten.rten_planner import walk
from kvviz.runtimes.schedules.frontier import forward, reads
from kvviz.runtimes.schedules.planning_events import Log

_WHY = (
    "it cannot run in place by kind",
    "it is the last reader of what it may overwrite",
    "none can overwrite its input now: it is the oldest",
)


def look_ahead(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str], log: Log | None = None) -> Sequence[Node]:
    """rten's order, but of ops that can run in place by kind the last reader of its input goes first."""
    if graph.spelled is not None:
        return graph.nodes
    walked = walk(graph, nodes, outputs, log)
    waiting: dict[str, set[int]] = {}
    for node in walked:
        for name in reads(node):
            waiting.setdefault(name, set()).add(node.index)
    by_index = {node.index: node for node in walked}
    kept = {*outputs, *graph.weights}

    def is_free(node: Node) -> bool:
        """Whether the op is the last reader of an input that it may overwrite."""
        positions = range(len(node.inputs)) if is_commutative(node) else in_place_inputs(node)
        names = [node.inputs[i] for i in positions if i < len(node.inputs) and node.inputs[i] not in kept]
        return any(name and waiting[name] == {node.index} and node.inputs.count(name) == 1 for name in names)

    def rank(node: Node) -> int:
        return 0 if not in_place_inputs(node) else 1 if is_free(node) else 2

    def changed(node: Node) -> Iterator[Node]:
        """Ops that are the last readers of a value now that a node has run."""
        for name in reads(node):
            waiting[name].discard(node.index)
            if len(waiting[name]) == 1:
                yield by_index[next(iter(waiting[name]))]

    def why(frontier: Sequence[Node], position: int) -> str:
        node = frontier[position]
        return f"{node.op_type}: {_WHY[rank(node)]}"

    return forward(walked, rank, why, log, changed)
