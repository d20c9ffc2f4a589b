"""ggml's graph allocator as a policy: which node runs in the memory of a source, where each tensor lies, what is freed.

Source: ``ggml_gallocr_alloc_graph_impl`` (``src/ggml-alloc.c``, snapshot d99724f), step for step. A tensor's memory is
given back when its last child has run and it has no views left; views and external tensors are never allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from kvviz.errors import KvvizError
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.memory_plan import (
    CAN_INPLACE,
    NEVER_READ,
    OUTPUT_KEPT,
    UNREAD_VIEW,
    Kept,
    MemoryPlan,
    NodePlan,
    Refusal,
    Refused,
    TensorPlace,
)
from kvviz.ggml.graph.tensor import INPUT, OUTPUT, Tensor
from kvviz.ggml.order.free_blocks import UNLIMITED, Address, FreeBlocks, aligned

EXTERNAL_ROLES = frozenset({"weight", "state"})


def is_external(tensor: Tensor) -> bool:
    """Whether something else than the graph allocator holds a tensor: weights, KV caches, recurrent states."""
    return tensor.root.role in EXTERNAL_ROLES


def plan_memory(
    graph: ComputeGraph,
    *,
    alignment: int = 32,
    max_chunk: int = UNLIMITED,
    buffers: Mapping[Tensor, str] | None = None,
    external: Callable[[Tensor], bool] = is_external,
    keep: Mapping[Tensor, Sequence[Tensor]] | None = None,
) -> MemoryPlan:
    """Plan the memory of a graph as ``ggml_gallocr_reserve`` does.

    Parameters
    ----------
    alignment : int
        Of the buffer type: 32 on the CPU.
    max_chunk : int
        Bytes of the largest block that the buffer type gives.
    buffers : mapping of Tensor to str, optional
        Of graphs on several back ends: the buffer of each node and leaf. All are in ``"compute"`` by default.
    external : callable
        Whether a tensor has memory already.
    keep : mapping of Tensor to sequence of Tensor, optional
        By node, what stays until that node has run: what a back end that fuses nodes asks for (``add_alloc_dep``).

    Raises
    ------
    KvvizError
        Where ggml would abort: too many free blocks, too many chunks, an alignment that is no power of two.
    """
    return _Planner(graph, alignment, max_chunk, buffers or {}, external, keep or {}).plan()


class _Planner:
    """The counts of a graph while it is planned."""

    def __init__(
        self,
        graph: ComputeGraph,
        alignment: int,
        max_chunk: int,
        buffers: Mapping[Tensor, str],
        external: Callable[[Tensor], bool],
        keep: Mapping[Tensor, Sequence[Tensor]],
    ) -> None:
        self.keep = keep
        self.graph = graph
        self.new_blocks = lambda: FreeBlocks(alignment, max_chunk)
        self.alignment = alignment
        self.buffers = buffers
        self.external = external
        self.free: dict[str, FreeBlocks] = {"compute": self.new_blocks()}
        self.children: dict[Tensor, list[Tensor]] = {}  # that have not run, one for each edge
        self.views: dict[Tensor, list[Tensor]] = {}  # that have not been let go
        self.own: set[Tensor] = set()
        self.places: dict[Tensor, TensorPlace] = {}
        self.born: list[Tensor] = []
        self.freed: list[Tensor] = []
        self.withheld: list[Tensor] = []
        self.taken: int | None = None
        self.refused: list[Refused] = []

    def plan(self) -> MemoryPlan:
        for leaf in self.graph.leafs:
            self._allocate(leaf)
        self._count()
        first, nodes = tuple(self.born), []
        for node in self.graph.nodes:
            self.born, self.freed, self.withheld, self.taken, self.refused = [], [], [], None, []
            for source in _sources(node):
                self._allocate(source, node)
            self._allocate(node)
            taken, refused = self.taken, tuple(self.refused)
            for source in (*_sources(node), *self.keep.get(node, ())):
                self._let_go(source, node)
            nodes.append(NodePlan(node, taken, refused, *map(tuple, (self.born, self.freed, self.withheld))))
        sizes = {(name, i): size for name, blocks in self.free.items() for i, size in enumerate(blocks.max_sizes)}
        return MemoryPlan(self.places, first, tuple(nodes), tuple(self._kept()), sizes, self.alignment)

    def _count(self) -> None:
        """How many children and views each tensor has; inputs get memory first, so that nothing overwrites them."""
        for node in self.graph.nodes:
            if node.view_src is not None and node.op != "NONE":
                self.views.setdefault(node.view_src, []).append(node)
            if node.flags & INPUT:
                self._allocate(node)
            for source in _sources(node):
                self.children.setdefault(source, []).append(node)
                if source.flags & INPUT:
                    self._allocate(source, node)
            for kept in self.keep.get(node, ()):
                self.children.setdefault(kept, []).append(node)

    def _allocate(self, tensor: Tensor, user: Tensor | None = None) -> None:
        if tensor in self.own or tensor.view_src is not None or self.external(tensor):
            return
        self.own.add(tensor)
        if tensor.op in CAN_INPLACE:
            if self._take_over(tensor):
                return
        elif any(True for _ in _sources(tensor)):
            self.refused.append(Refused(-1, None, Refusal.OP_NOT_LISTED))
            for position, source in enumerate(tensor.src):
                if source is not None and source is not tensor:
                    self.refused += self._against(tensor, position, source)
        buffer = self.buffers.get(tensor) or self.buffers.get(user or tensor) or "compute"
        address = self.free.setdefault(buffer, self.new_blocks()).take(tensor.nbytes)
        self.places[tensor] = TensorPlace(buffer, *address, tensor.nbytes)
        self.born.append(tensor)

    def _take_over(self, node: Tensor) -> bool:
        """Give a node the memory of its first source that nobody else needs."""
        for position, source in enumerate(node.src):
            if source is None:
                continue
            against = list(self._against(node, position, source))
            self.refused += against
            if not against:
                there = self.places[source]
                self.places[node] = TensorPlace(there.buffer, there.chunk, there.offset, node.nbytes, source)
                self.own.discard(source)  # so that it is not freed
                self.taken = position
                self._give_tail(there, node)
                return True
        return False

    def _give_tail(self, there: TensorPlace, node: Tensor) -> None:
        kept, had = (aligned(size, self.alignment) for size in (node.nbytes, there.size))
        if had > kept:
            self.free[there.buffer].give(Address(there.chunk, there.offset + kept), had - kept)

    def _against(self, node: Tensor, position: int, source: Tensor) -> Iterator[Refused]:
        """All that stands against taking over a source; ggml stops at the first."""
        if source.view_src is not None:
            yield Refused(position, source, Refusal.IS_VIEW)
        elif source not in self.own:
            yield Refused(position, source, Refusal.EXTERNAL)
        if (source.flags | source.root.flags) & OUTPUT:
            yield Refused(position, source, Refusal.OUTPUT)
        if source.type != node.type:
            yield Refused(position, source, Refusal.TYPE_DIFFERS)
        if source.ne != node.ne:
            yield Refused(position, source, Refusal.SHAPE_DIFFERS)
        elif source.type == node.type and source.nb != node.nb:
            yield Refused(position, source, Refusal.STRIDES_DIFFER)
        left = self.children.get(source, [])
        others = [child for child in left if child is not node]
        if others:
            yield Refused(position, source, Refusal.CHILDREN_LEFT, tuple(dict.fromkeys(others)))
        if len(left) - len(others) > 1:
            yield Refused(position, source, Refusal.READ_TWICE, (node,))
        if self.views.get(source):
            yield Refused(position, source, Refusal.VIEWS_LEFT, tuple(self.views[source]))

    def _let_go(self, source: Tensor, node: Tensor) -> None:
        """A child of a tensor has run."""
        self.children[source].remove(node)
        if self.children[source] or self.views.get(source):
            return
        if source.view_src is None:
            if source in self.own:
                self._free(source)
            return
        root = source.view_src
        left = self.views.get(root, [])
        if source in left:
            left.remove(source)
        if not left and not self.children.get(root) and root in self.own:
            self._free(root)

    def _free(self, tensor: Tensor) -> None:
        if tensor.flags & OUTPUT:
            self.withheld.append(tensor)
            return
        there = self.places[tensor]
        self.free[there.buffer].give(Address(there.chunk, there.offset), there.size)
        self.own.discard(tensor)
        self.freed.append(tensor)

    def _kept(self) -> Iterator[Kept]:
        read = {source for node in self.graph.nodes for source in _sources(node)}
        for tensor in self.places:
            if tensor not in self.own:
                continue
            if tensor.flags & OUTPUT:
                yield Kept(tensor, OUTPUT_KEPT)
            elif tensor not in read:
                yield Kept(tensor, NEVER_READ)
            else:
                yield Kept(tensor, UNREAD_VIEW, tuple(self.views.get(tensor, ())))


def _sources(node: Tensor) -> Iterator[Tensor]:
    return (source for source in node.src if source is not None)


def recorded_plan(graph: ComputeGraph) -> MemoryPlan:
    """The decisions of the allocator for a recorded graph, at the recorded places.

    Raises
    ------
    KvvizError
        If a tensor that the allocator would place was recorded without a place, or not where what it takes over is.
    """
    plan = plan_memory(graph)
    places, sizes = {}, dict(plan.sizes)
    for tensor, place in plan.places.items():
        if tensor.address is None:
            raise KvvizError(f"tensor {tensor.name!r} of {graph.title!r} was recorded without its place")
        if place.source is not None and place.source.address != tensor.address:
            raise KvvizError(
                f"tensor {tensor.name!r} of {graph.title!r} would take over {place.source.name!r} at "
                f"{place.source.address}, but was recorded at {tensor.address}: its buffer has another allocator"
            )
        places[tensor] = place._replace(offset=tensor.address)
        key = place.buffer, place.chunk
        sizes[key] = max(sizes.get(key, 0), tensor.address + tensor.nbytes)
    return replace(plan, places=places, sizes=sizes)
