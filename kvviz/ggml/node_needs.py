"""What one node needs of another: a declared edge, or bytes that one of the two writes, as exactly as is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kvviz.ggml.op_effects import Effect, effects
from kvviz.ggml.tensor import Tensor
from kvviz.trace.regions import Level, overlap


class SharedBytes(NamedTuple):
    """Bytes that two nodes touch, one of them writing. ``kind`` is for the first before the second."""

    kind: str
    root: Tensor
    bytes: int


def is_source(node: Tensor, other: Tensor) -> bool:
    """Whether a declared edge leads from another node to a node."""
    return any(source is other for source in node.src)


class Touching:
    """What the nodes of a graph touch, looked up by pairs."""

    def __init__(self, nodes: Sequence[Tensor]) -> None:
        self._effects = {node: effects(node) for node in nodes}

    def shared(self, first: Tensor, second: Tensor, level: Level = "exact") -> tuple[SharedBytes, ...]:
        """What makes it matter which of two nodes runs first; nothing where it does not."""
        found: dict[tuple[str, Tensor], int] = {}
        for one, two in self._pairs(first, second):
            count = overlap(one.region, two.region, level, one.tensor.root.nbytes)
            if count:
                kind = "WAW" if one.writes and two.writes else "RAW" if one.writes else "WAR"
                found[kind, one.tensor.root] = found.get((kind, one.tensor.root), 0) + count
        return tuple(SharedBytes(kind, root, count) for (kind, root), count in found.items())

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
