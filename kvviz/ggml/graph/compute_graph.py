"""The list of nodes in execution order, and how ``ggml_build_forward_expand`` builds it.

Source: ``ggml_visit_parents_graph`` of ggml (``src/ggml.c``, snapshot d99724f).
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import TypeVar

from kvviz import public_trace
from kvviz.ggml.graph.ggml_kernels import KERNELS
from kvviz.ggml.graph.op_effects import is_noop
from kvviz.ggml.graph.tensor import COMPUTE, PARAM, Tensor
from kvviz.trace.recording import Trace

_Graph = TypeVar("_Graph", bound="ComputeGraph")


class ComputeGraph:
    """A ``ggml_cgraph``.

    Attributes
    ----------
    nodes, leafs : list of Tensor
        Nodes in execution order, and tensors that exist before.
    right_to_left : bool
        Visit sources from the last to the first.
    title : str
    meant : list of Tensor or None
        The nodes in the order of the original list, if this graph has another order.
    """

    def __init__(self, title: str = "ggml graph", right_to_left: bool = False) -> None:
        self.title = title
        self.right_to_left = right_to_left
        self.nodes: list[Tensor] = []
        self.leafs: list[Tensor] = []
        self.meant: list[Tensor] | None = None
        self._visited: set[Tensor] = set()

    def expand(self, tensor: Tensor, compute: bool = True) -> ComputeGraph:
        """Append a tensor after everything that it is computed from (``ggml_build_forward_expand``); returns the graph.

        Sources are visited first, each once; nodes that are in the graph already keep their places. The root of a view
        is no source, so only the order of the calls places a write before a read through another view.

        Parameters
        ----------
        compute : bool
            Set the COMPUTE flag; back ends skip nodes without it (``ggml_build_forward_order`` does not set it).
        """
        # A recursion without its depth limit: (tensor, which source is next).
        path: list[tuple[Tensor, int]] = []

        def enter(one: Tensor) -> None:
            if compute:
                self._flag(one)
            if one not in self._visited:
                self._visited.add(one)
                path.append((one, 0))

        enter(tensor)
        while path:
            one, at = path.pop()
            if at == len(one.src):
                self._append(one)
                continue
            path.append((one, at + 1))
            source = one.src[len(one.src) - 1 - at if self.right_to_left else at]
            if source is not None:
                enter(source)
        return self

    @property
    def executed(self) -> list[Tensor]:
        """The nodes that back ends do not skip, including views; all nodes if none is flagged (before 2026)."""
        flagged = [node for node in self.nodes if node.flags & COMPUTE]
        return flagged or list(self.nodes)

    @property
    def trace(self) -> Trace:
        """The graph as a recording of its list, whether it has been run or not: what is touched, without values."""
        return public_trace.listed_trace(self)

    @property
    def cannot_run(self) -> str:
        """Why the graph cannot be run; empty if it can."""
        for node in self.executed:
            if not is_noop(node) and node.op not in KERNELS:
                return f"there is no kernel for {node.op} {node.name!r}"
            for source in node.sources:
                if source.root.op == "NONE" and source.root.data is None:
                    return f"{source.root.name!r} has no data"
        return ""

    session = public_trace.graph_session
    hidden = public_trace.hidden_pairs

    def _flag(self, tensor: Tensor) -> None:
        """Flag a tensor, and its unflagged predecessors that an earlier call placed."""
        ahead = [tensor]
        while ahead:
            one = ahead.pop()
            if one.op != "NONE" and not one.flags & COMPUTE:
                one.flags |= COMPUTE
                if one in self._visited:
                    ahead += one.sources

    def _append(self, one: Tensor) -> None:
        if one.op == "NONE" and not one.flags & PARAM:
            one.name = one.name or f"leaf_{len(self.leafs)}"
            self.leafs.append(one)
        else:
            one.name = one.name or f"node_{len(self.nodes)}"
            self.nodes.append(one)

    def reordered(self: _Graph, nodes: Iterable[Tensor]) -> _Graph:
        """A graph of the same tensors with another execution order; `kvviz.hazards` reports what it breaks."""
        other = copy(self)
        other.__dict__.pop("trace", None)  # a recorded graph keeps it
        other.nodes, other.leafs, other._visited = list(nodes), list(self.leafs), set(self._visited)
        other.meant = self.nodes if self.meant is None else self.meant
        return other
