"""Picks: an order that a person chose, kept as a list and replayed as a schedule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvviz.atomic_write import write_text
from kvviz.errors import KvvizError
from kvviz.graph.model import MAX_NODES, Graph, GraphPath, Node
from kvviz.runtimes.schedules.frontier import follow, makers, pull, reads
from kvviz.runtimes.schedules.graph_paths import fingerprint, path_of
from kvviz.runtimes.schedules.planning_events import Log
from kvviz.trace.recording import Trace

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Picks:
    """A schedule that runs the picked nodes in the order of the picks.

    A node that was not picked runs when a picked one needs it, otherwise at the end, in the model's order. A node that
    the requested outputs do not need is left out.

    ``picks``: path of a graph (see `kvviz.graph.model.GraphPath`) and node index.
    ``model``: fingerprint of the model that they were made on; empty where that is not checked.
    """

    picks: tuple[tuple[GraphPath, int], ...]
    model: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "picks", tuple((_key(key), index) for key, index in self.picks))

    def __hash__(self) -> int:
        # A policy is looked up at every frame: hashing must not walk through all picks.
        return hash((self.model, len(self.picks), self.picks[:1], self.picks[-1:]))

    def __call__(
        self, graph: Graph, nodes: Sequence[Node], outputs: Sequence[str], log: Log | None = None
    ) -> Sequence[Node]:
        """Put nodes in order.

        Raises `KvvizError`: if the picks do not fit the model, or run a node before one that it needs.
        """
        picked = self._picked(graph)
        places = {index: place for place, index in enumerate(picked)}
        by_index = {node.index: node for node in nodes}
        order = [by_index[index] for index in picked if index in by_index]
        order += [node for node in nodes if node.index not in places]
        made_by = makers(nodes)
        needs = {node.index: [made_by[name] for name in reads(node) if name in made_by] for node in nodes}
        decided: list[tuple[Node, str]] = []
        for node, goal in pull(order, needs):
            if node is goal:
                why = "was picked" if node.index in places else "was not picked: it follows in the model's order"
            elif node.index in places:
                raise KvvizError(
                    f"the picks run {goal.name!r} before {node.name!r} in {path_of(graph.path)}, but it needs that one"
                )
            else:
                why = f"was not picked, but {goal.op_type} {goal.name} needs it"
            decided.append((node, f"{node.op_type} {why}"))
        return follow(decided, nodes, log)

    @classmethod
    def of(cls, trace: Trace) -> Picks:
        """The order in which a trace ran; for every graph, the order of its first frame."""
        graph = trace.graph
        first: dict[Graph, int] = {}
        for frame in trace.frames:
            first.setdefault(frame.graph, frame.id)
        keys = {frame: inner.path for inner, frame in first.items()}
        rows = trace.log
        return cls(tuple((keys[row.frame], row.op.node.index) for row in rows if row.frame in keys), fingerprint(graph))

    def save(self, path: Any) -> None:
        """Write the picks to a JSON file."""
        data = {"format": FORMAT, "model": self.model, "picks": self.picks}
        write_text(path, json.dumps(data))

    @classmethod
    def load(cls, path: Any) -> Picks:
        """Read picks that `save` wrote.

        Raises `KvvizError`: if the file holds something else.
        """
        try:
            data = json.loads(Path(path).read_text("utf-8"))
            if data["format"] != FORMAT:
                raise KvvizError(f"{path} is in picks format {data['format']}, and this version reads {FORMAT}")
            return cls(tuple((_key(key), _whole(index)) for key, index in data["picks"]), str(data["model"]))
        except (ValueError, TypeError, KeyError, RecursionError):
            raise KvvizError(f"{path} holds no picks, as Picks.save writes them") from None

    def _picked(self, graph: Graph) -> list[int]:
        """Indices of the picked nodes of one graph, after checking that they are its nodes."""
        key = graph.path
        if not key and self.model and self.model != fingerprint(graph):
            raise KvvizError(f"these picks were made for another model than {graph.source or graph.name}")
        given = [index for where, index in self.picks if where == key]
        if len(set(given)) < len(given):
            twice = next(index for index in given if given.count(index) > 1)
            raise KvvizError(f"the picks name node {twice} in {path_of(key)} twice")
        known = {node.index for node in graph.nodes}
        # Where another policy adds no copies, the original runs when the first of them did.
        picked = list(dict.fromkeys(index if index in known else index % MAX_NODES for index in given))
        wrong = next((index for index in picked if index not in known), None)
        if wrong is not None:
            raise KvvizError(f"the picks name node {wrong} in {path_of(key)} of {graph.name}, where there is none")
        return picked


def _key(key: Any) -> GraphPath:
    return tuple((_whole(index), str(attribute)) for index, attribute in key)


def _whole(number: Any) -> int:
    if type(number) is not int:
        raise TypeError(f"{number!r} is no node index")
    return number
