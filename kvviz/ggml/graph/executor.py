"""Running graphs on NumPy: node by node in the order of the list, each step written to the log when it has run.

Source: ``ggml_graph_compute_thread`` of ggml (``ggml-cpu/ggml-cpu.c``, version 0.25.3): the list is executed from its
first node to its last, without a look at its edges. Views do nothing, nodes without the COMPUTE flag are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from kvviz.errors import KvvizError
from kvviz.ggml.graph.attention_kernels import KERNELS
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.graph_trace import GraphWriter
from kvviz.ggml.graph.memory_plan import MemoryPlan, place_data
from kvviz.ggml.graph.op_effects import is_noop
from kvviz.ggml.graph.tensor import Tensor, described
from kvviz.ggml.graph.tensor_data import RUN_TYPES, allocate, note_values, read, tensor_get
from kvviz.trace.recording import Trace


class Executor:
    """Runs graphs and writes down what they do. What several graphs share, such as a cache, stays between them.

    Examples
    --------
    >>> from kvviz.ggml.graph.context import Context
    >>> ctx = Context()
    >>> x = ctx.new_tensor("f32", 1, name="x", data=3)
    >>> graph = ctx.new_graph().expand(ctx.add_inplace(x, x))
    >>> executor = Executor("twice")
    >>> executor.run(graph, "first"), executor.run(graph, "second")
    (1, 1)
    >>> executor.finish().outputs["x (view)"]
    array([12.], dtype=float32)
    """

    def __init__(
        self,
        title: str,
        *,
        values: int | str = "1 MB",
        plans: Mapping[ComputeGraph, MemoryPlan] | None = None,
        about: str = "NumPy, in the order of the node list",
    ) -> None:
        self.title = title
        self.writing = GraphWriter(title, about, values, plans)
        self._plans = plans or {}
        self._ahead: list[Tensor] = []  # nodes of this graph that have not run, the next one last

    def begin(self, graph: ComputeGraph, text: str = "", order: Sequence[Tensor] | None = None) -> None:
        """Begin a graph, without running a node of it.

        ``order``: its executed nodes in the order in which they shall run. All are then written down beforehand.
        """
        if not graph.nodes:
            raise KvvizError(f"graph {graph.title!r} has no nodes; expand it with the tensors to compute")
        if graph in self._plans:
            place_data(self._plans[graph])
        self.writing.begin(graph, text, self._seen, order is not None)
        self._ahead = list(graph.executed if order is None else order)[::-1]

    @property
    def next_node(self) -> Tensor | None:
        """What runs next; None where all has run."""
        return self._ahead[-1] if self._ahead else None

    @property
    def ahead(self) -> list[Tensor]:
        """What has not run, the next one first."""
        return self._ahead[::-1]

    def step(self, node: Tensor | None = None, listed: bool = False) -> Tensor | None:
        """Run one of the nodes ahead, by default the next one, and write it to the log; None where all has run.

        ``listed``: only write it down, as of a recording, which has no data.
        """
        if not self._ahead:
            return None
        node = self._ahead[-1] if node is None else node
        if not listed and not is_noop(node):
            self._execute(node)
        if node is self._ahead[-1]:
            self._ahead.pop()
        else:
            self._ahead.remove(node)
        self.writing.op(node, self._seen(node))
        return node

    def run(self, graph: ComputeGraph, text: str = "", upto: int | None = None) -> int:
        """Run a graph, or its first ``upto`` nodes; gives how many."""
        self.begin(graph, text)
        count = 0
        while (upto is None or count < upto) and self.step() is not None:
            count += 1
        return count

    def finish(self) -> Trace:
        """The recording of all that has run; nothing more can be run with this executor."""
        self._ahead = []
        return self.writing.finish(lambda tensor: tensor_get(tensor) if has_numbers(tensor) else None)

    def _seen(self, tensor: Tensor) -> np.ndarray | None:
        """What a tensor holds, where summaries of it are kept."""
        if not self.writing.writer.keeps_values or not has_numbers(tensor):
            return None
        return read(tensor).reshape(tensor.region.shape)

    def _execute(self, node: Tensor) -> None:
        kernel = KERNELS.get(node.op)
        if kernel is None:
            raise KvvizError(f"there is no kernel for {node.op} ({described(node)})")
        for source in node.src:
            if source is not None and source is not node and source.root.data is None:
                raise KvvizError(
                    f"{node.op} {described(node)} reads {described(source)}, which was not computed before"
                )
        allocate(node.root)
        with np.errstate(all="ignore"):
            kernel(node)
        note_values(node)


def has_numbers(tensor: Tensor) -> bool:
    """Whether there is something to look at."""
    return 0 not in tensor.ne and tensor.root.data is not None and tensor.type in RUN_TYPES


def saved_state(graphs: Iterable[ComputeGraph]) -> dict[Tensor, np.ndarray]:
    """What the leafs of graphs hold now: the state to `restore_state` before another order is tried."""
    leafs = {node.root for graph in graphs for node in (*graph.leafs, *graph.nodes)}
    return {leaf: leaf.data.copy() for leaf in leafs if leaf.op == "NONE" and leaf.data is not None}


def restore_state(state: Mapping[Tensor, np.ndarray]) -> None:
    """Give leafs back what they held."""
    for leaf, data in state.items():
        assert leaf.data is not None
        leaf.data[...] = data
        note_values(leaf)
