"""What a node needs of another, a declared edge or bytes that one of the two writes, and what another order breaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvviz.ggml.graph.address_lives import lives
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.op_effects import Effect, effects, is_noop
from kvviz.ggml.graph.tensor import Tensor
from kvviz.trace.regions import Level, overlap


def is_source(node: Tensor, other: Tensor) -> bool:
    """Whether a declared edge leads from another node to a node."""
    return any(source is other for source in node.src)


class Touching:
    """What the nodes of a graph touch, looked up by pairs."""

    def __init__(self, nodes: Sequence[Tensor]) -> None:
        self._effects = {node: effects(node) for node in nodes}

    def shared(self, first: Tensor, second: Tensor, level: Level = "exact") -> dict[tuple[str, Tensor], int]:
        """Bytes that make it matter which of two nodes runs first, by kind and root; none where it does not."""
        found: dict[tuple[str, Tensor], int] = {}
        for one, two in self._pairs(first, second):
            count = overlap(one.region, two.region, level, one.tensor.root.nbytes)
            if count:
                kind = "WAW" if one.writes and two.writes else "RAW" if one.writes else "WAR"
                found[kind, one.tensor.root] = found.get((kind, one.tensor.root), 0) + count
        return found

    def _pairs(self, first: Tensor, second: Tensor) -> Iterator[tuple[Effect, Effect]]:
        for one in self._effects[first]:
            for two in self._effects[second]:
                if (one.writes or two.writes) and one.tensor.root is two.tensor.root:
                    yield one, two

    def on_written_roots(self) -> dict[Tensor, list[Tensor]]:
        """The nodes that touch each root that some node writes after it was made, in the order of the list."""
        users: dict[Tensor, list[Tensor]] = {}
        written: set[Tensor] = set()
        for node, touched in self._effects.items():
            for effect in touched:
                root = effect.tensor.root
                users.setdefault(root, []).append(node)
                if effect.writes and root is not node:
                    written.add(root)
        return {root: list(dict.fromkeys(nodes)) for root, nodes in users.items() if root in written}


@dataclass(frozen=True, slots=True)
class BrokenPair:
    """Two nodes that share bytes, one of them writing, and that the new order swaps.

    Attributes
    ----------
    kind : str
        By the order of the graph: ``"RAW"``, ``"WAR"`` or ``"WAW"``.
    first, second : Tensor
        In the order of the graph, which is the one that its result was meant for.
    root : Tensor
        Whose bytes they share.
    bytes : int
    places : tuple of (int, int)
        Positions of the first and of the second, in the graph and in the new order.
    """

    kind: str
    first: Tensor
    second: Tensor
    root: Tensor
    bytes: int
    places: tuple[tuple[int, int], tuple[int, int]]

    @property
    def sentence(self) -> str:
        """What goes wrong."""
        one, two = (f"{node.op} {node.name}" for node in (self.first, self.second))
        (i, j), (k, m) = self.places
        size = f"{self.bytes:,} bytes of {self.root.name}"
        where = f"places {i} and {j} become {k} and {m}"
        if self.kind == "RAW":
            return f"{two} reads {size} before {one} has written them ({where})"
        if self.kind == "WAR":
            return f"{two} overwrites {size} before {one} has read them ({where})"
        return f"{one} writes {size} after {two}, whose bytes should stay ({where})"


def broken_pairs(nodes: Sequence[Tensor], order: Sequence[Tensor], level: Level = "exact") -> tuple[BrokenPair, ...]:
    """Hazards that the first order of some nodes respects and the second does not, by the first node and the second."""
    old = {node: i for i, node in enumerate(nodes)}
    new = {node: i for i, node in enumerate(order)}
    touching = Touching(nodes)
    swapped = {
        (first, second)
        for users in touching.on_written_roots().values()
        for i, second in enumerate(users)
        for first in users[:i]
        if new[first] > new[second]
    }
    found = [
        BrokenPair(kind, first, second, root, count, ((old[first], old[second]), (new[first], new[second])))
        for first, second in swapped
        for (kind, root), count in touching.shared(first, second, level).items()
    ]
    return tuple(sorted(found, key=lambda pair: (pair.places[0], pair.kind)))


def broken_addresses(graph: ComputeGraph, order: Sequence[Tensor]) -> tuple[BrokenPair, ...]:
    """What another order breaks at the addresses that a graph has: two results lay there one after the other, and what
    still needs the earlier one now comes behind the node that makes the later one.

    ``order``: the same nodes as they would be executed. Nothing is found of a graph without addresses.
    """
    nodes, new, made, found = graph.nodes, {node: i for i, node in enumerate(order)}, lives(graph), []
    for number, late in enumerate(made):
        for early in made[:number] if late.born >= 0 else ():
            if early.last > late.born or not early.meets(late):
                continue
            size = min(early.high, late.high) - max(early.low, late.low)
            writer = nodes[late.born]
            for place in early.users:
                user = nodes[place]
                if place < late.born and not is_noop(user) and new[user] > new[writer]:
                    kind = "WAW" if user is early.root else "WAR"
                    places = (place, late.born), (new[user], new[writer])
                    found.append(BrokenPair(kind, user, writer, early.root, size, places))
    return tuple(sorted(found, key=lambda pair: pair.places[0]))
