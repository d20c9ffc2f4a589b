"""A changed order: some readers run before some nodes, and all else stays as a base schedule has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvviz.errors import KvvizError
from kvviz.graph.model import Graph, GraphPath, Node
from kvviz.runtimes.schedules.frontier import Circle, follow, makers, pull, reads
from kvviz.runtimes.schedules.graph_paths import path_of
from kvviz.runtimes.schedules.planning_events import Log, takes_log

if TYPE_CHECKING:
    from kvviz.engine.plans.policy import Schedule


@dataclass(frozen=True, slots=True)
class Before:
    """A schedule that follows another one, but runs given readers, and what they need, before given nodes.

    ``base``: the schedule to follow.
    ``pairs``: path of a graph, index of the reader, index of the node that must wait for it. A pair of which a run
      needs only one node changes nothing.
    """

    base: Schedule
    pairs: tuple[tuple[GraphPath, int, int], ...]

    def __call__(
        self, graph: Graph, nodes: Sequence[Node], outputs: Sequence[str], log: Log | None = None
    ) -> Sequence[Node]:
        """Put nodes in order.

        Raises `KvvizError`: if a reader needs what its node makes, the pairs contradict each other, or a node does
          not exist.
        """
        key = graph.path
        pairs = [(reader, node) for where, reader, node in self.pairs if where == key]
        if not pairs and log and takes_log(self.base):
            return self.base(graph, nodes, outputs, log=log)  # type: ignore[call-arg]
        known = {node.index: node for node in graph.nodes}
        wrong = next((index for pair in pairs for index in pair if index not in known), None)
        if wrong is not None:
            raise KvvizError(f"there is no node {wrong} in {path_of(key)} of {graph.name}")
        order = list(self.base(graph, nodes, outputs))
        needs = _needs(order, [(known[reader], known[node]) for reader, node in pairs])
        decided = []
        try:
            for node, goal in pull(order, needs):
                why = (
                    "is next in the order as it was" if node is goal else f"runs now so that {goal.name} comes after it"
                )
                decided.append((node, f"{node.op_type} {why}"))
        except Circle as circle:
            names = ", ".join(repr(node.name) for node in circle.args[:4])
            raise KvvizError(f"these changes of order contradict each other: each of {names} must run first") from None
        return follow(decided, nodes, log)


def _needs(order: Sequence[Node], pairs: Sequence[tuple[Node, Node]]) -> dict[int, list[Node]]:
    """What must run before each node: the makers of what it reads, and the readers that the pairs put first."""
    place = {node.index: i for i, node in enumerate(order)}
    made_by = makers(order)
    needs = {node.index: [made_by[name] for name in reads(node) if name in made_by] for node in order}
    pairs = [(reader, node) for reader, node in pairs if reader.index in place and node.index in place]
    for reader, node in pairs:
        if _depends(reader.index, node.index, needs):
            raise KvvizError(f"{reader.name!r} cannot run before {node.name!r}: it needs what that one makes")
    for reader, node in pairs:
        needs[node.index].append(reader)
    for waiting in needs.values():
        waiting.sort(key=lambda n: place[n.index])
    return needs


def _depends(reader: int, node: int, needs: dict[int, list[Node]]) -> bool:
    """Whether a reader needs a node, itself or through others."""
    seen: set[int] = set()
    stack = [reader]
    while stack:
        index = stack.pop()
        if index == node:
            return True
        if index not in seen:
            seen.add(index)
            stack += (n.index for n in needs[index])
    return False
