"""A graph on several back ends: where it is split, what is copied across, and which copies become stale.

A model of ``ggml_backend_sched_split_graph`` (``src/ggml-backend.cpp``, llama.cpp 0c1e57098), read there and not run on
several devices. A source that a split's back end cannot read is copied once per tensor and back end, at the start of
the first split that needs it. A later split on that back end uses the same copy, although another back end may have
written the root in between. llama.cpp makes a fresh view, which is another tensor, for each read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from kvviz.errors import KvvizError
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.op_effects import effects, is_noop
from kvviz.ggml.graph.tensor import COMPUTE, VIEW_OPS, Tensor, packed
from kvviz.trace.schema.regions import overlap

LABEL = "model of ggml's scheduler, read in its source"


@dataclass(frozen=True, slots=True)
class Split:
    """Nodes that one back end runs, with what is copied to it before. ``nodes`` are those of the original graph."""

    backend: str
    nodes: tuple[Tensor, ...]
    copied: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class StaleCopy:
    """A read of a copy that is older than a write to its source; nodes are those of the original graph."""

    source: Tensor
    backend: str
    write: Tensor
    read: Tensor
    bytes: int

    @property
    def sentence(self) -> str:
        return (
            f"{self.read.op} {self.read.name} on {self.backend} reads the copy of {self.source.name} made before "
            f"{self.write.op} {self.write.name} wrote {self.bytes:,} bytes of {self.source.root.name} ({LABEL})"
        )


@dataclass(frozen=True, slots=True)
class SplitGraph:
    """A graph with its copies as nodes.

    Attributes
    ----------
    graph : ComputeGraph
        New nodes over the same leafs; a copy is called ``"<back end>#<name>#0"``. It can be run like any other.
    splits : tuple of Split
    stale : tuple of StaleCopy
    nodes : mapping of Tensor to Tensor
        The new node of each node.
    """

    graph: ComputeGraph
    splits: tuple[Split, ...]
    stale: tuple[StaleCopy, ...]
    nodes: Mapping[Tensor, Tensor] = field(repr=False)


def split_graph(graph: ComputeGraph, backends: Mapping[Tensor, str], default: str = "CPU") -> SplitGraph:
    """Split a graph among back ends, and copy what crosses.

    Parameters
    ----------
    backends : mapping of Tensor to str
        Where leafs lie and nodes run; views, and nodes that write into one, are where their root is.
    default : str
        The back end of all other tensors.

    Raises
    ------
    KvvizError
        If a view, or a node that writes into one, is given another back end than its root.
    """
    for tensor, backend in backends.items():
        home = backends.get(tensor.root, default)
        if backend != home:
            raise KvvizError(f"{tensor.name!r} lies in {tensor.root.name!r} on {home}: it cannot be on {backend}")
    return _Splitting(graph, lambda tensor: backends.get(tensor.root, default)).split()


class _Splitting:
    def __init__(self, graph: ComputeGraph, backend_of: Callable[[Tensor], str]) -> None:
        self.graph = graph
        self._backend = backend_of
        self.made = ComputeGraph(f"{graph.title}, split")
        self.made.leafs = list(graph.leafs)
        self.new: dict[Tensor, Tensor] = {}
        self.copies: dict[tuple[Tensor, str], tuple[Tensor, int]] = {}  # the copy, and how many nodes had run

    def split(self) -> SplitGraph:
        splits: list[Split] = []
        stale: list[StaleCopy] = []
        for backend, nodes in self._parts():
            copied = self._copy(backend, nodes)
            splits.append(Split(backend, tuple(nodes), tuple(copied)))
            for node in nodes:
                stale += self._stale(node, backend)
                self._renew(node, backend)
        return SplitGraph(self.made, tuple(splits), tuple(stale), self.new)

    def _parts(self) -> Iterator[tuple[str, list[Tensor]]]:
        """Runs of nodes on one back end; views never begin one. A weight of another back end begins one where something
        was copied before, so that the memory of the copies can be reused."""
        part: list[Tensor] = []
        current, known, copies = "", set[tuple[Tensor, str]](), 0
        for node in self.graph.nodes:
            here = current if current and node.op in VIEW_OPS else self._backend(node)
            crossing = list(self._crossing(node, here))
            heavy = copies and any(source.role == "weight" for source in crossing)
            if part and (here != current or heavy):
                yield current, part
                part, copies = [], 0
            current = here
            part.append(node)
            new = {(source, here) for source in crossing} - known
            known |= new
            copies += len(new)
        if part:
            yield current, part

    def _crossing(self, node: Tensor, backend: str) -> Iterator[Tensor]:
        """Sources of a node in memory of another back end; an op runs where the tensor that it writes lies."""
        if node.op not in VIEW_OPS:
            yield from (source for source in node.others if self._backend(source) != backend)

    def _copy(self, backend: str, nodes: list[Tensor]) -> list[Tensor]:
        copied = []
        inside = set(nodes)
        for node in nodes:
            for source in self._crossing(node, backend):
                if (source, backend) in self.copies:
                    continue
                for view in self._views_of(source, inside):
                    self._renew(view, backend)
                ne = source.ne
                copy = Tensor(f"{backend}#{source.name}#0", source.type, ne, packed(source.type, ne), "CONT")
                copy.flags, copy.src = COMPUTE, [self.new.get(source, source)]
                self.copies[source, backend] = copy, len(self.new)
                self.made.nodes.append(copy)
                copied.append(source)
        return copied

    def _views_of(self, source: Tensor, inside: set[Tensor]) -> list[Tensor]:
        """Views in this split that a copy at its start is read through, the root's first."""
        chain = []
        one: Tensor | None = source
        while one is not None and one in inside and is_noop(one) and one not in self.new:
            chain.append(one)
            one = one.src[0] if one.src else None
        return chain[::-1]

    def _renew(self, node: Tensor, backend: str) -> None:
        if node in self.new:
            return
        made = self.new[node] = replace(node, data=None)
        view = None if node.view_src is None else self.new.get(node.view_src, node.view_src)
        crossing = set(self._crossing(node, backend))
        made.src = [
            None
            if source is None
            else made
            if source is node
            else self.copies[source, backend][0]
            if source in crossing
            else self.new.get(source, source)
            for source in node.src
        ]
        made.view_src = view
        self.made.nodes.append(made)

    def _stale(self, node: Tensor, backend: str) -> Iterator[StaleCopy]:
        for source in dict.fromkeys(self._crossing(node, backend)):
            since = self.copies[source, backend][1]
            for write in list(self.new)[since:]:
                shared = sum(
                    overlap(effect.region, source.region, "exact", source.root.nbytes)
                    for effect in effects(write)
                    if effect.writes and effect.tensor.root is source.root
                )
                if shared:
                    yield StaleCopy(source, backend, write, node, shared)
