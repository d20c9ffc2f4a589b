"""Which hazards of a graph another order of its nodes breaks: pairs in one order here and in the other there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvviz.ggml.node_needs import Touching
from kvviz.ggml.tensor import Tensor
from kvviz.trace.regions import Level


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
    """Hazards that the first order respects and the second does not, by the first node and the second.

    Parameters
    ----------
    nodes, order : sequence of Tensor
        The same nodes, as the graph has them and as they are executed now.
    level : {"exact", "range", "root"}
        What counts as the same bytes.
    """
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
        BrokenPair(
            shared.kind,
            first,
            second,
            shared.root,
            shared.bytes,
            ((old[first], old[second]), (new[first], new[second])),
        )
        for first, second in swapped
        for shared in touching.shared(first, second, level)
    ]
    return tuple(sorted(found, key=lambda pair: (pair.places[0], pair.kind)))
