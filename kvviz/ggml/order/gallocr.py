"""ggml's graph allocator as a policy: which node runs in the memory of a source, where each tensor lies, what is freed.

Sources: ``ggml_gallocr_alloc_graph_impl`` and ``ggml_dyn_tallocr`` (``src/ggml-alloc.c``, snapshot d99724f), step for
step. A tensor's memory is given back when its last child has run and it has no views left; views and external tensors
are never allocated. Addresses are planned, no byte is held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kvviz.errors import KvvizError
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.memory_plan import (
    CAN_INPLACE,
    EXTERNAL,
    STRIDES_DIFFER,
    VIEW,
    MemoryPlan,
    NodePlan,
    TensorPlace,
)
from kvviz.ggml.graph.tensor import INPUT, OUTPUT, Tensor
from kvviz.trace import blockers as b

MAX_CHUNKS, MAX_FREE_BLOCKS = 16, 256
UNLIMITED = 2**63 - 1
"""Bytes of a chunk of a buffer type without a largest size (``SIZE_MAX/2``)."""


class Address(NamedTuple):
    chunk: int
    offset: int


def aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


class FreeBlocks:
    """Free blocks of a buffer while its use is planned. ``alignment``: a power of two to which sizes are rounded up.
    ``max_chunk``: bytes of the largest block that the buffer type gives; a larger tensor gets a chunk of its own."""

    def __init__(self, alignment: int = 32, max_chunk: int = UNLIMITED) -> None:
        if alignment < 1 or alignment & (alignment - 1):
            raise KvvizError(f"an alignment must be a power of two, not {alignment}")
        if max_chunk < 1:
            raise KvvizError(f"a chunk needs a positive size, not {max_chunk} bytes")
        self.alignment = alignment
        self.max_chunk = min(max_chunk, UNLIMITED)
        self.chunks: list[list[tuple[int, int]]] = []  # (offset, size) of free blocks by address
        self.max_sizes: list[int] = []

    def take(self, size: int) -> Address:
        size = aligned(size, self.alignment)
        found = self._best_fit(size) or self._best_last(size) or (self._new_chunk(size), 0)
        chunk, number = found
        blocks = self.chunks[chunk]
        offset, free = blocks[number]
        if free == size:
            del blocks[number]
        else:
            blocks[number] = (offset + size, free - size)
        self.max_sizes[chunk] = max(self.max_sizes[chunk], offset + size)
        return Address(chunk, offset)

    def give(self, address: Address, size: int) -> None:
        given = (address.offset, aligned(size, self.alignment))
        blocks: list[tuple[int, int]] = []
        for offset, free in sorted([*self.chunks[address.chunk], given]):
            if blocks and sum(blocks[-1]) == offset:
                blocks[-1] = (blocks[-1][0], blocks[-1][1] + free)
            else:
                blocks.append((offset, free))
        if len(blocks) > MAX_FREE_BLOCKS:
            raise KvvizError(
                f"chunk {address.chunk} falls into more than {MAX_FREE_BLOCKS} free blocks: ggml aborts here"
            )
        self.chunks[address.chunk] = blocks

    def _best_fit(self, size: int) -> tuple[int, int] | None:
        """The smallest block that is large enough, except the last block of each chunk; of equal ones the last. The
        best size starts anew with each chunk, so a fit in a later chunk wins over a better one in an earlier chunk."""
        found = None
        for chunk, blocks in enumerate(self.chunks):
            best = UNLIMITED * 2 + 1
            for number, (_, free) in enumerate(blocks[:-1]):
                if size <= free <= best:
                    found, best = (chunk, number), free
        return found

    def _best_last(self, size: int) -> tuple[int, int] | None:
        """The last block of the chunk that needs to grow least, or has least room left over."""
        found, best = None, -(2**63)
        for chunk, blocks in enumerate(self.chunks):
            if not blocks:
                continue
            offset, free = blocks[-1]
            reuse = self.max_sizes[chunk] - offset - size
            better = (best < 0 and reuse > best) or 0 <= reuse < best
            if free >= size and better:
                found, best = (chunk, len(blocks) - 1), reuse
        return found

    def _new_chunk(self, size: int) -> int:
        if len(self.chunks) >= MAX_CHUNKS:
            raise KvvizError(f"no room for {size} bytes in {MAX_CHUNKS} chunks: ggml aborts here")
        last = len(self.chunks) == MAX_CHUNKS - 1
        self.chunks.append([(0, UNLIMITED if last else max(size, self.max_chunk))])
        self.max_sizes.append(0)
        return len(self.chunks) - 1


BUFFER = "compute"
EXTERNAL_ROLES = frozenset({"weight", "state"})


def is_external(tensor: Tensor) -> bool:
    """Whether a tensor is held outside the graph allocator: weights, KV caches, recurrent states."""
    return tensor.root.role in EXTERNAL_ROLES


def plan_memory(
    graph: ComputeGraph,
    *,
    alignment: int = 32,
    max_chunk: int = UNLIMITED,
    keep: Mapping[Tensor, Sequence[Tensor]] | None = None,
) -> MemoryPlan:
    """Plan the memory of a graph as ``ggml_gallocr_reserve`` does.

    Parameters
    ----------
    alignment : int
        That of the buffer type: 32 on the CPU.
    max_chunk : int
        Bytes of the largest block that the buffer type gives.
    keep : mapping of Tensor to sequence of Tensor, optional
        By node, tensors that stay until it has run, as a back end that fuses nodes requests (``add_alloc_dep``).

    Raises
    ------
    KvvizError
        If ggml would abort: too many free blocks, too many chunks, an alignment that is not a power of two.
    """
    return _Planner(graph, alignment, max_chunk, keep or {}).plan()


class _Planner:
    def __init__(
        self, graph: ComputeGraph, alignment: int, max_chunk: int, keep: Mapping[Tensor, Sequence[Tensor]]
    ) -> None:
        self.keep = keep
        self.graph = graph
        self.free = FreeBlocks(alignment, max_chunk)
        self.children: dict[Tensor, list[Tensor]] = {}  # that have not run, one for each edge
        self.views: dict[Tensor, list[Tensor]] = {}  # that have not been let go
        self.own: set[Tensor] = set()
        self.places: dict[Tensor, TensorPlace] = {}
        self.freed: list[Tensor] = []
        self.withheld: list[Tensor] = []
        self.masks: dict[int, int] = {}

    def plan(self) -> MemoryPlan:
        for leaf in self.graph.leafs:
            self._allocate(leaf)
        self._count()
        nodes = []
        for node in self.graph.nodes:
            self.freed, self.withheld, self.masks = [], [], {}
            for source in node.sources:
                self._allocate(source)
            self._allocate(node)
            for source in (*node.sources, *self.keep.get(node, ())):
                self._let_go(source, node)
            nodes.append(NodePlan(node, self.masks, tuple(self.freed), tuple(self.withheld)))
        sizes = {(BUFFER, chunk): size for chunk, size in enumerate(self.free.max_sizes)}
        return MemoryPlan(self.places, tuple(nodes), sizes)

    def _count(self) -> None:
        """Count children and views of each tensor; inputs get memory first, so that nothing overwrites them."""
        for node in self.graph.nodes:
            if node.view_src is not None and node.op != "NONE":
                self.views.setdefault(node.view_src, []).append(node)
            if node.flags & INPUT:
                self._allocate(node)
            for source in node.sources:
                self.children.setdefault(source, []).append(node)
                if source.flags & INPUT:
                    self._allocate(source)
            for kept in self.keep.get(node, ()):
                self.children.setdefault(kept, []).append(node)

    def _allocate(self, tensor: Tensor) -> None:
        if tensor in self.own or tensor.view_src is not None or is_external(tensor):
            return
        self.own.add(tensor)
        if tensor.op not in CAN_INPLACE or not self._take_over(tensor):
            self.places[tensor] = TensorPlace(BUFFER, *self.free.take(tensor.nbytes), tensor.nbytes)

    def _take_over(self, node: Tensor) -> bool:
        for position, source in enumerate(node.src):
            if source is None:
                continue
            if mask := self._against(node, source):
                self.masks[position] = mask
                continue
            there = self.places[source]
            self.places[node] = TensorPlace(there.buffer, there.chunk, there.offset, node.nbytes, source)
            self.own.discard(source)  # so that it is not freed
            return True
        return False

    def _against(self, node: Tensor, source: Tensor) -> int:
        """All reasons against taking over a source; ggml stops at the first."""
        mask = 0
        if source.view_src is not None:
            mask |= VIEW
        elif source not in self.own:
            mask |= b.CONSTANT if source.role == "weight" else EXTERNAL
        if (source.flags | source.root.flags) & OUTPUT:
            mask |= b.REQUESTED_OUTPUT
        if source.type != node.type:
            mask |= b.DTYPE_DIFFERS
        if source.ne != node.ne:
            mask |= b.SHAPE_DIFFERS
        elif source.type == node.type and source.nb != node.nb:
            mask |= STRIDES_DIFFER
        left = self.children.get(source, [])
        here = left.count(node)
        if here < len(left):
            mask |= b.NOT_LAST_USE
        if here > 1:
            mask |= b.SAME_OP_TWICE
        return mask | (b.ALIASED if self.views.get(source) else 0)

    def _let_go(self, source: Tensor, node: Tensor) -> None:
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
        self.free.give(Address(there.chunk, there.offset), there.size)
        self.own.discard(tensor)
        self.freed.append(tensor)


def recorded_plan(graph: ComputeGraph) -> MemoryPlan:
    """The decisions of the allocator for a recorded graph, at the recorded places.

    Raises
    ------
    KvvizError
        If a tensor that the allocator would place was recorded without a place, or not in the place that it takes over.
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
