"""Compute graphs, built or recorded, as a trace: a run of each, its nodes as ops in the order of the list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kvviz.ggml.compute_graph import ComputeGraph
from kvviz.ggml.op_effects import Effect, effects
from kvviz.ggml.tensor import COMPUTE, Tensor
from kvviz.trace.recording import Trace
from kvviz.trace.writer import Writer

_BOUND = {"weight": "weight", "state": "donated"}
_ORIGIN = {"weight": "weights", "state": "donated"}


def to_trace(
    graphs: Sequence[ComputeGraph],
    title: str,
    *,
    about: str = "the order of the node list",
    arrays: Mapping[Tensor, np.ndarray] | None = None,
    labels: Iterable[str] = (),
    values: int | str = 0,
) -> Trace:
    """A trace of graphs that were executed one after the other.

    Parameters
    ----------
    graphs : sequence of ComputeGraph
    about : str
        One sentence on who decided where outputs lie.
    arrays : mapping of Tensor to ndarray, optional
        What nodes held when they had run.
    labels : iterable of str
        Of each run.
    values : int or str
        Bytes for summaries of values, as in `Writer`.
    """
    writing = _Writing(Writer(title, "ggml", about, values=values), arrays or {})
    texts = [*labels, *[""] * len(graphs)]
    last: list[int] = []
    for graph, text in zip(graphs, texts):
        last = writing.run(graph, text)
    return writing.writer.finish(last)


class _Writing:
    """A trace while it is written: which value and which storage stand for a tensor."""

    def __init__(self, writer: Writer, arrays: Mapping[Tensor, np.ndarray]) -> None:
        self.writer = writer
        self.arrays = arrays
        self.values: dict[Tensor, int] = {}
        self.storages: dict[Tensor, int] = {}

    def run(self, graph: ComputeGraph, text: str) -> list[int]:
        """Write a graph as a run; gives the values that nobody in it uses."""
        self.writer.begin_run(text)
        used: set[Tensor] = set()
        for node in graph.nodes:
            if node.flags & COMPUTE or not any(other.flags & COMPUTE for other in graph.nodes):
                self._op(node)
                used.update(source for source in node.src if source is not None and source is not node)
        return [self.values[node] for node in graph.nodes if node in self.values and node not in used]

    def _op(self, node: Tensor) -> None:
        sources = [source for source in node.src if source is not None and source is not node]
        inputs = [self._value(source) for source in sources]
        touched = effects(node)
        for effect in touched:
            self._value(effect.tensor)
        reads = [self.values[effect.tensor] for effect in touched if not effect.writes]
        writes = [self.values[effect.tensor] for effect in touched if effect.writes]
        self.writer.op(
            node.op if not node.desc else f"{node.op}({node.desc})",
            inputs,
            [self._value(node)],
            name=node.name,
            reads=reads,
            writes=writes,
            rows=_rows(touched, self.values),
            copied=_copied(node),
            arrays=[self.arrays.get(node)],
        )

    def _value(self, tensor: Tensor) -> int:
        storage = self._storage(tensor.root)
        if tensor not in self.values:
            region = tensor.region
            self.values[tensor] = self.writer.value(
                tensor.name, region.shape, region.dtype, storage, region.offset, region.strides
            )
            if tensor.op == "NONE" and tensor.view_src is None:
                self.writer.bind(self.values[tensor], _BOUND.get(tensor.role, "borrowed"))
        return self.values[tensor]

    def _storage(self, root: Tensor) -> int:
        if root not in self.storages:
            origin = _ORIGIN.get(root.role, "caller" if root.op == "NONE" else "run")
            self.storages[root] = self.writer.storage(
                root.nbytes, origin=origin, arena=root.buffer, address=root.address
            )
            if root.op == "NONE":
                self._value(root)  # what a view lies in is there before, and has a name
        return self.storages[root]


def _rows(touched: Sequence[Effect], values: Mapping[Tensor, int]) -> dict[int, Sequence[int]]:
    return {values[effect.tensor]: effect.rows for effect in touched if effect.rows is not None}


def _copied(node: Tensor) -> int:
    """Bytes that an op merely moves."""
    if node.op not in ("CPY", "CONT", "DUP", "SET_ROWS", "GET_ROWS"):
        return 0
    moved: Any = node.src[0] if node.op in ("SET_ROWS", "CPY") else node
    return int(np.prod(moved.ne)) * (node.nb[0]) if node.nb[0] else 0
