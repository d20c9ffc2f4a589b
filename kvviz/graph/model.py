"""What runs: values, nodes and graphs, with no trace of protobuf.

Invariant: a ``Graph`` never changes after it was built; every name in ``Node.inputs`` is an input,
an initializer, a node output of the same graph, or (in a subgraph) a capture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from kvviz.graph.data_files import DataFiles

Dim = int | str | None


@dataclass(frozen=True, slots=True)
class Value:
    """A graph input or output as the model declares it.

    Attributes
    ----------
    name : str
        Name of the edge.
    dtype : numpy.dtype or None
        Element type; None for sequences, optionals, or where the model does not say.
    shape : tuple of int, str or None, or None
        One entry a dimension: a length, the name of a symbolic dimension, or unknown.
        None when the rank itself is unknown.
    kind : str
        ``"tensor"``, ``"sequence"``, ``"optional"`` or ``"map"``.
    """

    name: str
    dtype: np.dtype | None = None
    shape: tuple[Dim, ...] | None = None
    kind: str = "tensor"


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operator call.

    Attributes
    ----------
    name : str
        The model's node name, or its first output's name; never empty, unique in its graph.
    op_type, domain : str
        The operator. The default domain is the empty string.
    inputs, outputs : tuple of str
        Value names by position; the empty string stands for an absent optional one.
    index : int
        Position in the model's own node list of this graph (Constant nodes counted).
    attributes : mapping
        ONNX attribute name to a Python value (int, float, str, ndarray, tuple of these).
    subgraphs : mapping
        Attribute name to ``Graph`` (``then_branch``, ``else_branch``, ``body``).
    captures : tuple of str
        Outer values that the subgraphs (at any depth) read, each once, in order of first use.
    opset : int
        Version of ``domain`` that this node was written for.
    function : Graph or None
        The body, where the operator is a model-local function.
    scope : tuple of str
        Module path, outermost first, e.g. ``("model", "layers.0", "self_attn")``.
    """

    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    index: int
    attributes: Mapping[str, Any] = field(default_factory=dict)
    subgraphs: Mapping[str, Graph] = field(default_factory=dict)
    captures: tuple[str, ...] = ()
    opset: int = 1
    function: Graph | None = None
    scope: tuple[str, ...] = ()

    @property
    def qualified_op(self) -> str:
        """Operator with its domain where that is not ONNX's own, e.g. ``com.microsoft.FastGelu``."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph or subgraph: inputs, weights, nodes in the model's order, outputs.

    Attributes
    ----------
    name : str
        The model's name for it.
    inputs, outputs : tuple of Value
        Declared inputs that are not weights, and outputs, in order.
    nodes : tuple of Node
        In the model's order, Constant nodes left out (they are weights); topologically sorted.
    weights : mapping of str to ndarray
        Initializers and Constant nodes; arrays are read-only and may be loaded on first use.
    opsets : mapping of str to int
        Domain to version.
    value_info : mapping of str to Value
        What the model declares about inner values.
    source : str
        Where it was loaded from, for messages (a path is quoted and may be shortened).
    folder : str or None
        Absolute path of the folder that the model file is in; None where it did not come from a file.
    files : DataFiles or None
        The files that its weights lie in outside of the model file.
    proto : onnx.ModelProto, onnx.GraphProto or None
        The model itself, or (in a subgraph or function body) its graph, kept for kernels of the reference evaluator.
    overridable : tuple of Value
        Weights that are also declared as inputs, so that a caller may give another value (IR 3 and older
        list every weight like this).
    captures : tuple of str
        In a subgraph: outer values that this one reads, at any depth, in order of first use.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    weights: Mapping[str, np.ndarray]
    opsets: Mapping[str, int] = field(default_factory=dict)
    value_info: Mapping[str, Value] = field(default_factory=dict)
    source: str = ""
    folder: str | None = None
    files: DataFiles | None = None
    proto: Any = None
    overridable: tuple[Value, ...] = ()
    captures: tuple[str, ...] = ()

    @cached_property
    def by_index(self) -> dict[int, Node]:
        """Nodes by their place in the model's own list."""
        return {node.index: node for node in self.nodes}

    @cached_property
    def derived(self) -> dict[Any, Graph]:
        """Graphs that were made from this one, by what was changed; they are kept as long as it lives."""
        return {}

    @cached_property
    def producers(self) -> dict[str, Node]:
        """Value name to the node that makes it."""
        return {name: node for node in self.nodes for name in node.outputs if name}

    @cached_property
    def consumers(self) -> dict[str, tuple[Node, ...]]:
        """Value name to the nodes that read it, as an input or as a capture, each node once."""
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys((*node.inputs, *node.captures)):
                if name:
                    readers.setdefault(name, []).append(node)
        return {name: tuple(nodes) for name, nodes in readers.items()}

    def walk(self) -> Iterator[tuple[Graph, Node]]:
        """Every node of this graph and of all its subgraphs and functions, outermost first."""
        for node in self.nodes:
            yield self, node
            for inner in (*node.subgraphs.values(), *((node.function,) if node.function else ())):
                yield from inner.walk()

    def __repr__(self) -> str:
        return (
            f"<Graph {self.name!r}: {len(self.nodes)} nodes, {len(self.weights)} weights, "
            f"{len(self.inputs)} inputs, {len(self.outputs)} outputs>"
        )
