"""What runs: values, nodes and graphs, independent of protobuf; graphs inside a model, and fixed lengths."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from kvviz import public_trace
from kvviz.errors import InputError
from kvviz.graph.loading.external import NO_FILE, ModelFile
from kvviz.other_names import not_there
from kvviz.text.companions import Companions

Dim = int | str | None
GraphPath = tuple[tuple[int, str], ...]
"""Where a graph lies inside its model: ``()`` is the main graph; a body adds the index of its node and the attribute:
``((7, "then_branch"),)``. The body of a local function counts as attribute ``"function"``."""

MAX_NODES = 1_000_000
"""Maximum nodes of a model with every function call expanded. Larger indices are those of copies: see `Node.index`."""


@dataclass(frozen=True, slots=True)
class Value:
    """A graph input or output as the model declares it."""

    name: str
    dtype: np.dtype | None = None  # None for sequences, optionals, or where the model does not say
    shape: tuple[Dim, ...] | None = None  # lengths, names of symbolic dimensions, or None; None for an unknown rank
    kind: str = "tensor"  # ``"tensor"``, ``"sequence"``, ``"optional"`` or ``"map"``


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One op of a graph: its operator, what it reads and makes, its attributes and bodies."""

    name: str  # the model's, or that of the first output; never empty, unique in its graph
    op_type: str
    domain: str  # the default domain is the empty string
    inputs: tuple[str, ...]  # value names by position; the empty string stands for an absent one
    outputs: tuple[str, ...]
    # position in the model's own node list (Constant nodes counted); a copy that a runtime adds has the position of its
    # original plus a multiple of ``MAX_NODES``
    index: int
    attributes: Mapping[str, Any] = field(default_factory=dict)
    subgraphs: Mapping[str, Graph] = field(default_factory=dict)  # by attribute name
    captures: tuple[str, ...] = ()  # outer values that the subgraphs (at any depth) read, in order of first use
    opset: int = 1  # version of ``domain`` that this node was written for
    function: Graph | None = None  # the body, where the operator is a model-local function
    scope: tuple[str, ...] = ()  # module path, outermost first: ``("model", "layers.0", "self_attn")``

    def given(self, place: int) -> str:
        """The input at a position; the empty string if it is absent."""
        return self.inputs[place] if place < len(self.inputs) else ""

    @property
    def bodies(self) -> tuple[Graph, ...]:
        """Its subgraphs, and the body of its function."""
        return (*self.subgraphs.values(), *([] if self.function is None else [self.function]))

    @property
    def qualified_op(self) -> str:
        """Operator, with its domain if that is not ONNX's own, e.g. ``com.microsoft.FastGelu``."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph or subgraph: inputs, weights, nodes in the model's order, outputs."""

    name: str
    inputs: tuple[Value, ...]  # those that are not weights
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]  # topologically sorted; Constant nodes left out (they are weights)
    # initializers and Constant nodes; arrays are read-only and may be loaded on first use
    weights: Mapping[str, np.ndarray]
    opsets: Mapping[str, int] = field(default_factory=dict)  # domain to version
    value_info: Mapping[str, Value] = field(default_factory=dict)  # what the model declares about inner values
    source: str = ""  # where it was loaded from, for messages (a path is quoted and may be shortened)
    folder: str | None = None  # absolute path of the model file's folder
    # the model, or (in a subgraph or function body) its graph, for kernels of the reference evaluator
    proto: Any = None
    # weights that are also inputs, so that a caller may give another value (IR 3 lists all like this)
    overridable: tuple[Value, ...] = ()
    captures: tuple[str, ...] = ()  # in a subgraph: outer values that it reads, at any depth, in order of first use
    path: GraphPath = ()  # where it lies inside its model
    file: ModelFile = NO_FILE  # of a main graph: what it was read from
    companions: Companions | None = None  # of a main graph that was read from a path: what lies beside it
    # of a graph whose nodes run in the order in which they are listed: values that were given and are made again
    spelled: frozenset[str] | None = None

    @cached_property
    def by_index(self) -> dict[int, Node]:
        """Nodes by their position in the model's own list."""
        return {node.index: node for node in self.nodes}

    @cached_property
    def derived(self) -> dict[Any, Graph]:
        """Graphs made from this one, by the change; they are kept as long as it lives."""
        return {}

    @cached_property
    def producers(self) -> dict[str, Node]:
        """Value name to the node that makes it."""
        return {name: node for node in self.nodes for name in node.outputs if name}

    @cached_property
    def output_places(self) -> dict[str, int]:
        """Value name to its place among the outputs of the node that makes it."""
        return {name: place for node in self.nodes for place, name in enumerate(node.outputs) if name}

    @cached_property
    def consumers(self) -> dict[str, tuple[Node, ...]]:
        """Value name to the nodes that read it, as an input or as a capture, each node once."""
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys((*node.inputs, *node.captures)):
                if name:
                    readers.setdefault(name, []).append(node)
        return {name: tuple(nodes) for name, nodes in readers.items()}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return not_there(self, name)

    def __getstate__(self) -> dict[str, Any]:
        """Pickled with its weights, and without derived data."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def walk(self) -> Iterator[tuple[Graph, Node]]:
        """Every node of this graph and of all its subgraphs and functions, outermost first."""
        for node in self.nodes:
            yield self, node
            for inner in node.bodies:
                yield from inner.walk()

    def chat(self, text: str, system: str | None = None) -> str:
        """The prompt for an answer to a text, from the chat template beside the model.

        >>> kvviz.decode(graph, graph.chat("What is the capital of France?"), 24)  # doctest: +SKIP

        Raises
        ------
        KvvizError
            If no tokenizer or no chat template lies beside the model.
        """
        if self.companions is None:
            raise InputError("the model was not read from a file, so no chat template lies beside it")
        return self.companions.chat(text, system)

    to_graphviz = public_trace.graph_drawing
    _repr_html_ = public_trace.graph_card

    def __repr__(self) -> str:
        return (
            f"<Graph {self.name!r}: {len(self.nodes)} nodes, {len(self.weights)} weights, "
            f"{len(self.inputs)} inputs, {len(self.outputs)} outputs>"
        )


Dims = tuple[tuple[str, int, int], ...]
"""(input, axis, length) of each."""


def with_dims(graph: Graph, dims: Dims) -> Graph:
    """The model with these lengths; the same object each time. Its bodies are graphs of their own, because what is
    known of a body follows from the model around it."""
    key = ("dims", dims)
    if key not in graph.derived:
        lengths = {(name, axis): length for name, axis, length in dims}
        inputs = []
        for value in graph.inputs:
            shape = [lengths.get((value.name, axis), dim) for axis, dim in enumerate(value.shape or ())]
            inputs.append(replace(value, shape=None if value.shape is None else tuple(shape)))
        graph.derived[key] = replace(_anew(graph, {}), inputs=tuple(inputs))
    return graph.derived[key]


def _anew(graph: Graph, made: dict[int, Graph]) -> Graph:
    if id(graph) not in made:
        nodes = []
        for node in graph.nodes:
            subgraphs = {name: _anew(body, made) for name, body in node.subgraphs.items()}
            function = None if node.function is None else _anew(node.function, made)
            nodes.append(replace(node, subgraphs=subgraphs, function=function) if node.bodies else node)
        made[id(graph)] = replace(graph, nodes=tuple(nodes))
    return made[id(graph)]


def weight_layout(graph: Graph, name: str) -> Value:
    declared = getattr(graph.weights, "declared", None)
    if declared is not None:
        return declared(name)
    array = graph.weights[name]
    return Value(name, array.dtype, array.shape)


def graphs_of(graph: Graph) -> Iterator[Graph]:
    yield graph
    for node in graph.nodes:
        for body in node.bodies:
            yield from graphs_of(body)


def path_of(key: GraphPath) -> str:
    """A path for people: ``the main graph``, ``then_branch of node 7``."""
    if not key:
        return "the main graph"
    return ", in ".join(f"{attribute} of node {index}" for index, attribute in reversed(key))


def fingerprint(graph: Graph) -> str:
    """Digest of the nodes of a model, at any depth: operators and output names. Copies do not count."""
    digest = hashlib.blake2b(digest_size=8)
    for inner in graphs_of(graph):
        for node in (node for node in inner.nodes if node.index < MAX_NODES):
            digest.update(
                repr((inner.path, node.index, node.qualified_op, node.outputs)).encode("utf-8", "surrogatepass")
            )
    return digest.hexdigest()
