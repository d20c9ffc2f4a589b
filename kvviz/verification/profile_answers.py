"""What the nodes of a session gave, for a dry run of its graph: fused and blocked ops need no kernel here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from kvviz.engine.recorded_answers import Answer, Answers
from kvviz.graph.model import Graph, GraphPath, Node
from kvviz.verification.session_record import NodeRun

Ran = tuple[GraphPath, Node, NodeRun]
"""A node, the path of its graph, and one of the times that it ran."""


class ProfileAnswers(Answers):
    """The answers of one run, which branch it took, and how often its loops went round.

    ``runs``: of nodes of the graph, in the order of running.
    """

    def __init__(self, graph: Graph, runs: Sequence[Ran]) -> None:
        super().__init__(graph, {})
        often = Counter((path, node.name) for path, node, _ in runs)
        for part, node in graph.walk():
            key, inside = (part.path, node.name), {}
            for attribute, body in node.subgraphs.items():
                inside[attribute] = max((often[body.path, inner.name] for inner in body.nodes), default=0)
            if node.op_type == "If" and sum(map(bool, inside.values())) == 1:
                self[key] = int(bool(inside["then_branch"]))
            elif node.op_type == "Loop" and often[key] and not inside["body"] % often[key]:
                self[key] = inside["body"] // often[key]
        for path, node, run in runs:
            given = iter(run.outputs)
            layouts = tuple(next(given, None) if name else None for name in node.outputs)
            written = sum(prod(shape) * dtype.itemsize for shape, dtype in filter(None, layouts))
            self.calls.setdefault((path, node.name), []).append(Answer(layouts, (written, 0), ()))
