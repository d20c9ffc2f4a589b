"""Schedules: in which order a graph's needed nodes run. Each is a value that a `kvviz.Policy` can hold.

A schedule is called as ``schedule(graph, nodes, outputs)`` with the needed nodes in the model's order, and returns
them in an order in which they can run. Use another one with ``dataclasses.replace(policy, schedule=…)``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvviz.atomic_write import write_text
from kvviz.errors import KvvizError
from kvviz.graph.model import MAX_NODES, Graph, GraphPath, Node, fingerprint, path_of
from kvviz.runtimes.frontier import Circle, Log, follow, forward, needs_of, pull, reads, takes_log
from kvviz.trace.recording import Trace
from kvviz.trace.schema.events import PASSED, VIEW

if TYPE_CHECKING:
    from kvviz.engine.policy import Schedule


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
        """Put nodes in order; raises `KvvizError` if a reader needs what its node makes, the pairs contradict each
        other, or a node does not exist."""
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
    """By node index, the nodes that must run before it: makers of its inputs, and readers that the pairs put first."""
    place = {node.index: i for i, node in enumerate(order)}
    needs = needs_of(order)
    pairs = [(reader, node) for reader, node in pairs if reader.index in place and node.index in place]
    for reader, node in pairs:
        if any(one.index == node.index for one, _ in pull([reader], needs)):
            raise KvvizError(f"{reader.name!r} cannot run before {node.name!r}: it needs what that one makes")
    for reader, node in pairs:
        needs[node.index].append(reader)
    for waiting in needs.values():
        waiting.sort(key=lambda n: place[n.index])
    return needs


# Value name, the value in whose memory it lies, and the bytes of that memory ("" and 0: not the run's to free).
Measured = tuple[str, str, int]
_FREED = ("donated", "passed", "captured by value")


def depth_first(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str], log: Log | None = None) -> Sequence[Node]:
    """Run a reader of the latest value as soon as one can run, the first in the model's order on ties."""
    place = {node.index: i for i, node in enumerate(nodes)}
    since: dict[int, int] = {}
    picked: list[Node] = []

    def rank(node: Node) -> tuple[int, int]:
        since[node.index] = len(picked)
        return -len(picked), place[node.index]

    def changed(node: Node) -> tuple[Node, ...]:
        picked.append(node)
        return ()

    def why(frontier: Sequence[Node], position: int) -> str:
        node = frontier[position]
        if len(frontier) == 1:
            return f"{node.op_type} is the only op that can run"
        if picked and since[node.index] == len(picked):
            return f"{node.op_type} reads what was made just now"
        return f"nothing can go on from what was made just now: {node.op_type} became ready last"

    return forward(nodes, rank, why, log, changed)


@dataclass(frozen=True, slots=True)
class LeastLive:
    """A schedule that always runs the op of the frontier after which the fewest bytes are alive.

    Greedy: it does not look ahead. Captures by reference, borrowed inputs and weights free nothing. ``sizes``: for each
    measured graph of a model: value, the value in whose memory it lies (itself, or the viewed value), and bytes.
    Missing values count as 1.
    """

    sizes: tuple[tuple[GraphPath, tuple[Measured, ...]], ...] = ()

    def __hash__(self) -> int:
        # A policy is looked up at every frame: hashing must not walk through all sizes.
        return hash((LeastLive, tuple((key, len(values)) for key, values in self.sizes)))

    def __call__(
        self, graph: Graph, nodes: Sequence[Node], outputs: Sequence[str], log: Log | None = None
    ) -> Sequence[Node]:
        key = graph.path
        measured = next((values for where, values in self.sizes if where == key), ())
        books = _Books(nodes, outputs, measured)
        unit = "B" if measured else "values"
        place = {node.index: i for i, node in enumerate(nodes)}

        def rank(node: Node) -> tuple[int, int]:
            return books.change(node), place[node.index]

        def why(frontier: Sequence[Node], position: int) -> str:
            node = frontier[position]
            if len(frontier) == 1:
                return f"{node.op_type} is the only op that can run"
            return f"{node.op_type} leaves the least alive: {books.change(node):+,} {unit}"

        return forward(nodes, rank, why, log, books.run)


def least_live(trace: Trace | None = None) -> LeastLive:
    """The schedule `LeastLive`, with the sizes of values in a trace of the same model; the largest of several, as for a
    growing cache."""
    if trace is None:
        return LeastLive()
    keys = [frame.graph.path for frame in trace.frames]
    storages = trace.log.storages
    found: dict[GraphPath, dict[str, Measured]] = {key: {} for key in keys}
    homes: dict[tuple[int, int, int], str] = {}

    def note(frame: int, name: str, storage: int, home: str) -> None:
        size = storages[storage].capacity if home else 0
        before = found[keys[frame]].get(name)
        if before is None or before[2] < size:
            found[keys[frame]][name] = (name, home, size)

    for frame in trace.frames:
        for bound in frame.bindings:
            home = bound.name if bound.how in _FREED else ""
            home = homes.setdefault((frame.id, bound.storage, bound.generation), home)
            note(frame.id, bound.name, bound.storage, home)
    for row in trace.log:
        for name, where in zip(row.op.node.outputs, row.outs):
            if where is not None:
                here = (row.frame, where.storage, where.generation)
                home = homes.get(here, name) if where.how in (VIEW, PASSED) else name
                homes[here] = home
                note(row.frame, name, where.storage, home)
    return LeastLive(tuple((key, tuple(values.values())) for key, values in found.items()))


class _Books:
    """Live memory while planning: of each block, the remaining reads of its values."""

    def __init__(self, nodes: Sequence[Node], outputs: Sequence[str], measured: Sequence[Measured]) -> None:
        self.home = {name: home for name, home, _ in measured}
        self.size: dict[str, int] = {}
        for _, home, size in measured:
            self.size[home] = max(size, self.size.get(home, 0))
        made = {name for node in nodes for name in node.outputs if name}
        self.left: dict[str, int] = {}
        self.readers: dict[str, list[Node]] = {}
        self._reads: dict[int, tuple[str, ...]] = {}
        self._changes: dict[int, int] = {}
        for node in nodes:
            homes = dict.fromkeys(self._home(name) for name in reads(node) if name in made or name in self.home)
            self._reads[node.index] = tuple(home for home in homes if home)
            for home in self._reads[node.index]:
                self.left[home] = self.left.get(home, 0) + 1
                self.readers.setdefault(home, []).append(node)
        for home in {self._home(name) for name in outputs}:
            # Never released: the caller takes it.
            self.left[home] = self.left.get(home, 0) + len(nodes) + 1

    def change(self, node: Node) -> int:
        """The change of live bytes if a node runs now."""
        known = self._changes.get(node.index)
        if known is None:
            new = {name for name in node.outputs if name and self._home(name) == name and self.left.get(name)}
            dead = [home for home in self._reads[node.index] if self.left[home] == 1]
            known = sum(self.size.get(n, 1) for n in new) - sum(self.size.get(home, 1) for home in dead)
            self._changes[node.index] = known
        return known

    def run(self, node: Node) -> list[Node]:
        """Note that a node has run; returns the nodes whose effect on live bytes has changed."""
        changed = []
        for home in self._reads[node.index]:
            self.left[home] -= 1
            if self.left[home] == 1:
                changed += [
                    reader for reader in self.readers[home] if self._changes.pop(reader.index, None) is not None
                ]
        return changed

    def _home(self, name: str) -> str:
        return self.home.get(name, name)


FORMAT = 1


@dataclass(frozen=True, slots=True)
class Picks:
    """A schedule that runs the picked nodes in the order of the picks.

    A node that was not picked runs when a picked one needs it, otherwise at the end, in the model's order. A node that
    the requested outputs do not need is left out.

    ``picks``: path of a graph (see `kvviz.graph.model.GraphPath`) and node index.
    ``model``: fingerprint of the model that they were made on; empty if that is not checked.
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
        """Put nodes in order; raises `KvvizError` if the picks do not fit the model, or run a node before one that it
        needs."""
        picked = self._picked(graph)
        places = {index: place for place, index in enumerate(picked)}
        by_index = {node.index: node for node in nodes}
        order = [by_index[index] for index in picked if index in by_index]
        order += [node for node in nodes if node.index not in places]
        decided: list[tuple[Node, str]] = []
        for node, goal in pull(order, needs_of(nodes)):
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
        # If another policy adds no copies, the original runs when the first of them did.
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
