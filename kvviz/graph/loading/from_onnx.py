"""From protobuf to ``Graph``: subgraphs and functions unfolded, constants set apart, nodes in running order.

Protobuf is read directly: onnx-ir 1.1 takes a sparse initializer for an input that nothing gives.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import onnx

from kvviz.errors import GraphError, LimitError, LoadError, name_text, quoted
from kvviz.graph.loading.external import Source
from kvviz.graph.loading.functions import FunctionKey, body_of_call, call_key, extents, function_key, plain_domain
from kvviz.graph.loading.tensors import Weights, attribute, constant, read_sparse, read_tensor, value_type
from kvviz.graph.model import MAX_NODES, Graph, GraphPath, Node, Value
from kvviz.graph.module_paths import Scope, module_paths
from kvviz.graph.topological_order import find_cycle, topological

_A = onnx.AttributeProto

MAX_NESTING = 64
"""Subgraphs and function calls within each other; protobuf itself stops at about 30 subgraphs in a file."""

MAX_CALLS = 100_000
"""Function calls spelled out: each costs a body of its own, some 0.2 ms of reading, however small it is."""

MAX_COPIED = 1 << 30
"""Bytes of all those bodies, whose tensors are copied for each."""


class Reader:
    """Turns the graphs of one model into ``Graph`` objects."""

    def __init__(self, source: Source, functions: Iterable[Any] = ()) -> None:
        self.source = source
        self.functions: dict[FunctionKey, Any] = {function_key(f): f for f in functions}
        self._copied = 0

    def main(self, model: Any, opsets: dict[str, int]) -> Graph:
        """Read a model's main graph and all that it contains; ``Graph.proto`` holds the model."""
        self._check_extent(model.graph)
        return replace(self._graph(model.graph, opsets, (), model), file=self.source.file)

    def _graph(
        self,
        proto: Any,
        opsets: dict[str, int],
        outer: tuple[frozenset[str], ...] = (),
        whole: Any = None,
        path: GraphPath = (),
    ) -> Graph:
        """Read one graph; ``outer`` has the names that each enclosing graph defines, outermost first."""
        where = f"graph {quoted(name_text(proto.name))} of {self.source.label}"
        weights = self._weights(proto, where)
        declared = self._declared(proto, where)
        drafts = self._drafts(proto, weights, where)
        own = own_names(where, [v for v in declared if v.name not in weights], weights, drafts)
        for node in drafts:
            self._fill(node, opsets, (*outer, own), path)
        outputs = tuple(value_type(name_text(info.name), info.type, self.source) for info in proto.output)
        captures = free_names(where, drafts, outputs, own, frozenset().union(*outer))
        return Graph(
            name=name_text(proto.name),
            inputs=tuple(v for v in declared if v.name not in weights),
            outputs=outputs,
            nodes=self._nodes_of(in_running_order(where, drafts), opsets),
            weights=weights,
            opsets=opsets,
            value_info={
                name_text(v.name): value_type(name_text(v.name), v.type, self.source) for v in proto.value_info
            },
            source=self.source.label,
            folder=None if self.source.folder is None else os.path.abspath(self.source.folder),
            files=self.source.files,
            proto=whole or proto,
            overridable=tuple(v for v in declared if v.name in weights),
            captures=captures,
            path=path,
        )

    def _check_extent(self, proto: Any) -> None:
        """Refuse what is too large to be built, before any of it is."""
        whole, parts = extents(proto, self.functions, self.source.label)
        if whole.depth > MAX_NESTING:
            raise LoadError(f"{self.source.label} nests subgraphs and function calls more than {MAX_NESTING} deep")
        for what, most in (("nodes", MAX_NODES), ("calls", MAX_CALLS)):
            amount = getattr(whole, what)
            if amount > most:
                # The first function that is too large on its own is where to look.
                large = ((name, getattr(part, what)) for (_, name, _), part in parts.items())
                culprits = [f"; function {quoted(name)} alone has {_number(own)}" for name, own in large if own > most]
                raise LimitError(
                    f"{self.source.label} has {_number(amount)} {what} once every call of its functions is spelled "
                    f"out, more than the {most:,} {what} that kvviz reads{''.join(culprits[:1])}"
                )

    def _weights(self, proto: Any, where: str) -> Weights:
        weights = Weights()
        dense = [(name_text(t.name), t, read_tensor) for t in proto.initializer]
        sparse = [(name_text(t.values.name), t, read_sparse) for t in proto.sparse_initializer]
        for name, tensor, read in [*dense, *sparse]:
            if not name or name in weights:
                raise GraphError(
                    f"weight {quoted(name)} occurs twice in {where}" if name else f"{where} has a nameless weight"
                )
            weights.tensors[name] = read(tensor, self.source)
        return weights

    def _declared(self, proto: Any, where: str) -> list[Value]:
        values: dict[str, Value] = {}
        for info in proto.input:
            name = name_text(info.name)
            if not name or name in values:
                raise GraphError(
                    f"input {quoted(name)} occurs twice in {where}" if name else f"{where} has a nameless input"
                )
            values[name] = value_type(name, info.type, self.source)
        return list(values.values())

    def _drafts(self, proto: Any, weights: Weights, where: str) -> list[Draft]:
        """The nodes that run; Constant nodes become weights."""
        drafts = []
        for index, node in enumerate(proto.node):
            if node.op_type != "Constant" or plain_domain(node.domain):
                drafts.append(draft(node, index))
                continue
            for name in filter(None, map(name_text, node.output)):
                if name in weights:
                    raise GraphError(
                        f"{quoted(name)} is made twice in {where}: by a Constant node and by another weight"
                    )
                weights.tensors[name] = constant(node, name, self.source)
        return drafts

    def _fill(self, node: Draft, opsets: dict[str, int], visible: tuple[frozenset[str], ...], path: GraphPath) -> None:
        for proto in node.proto.attribute:
            name = name_text(proto.name)
            if proto.ref_attr_name:
                raise GraphError(f"{node.label} of {self.source.label} uses a function's attribute outside a function")
            if proto.type == _A.GRAPH:
                node.subgraphs[name] = self._graph(proto.g, opsets, visible, None, (*path, (node.index, name)))
            elif proto.type == _A.GRAPHS:
                for i, graph in enumerate(proto.graphs):
                    at = (*path, (node.index, f"{name}[{i}]"))
                    node.subgraphs[f"{name}[{i}]"] = self._graph(graph, opsets, visible, None, at)
            else:
                node.attributes[name] = attribute(proto, node.label, self.source)
        node.captures = tuple(dict.fromkeys(name for graph in node.subgraphs.values() for name in graph.captures))
        function = self.functions.get(call_key(node.proto))
        if function is not None:
            node.function = self._body(node, function, opsets, (*path, (node.index, "function")))

    def _body(self, node: Draft, function: Any, opsets: dict[str, int], path: GraphPath) -> Graph:
        key = function_key(function)
        for kind, formal, actual in (("input", function.input, node.inputs), ("output", function.output, node.outputs)):
            if len(actual) > len(formal):
                raise GraphError(
                    f"{node.label} of {self.source.label} has {len(actual)} {kind}s, "
                    f"but the function it calls has {len(formal)}"
                )
        try:
            proto = body_of_call(function, node.proto)
            self._copied += proto.ByteSize()
        except Exception as error:  # protobuf copies by writing and reading, and reads only about 100 levels
            raise LoadError(
                f"function {quoted(key[1])} of {self.source.label} nests its subgraphs too deeply"
            ) from error
        if self._copied > MAX_COPIED:
            raise LimitError(
                f"the functions of {self.source.label} take more than {MAX_COPIED:,} bytes once every call is spelled "
                f"out; {node.label} calls {quoted(key[1])}: give large constants to it as inputs"
            )
        return self._graph(proto, {**opsets, **read_opsets(function.opset_import)}, path=path)

    def _nodes_of(self, drafts: list[Draft], opsets: dict[str, int]) -> tuple[Node, ...]:
        names = unique_names(drafts)
        stated = [metadata(node.proto) for node in drafts]
        scopes = module_paths(names, [node.inputs for node in drafts], [node.outputs for node in drafts], stated)
        return tuple(self._node(node, name, scope, opsets) for node, name, scope in zip(drafts, names, scopes))

    def _node(self, node: Draft, name: str, scope: Scope, opsets: dict[str, int]) -> Node:
        domain = plain_domain(node.proto.domain)
        if not domain and "" not in opsets:
            raise LoadError(
                f"{self.source.label} does not say which version of the ONNX operators it uses (no opset import), "
                f"but {node.label} is one of them; the file is damaged, export it again"
            )
        return Node(
            name=name,
            op_type=node.op_type,
            domain=domain,
            inputs=node.inputs,
            outputs=node.outputs,
            index=node.index,
            attributes=node.attributes,
            subgraphs=node.subgraphs,
            captures=node.captures,
            opset=opsets.get(domain, 1),
            function=node.function,
            scope=scope,
        )


def read_opsets(imports: Iterable[Any]) -> dict[str, int]:
    return {plain_domain(entry.domain): int(entry.version) for entry in imports}


def _number(amount: int) -> str:
    return f"{amount:,}" if amount < 10**15 else f"about 10^{len(str(amount)) - 1}"


def graph_proto(graph: Graph) -> Any:
    """The GraphProto behind a graph, with the attribute references of a function body filled in."""
    return graph.proto.graph if isinstance(graph.proto, onnx.ModelProto) else graph.proto


def node_proto(graph: Graph, node: Node) -> Any:
    return graph_proto(graph).node[node.index % MAX_NODES]


# -- drafts -----------------------------------------------------------------------------------------------------------
# Nodes on their way from protobuf to ``Graph``: who makes which name, what comes from outside, who runs when.


@dataclass(slots=True)
class Draft:
    """A node: everything but its final name, scope and place."""

    proto: Any
    index: int
    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    subgraphs: dict[str, Graph] = field(default_factory=dict)
    captures: tuple[str, ...] = ()
    function: Graph | None = None

    @property
    def label(self) -> str:
        return f"node {quoted(self.name or self.first_output)} ({quoted(self.op_type)[1:-1]})"

    @property
    def first_output(self) -> str:
        """The first output that is there, or the empty string."""
        return next((name for name in self.outputs if name), "")


def draft(proto: Any, index: int) -> Draft:
    inputs, outputs = tuple(map(name_text, proto.input)), tuple(map(name_text, proto.output))
    return Draft(proto, index, name_text(proto.name), name_text(proto.op_type), inputs, outputs)


def own_names(where: str, inputs: Iterable[Value], weights: Iterable[str], drafts: Iterable[Draft]) -> frozenset[str]:
    """All names that a graph defines; an error where two things make the same one."""
    makers: dict[str, Draft | str] = dict.fromkeys(weights, "a weight of that name")
    makers |= {value.name: "an input of that name" for value in inputs}
    for node in drafts:
        for name in filter(None, node.outputs):
            if name in makers:
                other = makers[name]
                raise GraphError(
                    f"{quoted(name)} is made twice in {where}: {node.label} makes it, "
                    f"and so does {other if isinstance(other, str) else other.label}"
                )
            makers[name] = node
    return frozenset(makers)


def free_names(
    where: str, drafts: Iterable[Draft], outputs: Iterable[Value], own: frozenset[str], outer: frozenset[str]
) -> tuple[str, ...]:
    """Names that a graph takes from outside, in order of first use; an error for those that nothing makes."""
    free: dict[str, None] = {}
    reads = [(name, node) for node in drafts for name in (*node.inputs, *node.captures)]
    for name, reader in [*reads, *((value.name, None) for value in outputs)]:
        if name and name not in own:
            if name not in outer:
                who = reader.label if reader else "the output list"
                raise GraphError(
                    f"{who} reads {quoted(name)} in {where}, but no input, weight or node there makes that value"
                )
            free[name] = None
    return tuple(free)


def in_running_order(where: str, drafts: Sequence[Draft]) -> list[Draft]:
    """The nodes sorted topologically, otherwise as they were; an error names the nodes of a cycle."""
    reads = [(*node.inputs, *node.captures) for node in drafts]
    makes = [node.outputs for node in drafts]
    order = topological(reads, makes)
    if order is not None:
        return [drafts[i] for i in order]
    circle = find_cycle(reads, makes)
    names = " → ".join(drafts[i].label for i in (*circle[:8], circle[0]))
    more = f" ({len(circle) - 8} more nodes lie between)" if len(circle) > 8 else ""
    raise GraphError(f"nodes wait for each other in {where}: {names}{more}; break the cycle")


def unique_names(drafts: Sequence[Draft]) -> list[str]:
    """The model's node names where they are unique, else the first outputs, else with a number behind."""
    taken: set[str] = set()
    names: list[str] = []
    for node in drafts:
        names.append("" if node.name in taken else node.name)
        taken.add(node.name)
    for i, node in enumerate(drafts):
        if not names[i]:
            base = node.first_output or node.op_type or "node"
            name, count = base, 1
            while not name or name in taken:
                count += 1
                name = f"{base}#{count}"
            names[i] = name
            taken.add(name)
    return names


def metadata(proto: Any) -> Mapping[str, str]:
    return {name_text(entry.key): name_text(entry.value) for entry in proto.metadata_props}
