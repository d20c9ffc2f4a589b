"""What ggml's allocator decided for a graph: where each tensor lies, which node took over which source, and what stays.

`observed_plan` reads the plan of a recorded graph from its addresses. Rules: ``ggml_gallocr_alloc_graph_impl`` of ggml
(``src/ggml-alloc.c``): a node may take the place of a source of equal layout that no other node will use; all other
memory is free after the last use of its owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.tensor import OUTPUT, Tensor
from kvviz.trace import blockers as b

CAN_INPLACE = frozenset(
    {
        *("FILL", "SCALE", "DIAG_MASK_ZERO", "DIAG_MASK_INF", "ADD", "ADD_ID", "ADD1", "SUB", "MUL", "DIV", "SQR"),
        *("SQRT", "LOG", "UNARY", "ROPE", "ROPE_BACK", "SILU_BACK", "RMS_NORM", "RMS_NORM_BACK", "CLAMP", "SOFT_MAX"),
        "SOFT_MAX_BACK",
    }
)
"""``ggml_op_can_inplace`` (``src/ggml-alloc.c``, version 0.25.3; CLAMP is there since autumn 2026)."""

RULES = (
    "{op} cannot take {input}: it is a view, and gallocr never counts a view as its own",
    "{op} cannot take {input}: gallocr did not allocate it",
    "{op} cannot take {input}: its strides are not those of the output",
)
"""Sentences of the reasons that only this policy has, as `kvviz.trace.trace_data.PolicyFacts` keeps them."""


VIEW, EXTERNAL, STRIDES_DIFFER = (b.rule(number) for number in range(len(RULES)))


class TensorPlace(NamedTuple):
    """Where an allocated tensor lies: its bytes, not rounded up, and the source whose memory it took over, or None."""

    buffer: str
    chunk: int
    offset: int
    size: int
    source: Tensor | None = None

    @property
    def arena(self) -> str:
        """What its address counts in: the buffer, or one chunk of it."""
        return f"{self.buffer} chunk {self.chunk}" if self.chunk else self.buffer


class NodePlan(NamedTuple):
    """What was decided for one node. ``masks``: all reasons against each source that was tried, by its position, as
    bits of `kvviz.trace.blockers`; none for views and for ops not in `CAN_INPLACE`. ``freed``: tensors whose memory was
    released after it ran. ``withheld``: tensors that would have been freed but are flagged OUTPUT."""

    node: Tensor
    masks: Mapping[int, int]
    freed: tuple[Tensor, ...]
    withheld: tuple[Tensor, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The plan of a graph. ``places`` has all tensors that gallocr allocated (views lie in their roots), ``nodes`` are
    in the graph's order, and ``sizes`` are bytes by buffer and chunk."""

    places: Mapping[Tensor, TensorPlace] = field(repr=False)
    nodes: tuple[NodePlan, ...] = field(repr=False)
    sizes: Mapping[tuple[str, int], int]

    @property
    def nbytes(self) -> int:
        return sum(self.sizes.values())

    def owner(self, tensor: Tensor) -> Tensor:
        """The tensor that the memory of a tensor was allocated for: its root, or the tensor which that took over
        from."""
        one = tensor.root
        while one in self.places:
            source = self.places[one].source
            if source is None:
                break
            one = source
        return one


def place_data(plan: MemoryPlan) -> None:
    """Give the tensors of a plan their memory. Contents of leafs are carried over; the rest of the memory is zero."""
    arenas = {key: np.zeros(size, np.uint8) for key, size in plan.sizes.items()}
    for tensor, place in plan.places.items():
        part = arenas[place.buffer, place.chunk][place.offset : place.offset + place.size]
        if tensor.op == "NONE" and tensor.data is not None:
            part[...] = tensor.data
        tensor.data = part


# The maximum number of nodes examined for a path between two; an owner and its users are near each other.
_NEAR = 4096


class Life(NamedTuple):
    """The life of a tensor that owns memory of a compute buffer. ``born`` and ``last`` are indices of the node that
    made it (-1 for an input) and of the last one that used it or a view of it; ``users`` are indices of all its
    users."""

    root: Tensor
    born: int
    last: int
    users: tuple[int, ...]

    @property
    def low(self) -> int:
        return self.root.address or 0

    @property
    def high(self) -> int:
        return self.low + self.root.nbytes

    def meets(self, other: Life) -> bool:
        """Whether both have an address in common, at the same time or not."""
        return self.root.buffer == other.root.buffer and self.low < other.high and other.low < self.high


def lives(graph: ComputeGraph) -> list[Life]:
    """The lives in compute buffers of tensors with a known address, in the order in which they began."""
    born: dict[Tensor, int] = {}
    users: dict[Tensor, list[int]] = {}
    for place, node in enumerate(graph.nodes):
        if node.view_src is None:
            born[node] = place
        for tensor in dict.fromkeys(source.root for source in (*node.sources, node)):
            users.setdefault(tensor, []).append(place)
    found = [
        Life(root, born.get(root, -1), at[-1], tuple(at))
        for root, at in users.items()
        if root.address is not None and root.role not in ("weight", "state")
    ]
    return sorted(found, key=lambda life: life.born)


def observed_plan(graph: ComputeGraph) -> MemoryPlan:
    """What the allocator must have decided for a recorded graph, as its addresses show. A result takes over a source if
    it lies where the source lay, and all other users of the source are known to run before it. Outputs, and results
    that no node uses, stay to the end of the graph."""
    end, found = len(graph.nodes) - 1, lives(graph)
    taken = _taken_over(graph.nodes, found)
    places = {
        life.root: TensorPlace(life.root.buffer, 0, life.low, life.root.nbytes, taken.get(life.root))
        for life in found
        if life.born >= 0
    }
    freed: dict[int, list[Tensor]] = {}
    for life in found:
        stays = life.root.flags & OUTPUT or life.last in (life.born, end) or life.root in taken.values()
        if not stays:
            freed.setdefault(life.last, []).append(life.root)
    nodes = (NodePlan(node, {}, tuple(freed.get(place, ()))) for place, node in enumerate(graph.nodes))
    return MemoryPlan(places, tuple(nodes), {})


def _taken_over(nodes: Sequence[Tensor], found: Iterable[Life]) -> Mapping[Tensor, Tensor]:
    """Results that lie where one of their sources lay, and that source."""
    places = {node: place for place, node in enumerate(nodes)}
    ending: dict[int, list[Life]] = {}
    taken: dict[Tensor, Tensor] = {}
    for life in found:
        for old in ending.get(life.born, ()):
            same = (old.low, old.high, old.root.buffer) == (life.low, life.high, life.root.buffer)
            free = same and life.root.nbytes and old.root not in taken.values()
            # The node that takes over is a user too.
            if free and _all_before(nodes, places, old.users[:-1], life.born):
                taken[life.root] = old.root
        ending.setdefault(life.last, []).append(life)
    return taken


def _all_before(nodes: Sequence[Tensor], places: Mapping[Tensor, int], early: Iterable[int], late: int) -> bool:
    """Whether a path leads from each of some nodes to a later one; False if the search takes too long."""
    left, seen, stack = set(early), {late}, [late]
    floor = min(left, default=late)
    while stack and left and len(seen) <= _NEAR:
        place = stack.pop()
        waits = {places.get(source, place) for source in nodes[place].sources} - seen
        stack += [wait for wait in waits if floor <= wait < place]
        seen |= waits
        left -= waits
    return not left
