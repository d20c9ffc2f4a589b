"""rten's planner with one quirk put right: of ops that could run in place, one goes first that can do so now."""

from __future__ import annotations

from collections.abc import Sequence

from kvviz.engine.rten.table import in_place_inputs, is_commutative
from kvviz.engine.schedules.events import Log
from kvviz.engine.schedules.frontier import forward, reads
from kvviz.engine.schedules.rten import walk
from kvviz.graph.model import Graph, Node


def look_ahead(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str], log: Log | None = None) -> Sequence[Node]:
    """rten's order, but of ops that can run in place by kind the last reader of its input goes first."""
    walked = walk(graph, nodes, outputs, log)
    waiting: dict[str, set[int]] = {}
    for node in walked:
        for name in reads(node):
            waiting.setdefault(name, set()).add(node.index)
    kept = {*outputs, *graph.weights}

    def is_free(node: Node) -> bool:
        """Whether the op is the last reader of an input that it may overwrite."""
        positions = range(len(node.inputs)) if is_commutative(node) else in_place_inputs(node)
        names = [node.inputs[i] for i in positions if i < len(node.inputs) and node.inputs[i] not in kept]
        return any(name and waiting[name] == {node.index} and node.inputs.count(name) == 1 for name in names)

    def rule(frontier: Sequence[Node]) -> tuple[int, str]:
        position = next((i for i, node in enumerate(frontier) if not in_place_inputs(node)), None)
        why = "it cannot run in place by kind"
        if position is None:
            position = next((i for i, node in enumerate(frontier) if is_free(node)), None)
            why = "it is the last reader of what it may overwrite"
        if position is None:
            position, why = 0, "none can overwrite its input now: it is the oldest"
        for name in reads(frontier[position]):
            waiting[name].discard(frontier[position].index)
        return position, f"{frontier[position].op_type}: {why}"

    return forward(walked, rule, log)
