"""Who lived at an address of the compute buffer, from which node to which one, and who took it over.

Rules: ``ggml_gallocr_alloc_graph_impl`` of ggml (``src/ggml-alloc.c``): a node may take the place of a source of equal
layout that nobody else will use; all other memory is free behind the last use of its owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.tensor import OUTPUT, Tensor

# Nodes that are looked at for a path between two, at most: an owner and its users are near each other.
_NEAR = 4096


class Life(NamedTuple):
    """The life of a tensor that owns memory of a compute buffer.

    ``born, last``: indices of the nodes that made it, -1 for an input, and that used it or one of its views last.
    ``users``: all of the latter.
    """

    root: Tensor
    born: int
    last: int
    users: tuple[int, ...]

    @property
    def low(self) -> int:
        """Its address."""
        return self.root.address or 0

    @property
    def high(self) -> int:
        """The address behind it."""
        return self.low + self.root.nbytes

    def meets(self, other: Life) -> bool:
        """Whether both have an address in common, each at its time."""
        return self.root.buffer == other.root.buffer and self.low < other.high and other.low < self.high


def lives(graph: ComputeGraph) -> list[Life]:
    """The lives in compute buffers, in the order in which they began; of tensors whose address is known."""
    born: dict[Tensor, int] = {}
    users: dict[Tensor, list[int]] = {}
    for place, node in enumerate(graph.nodes):
        if node.view_src is None:
            born[node] = place
        for tensor in dict.fromkeys(source.root for source in (*node.src, node) if source is not None):
            users.setdefault(tensor, []).append(place)
    found = [
        Life(root, born.get(root, -1), at[-1], tuple(at))
        for root, at in users.items()
        if root.address is not None and root.role not in ("weight", "state")
    ]
    return sorted(found, key=lambda life: life.born)


def taken_over(graph: ComputeGraph) -> dict[Tensor, Tensor]:
    """Results that lie where a source of theirs lay, and that source: the allocator let the node overwrite it.

    Left out is what not all users of the source are known to come before: as two lives they say the same.
    """
    places = {node: place for place, node in enumerate(graph.nodes)}
    waits = _waits(graph.nodes, places)
    ending: dict[int, list[Life]] = {}
    found: dict[Tensor, Tensor] = {}
    for life in lives(graph):
        for old in ending.get(life.born, ()):
            same = (old.low, old.high, old.root.buffer) == (life.low, life.high, life.root.buffer)
            # The node that takes over uses it too.
            if (
                same
                and life.root.nbytes
                and old.root not in found.values()
                and _all_before(waits, old.users[:-1], life.born)
            ):
                found[life.root] = old.root
        ending.setdefault(life.last, []).append(life)
    return found


def freed_after(graph: ComputeGraph) -> dict[int, list[Tensor]]:
    """By index of a node, whose memory is free behind it; outputs and what nobody uses stay to the end of the graph."""
    end = len(graph.nodes) - 1
    found: dict[int, list[Tensor]] = {}
    for life in lives(graph):
        stays = life.root.flags & OUTPUT or life.last == life.born
        found.setdefault(end if stays else life.last, []).append(life.root)
    return found


def _waits(nodes: Sequence[Tensor], places: dict[Tensor, int]) -> list[list[int]]:
    return [
        [places[source] for source in node.src if source in places and places[source] < place]
        for place, node in enumerate(nodes)
    ]


def _all_before(waits: Sequence[Sequence[int]], early: Iterable[int], late: int) -> bool:
    """Whether a path leads from each of some nodes to a later one, as far as one looks."""
    left = set(early)
    seen = {late}
    for place in _back(waits, late, min(left, default=late), seen):
        left.discard(place)
        if not left or len(seen) > _NEAR:
            break
    return not left


def _back(waits: Sequence[Sequence[int]], late: int, floor: int, seen: set[int]) -> Iterator[int]:
    stack = [late]
    while stack:
        for wait in waits[stack.pop()]:
            if wait >= floor and wait not in seen:
                seen.add(wait)
                stack.append(wait)
                yield wait
