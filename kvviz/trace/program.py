"""What was to run: the nodes of a graph that the outputs need, in their order, and what a reader must know of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvviz.graph.model import Graph, Node


class Grows(NamedTuple):
    """An input that an op may append to, and the output that this gives, by their positions.

    ``reads``: it looks at the bytes of that input even then.
    """

    input: int
    output: int
    reads: bool


def grown(past: tuple[int, ...] | None, present: tuple[int, ...] | None) -> tuple[int, int] | None:
    """The axis along which a past became longer, and its old length; None unless it grew along exactly one axis."""
    if past is None or present is None or len(past) != len(present):
        return None
    other = [(axis, old) for axis, (old, new) in enumerate(zip(past, present)) if new != old]
    return other[0] if len(other) == 1 and present[other[0][0]] > other[0][1] else None


class OpNode:
    """A node as a producer runs it.

    ``position``: its place in the program's order.
    ``control``: ``"If"``, ``"Loop"``, ``"Scan"`` or ``"function"`` where it enters bodies, else empty.
    ``foreign``: it runs on a kernel of the reference evaluator.
    ``views``: inputs that its first output may be a view of.
    ``overwrites``: inputs that its first output may take over.
    ``unread``: inputs of which it asks only the shape or the type.
    ``note``: what the runtime's own planner says of it.
    """

    __slots__ = ("control", "foreign", "grows", "node", "note", "overwrites", "position", "unread", "views")

    def __init__(
        self,
        node: Node,
        position: int,
        control: str = "",
        foreign: bool = False,
        views: Sequence[int] = (),
        overwrites: Sequence[int] = (),
        grows: Sequence[tuple[int, int, bool]] = (),
        unread: Sequence[int] = (),
        note: str = "",
    ) -> None:
        self.node = node
        self.position = position
        self.control = control
        self.foreign = foreign
        self.views = tuple(views)
        self.overwrites = tuple(overwrites)
        self.grows = tuple(Grows(*pair) for pair in grows)
        self.unread = tuple(unread)
        self.note = note


class Program:
    """The nodes of one graph that are to run, in order, and the values that are wanted of it.

    ``wanted``: the outputs as a set.
    """

    __slots__ = ("graph", "order", "outputs", "wanted")

    def __init__(self, graph: Graph, order: Sequence[OpNode], outputs: Sequence[str]) -> None:
        self.graph = graph
        self.order = tuple(order)
        self.outputs = tuple(outputs)
        self.wanted = frozenset(outputs)
