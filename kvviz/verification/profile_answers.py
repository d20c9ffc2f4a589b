"""What the nodes of a session gave, for a dry run of its graph: fused and blocked ops need no kernel here."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from kvviz.engine.recorded_answers import Answer, Answers
from kvviz.graph.model import Graph
from kvviz.verification.session_record import NodeRun


class ProfileAnswers(Answers):
    """The answers of one run.

    ``runs``: of nodes of the graph, in the order of running.
    """

    def __init__(self, graph: Graph, runs: Iterable[NodeRun]) -> None:
        super().__init__(graph, {})
        nodes: dict[str, list] = {}
        for part, node in graph.walk():
            nodes.setdefault(node.name, []).append((part, node))
        for run in runs:
            found = nodes.get(run.name, ())
            if len(found) != 1:
                # The profile does not say in which of several graphs a node of that name ran.
                continue
            part, node = found[0]
            given = iter(run.outputs)
            layouts = tuple(next(given, None) if name else None for name in node.outputs)
            written = sum(prod(shape) * dtype.itemsize for shape, dtype in filter(None, layouts))
            self.calls.setdefault((part.path, node.name), []).append(Answer(layouts, (written, 0), ()))
