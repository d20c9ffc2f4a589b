"""What the nodes of a session gave, for a dry run of its graph: fused and blocked ops need no kernel here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from kvviz.engine.recorded_answers import Answer, Answers, Key
from kvviz.graph.model import Graph
from kvviz.verification.session_record import NodeRun


class ProfileAnswers(Answers):
    """The answers of one run, which branch it took, and how often its loops went round.

    ``runs``: of nodes of the graph, in the order of running.
    """

    def __init__(self, graph: Graph, runs: Sequence[tuple[Key, NodeRun]]) -> None:
        nodes = {(part.path, node.name): node for part, node in graph.walk()}
        often = Counter(key for key, _ in runs)
        super().__init__(graph, {})
        for (path, name), node in nodes.items():
            inside = {
                attribute: max((often[body.path, inner.name] for inner in body.nodes), default=0)
                for attribute, body in node.subgraphs.items()
            }
            if node.op_type == "If" and sum(map(bool, inside.values())) == 1:
                self[path, name] = int(bool(inside["then_branch"]))
            elif node.op_type == "Loop" and often[path, name] and not inside["body"] % often[path, name]:
                self[path, name] = inside["body"] // often[path, name]
        for key, run in runs:
            given = iter(run.outputs)
            layouts = tuple(next(given, None) if name else None for name in nodes[key].outputs)
            written = sum(prod(shape) * dtype.itemsize for shape, dtype in filter(None, layouts))
            self.calls.setdefault(key, []).append(Answer(layouts, (written, 0), ()))
