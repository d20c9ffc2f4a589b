"""Two simple rules for picking from the frontier: stay with what was made last, and keep the fewest bytes alive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvviz.graph.model import Graph, GraphPath, Node
from kvviz.runtimes.schedules.frontier import forward, reads
from kvviz.runtimes.schedules.planning_events import Log
from kvviz.trace.recording import Trace
from kvviz.trace.schema.events import PASSED, VIEW

# Value name, the value in whose memory it lies, and the bytes of that memory ("" and 0: not the run's to free).
Measured = tuple[str, str, int]
_FREED = ("donated", "passed", "captured by value")


def depth_first(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str], log: Log | None = None) -> Sequence[Node]:
    """Run a reader of what was made last, as soon as one can run; of several the first in the model's order."""
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

    Greedy: it does not look ahead. What a body captures by reference, a borrowed input or a weight frees nothing.

    ``sizes``: for each graph of a model that was measured: value, the value in whose memory it lies (itself, or what
      it is a view of), and bytes. Values that are not there, or all where it is empty, count as 1.
    """

    sizes: tuple[tuple[GraphPath, tuple[Measured, ...]], ...] = ()

    def __hash__(self) -> int:
        # A policy is looked up at every frame: hashing must not walk through all sizes.
        return hash((LeastLive, tuple((key, len(values)) for key, values in self.sizes)))

    def __call__(
        self, graph: Graph, nodes: Sequence[Node], outputs: Sequence[str], log: Log | None = None
    ) -> Sequence[Node]:
        """Put nodes in order."""
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
    """The schedule `LeastLive`, with the sizes that values had in a trace.

    ``trace``: of the same model. Of a value that had several sizes (a cache that grows) the largest counts.
    """
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
    """What is alive while planning: of each memory, how many readings of the values in it are left."""

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
        """By how much the bytes alive grow if a node runs now."""
        known = self._changes.get(node.index)
        if known is None:
            new = {name for name in node.outputs if name and self._home(name) == name and self.left.get(name)}
            dead = [home for home in self._reads[node.index] if self.left[home] == 1]
            known = sum(self.size.get(n, 1) for n in new) - sum(self.size.get(home, 1) for home in dead)
            self._changes[node.index] = known
        return known

    def run(self, node: Node) -> list[Node]:
        """Note that a node has run; returns the nodes that would change the bytes alive otherwise now."""
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
