"""From protobuf to ``Graph``: subgraphs and functions unfolded, constants separated, nodes in running order.

Protobuf is read directly: onnx-ir 1.1 takes a sparse initializer for a missing input.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx

from kvviz.errors import GraphError, LimitError, LoadError, name_text, quoted
from kvviz.graph.loading.external import Source
from kvviz.graph.loading.functions import (
    FunctionKey,
    bodies_in,
    body_of_call,
    call_key,
    extents,
    function_key,
    plain_domain,
)
from kvviz.graph.loading.tensors import Weights, attribute, constant, read_sparse, read_tensor, value_type
from kvviz.graph.model import MAX_NODES, Graph, GraphPath, Node, Value
from kvviz.graph.module_paths import module_paths
from kvviz.graph.topological_order import find_cycle, needs_between, topological

_A = onnx.AttributeProto

MAX_NESTING = 64
"""Maximum nesting of subgraphs and function calls; protobuf itself stops at about 30 subgraphs in a file."""

MAX_CALLS = 100_000
"""Maximum number of expanded function calls: each costs a body of its own, some 0.2 ms of reading, however small it
is."""

MAX_COPIED = 1 << 30
"""Maximum bytes of all those bodies, whose tensors are copied for each."""


class Reader:
    def __init__(self, source: Source, functions: Iterable[Any] = ()) -> None:
        self.source = source
        self.functions: dict[FunctionKey, Any] = {function_key(f): f for f in functions}
        self._copied = 0

    def main(self, model: Any, opsets: dict[str, int]) -> Graph:
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
        written = self._written(proto, weights, where)
        own = own_names(where, [v for v in declared if v.name not in weights], weights, written)
        nodes = [self._filled(node, proto.node[node.index], opsets, (*outer, own), path) for node in written]
        outputs = tuple(value_type(name_text(info.name), info.type, self.source) for info in proto.output)
        captures = free_names(where, nodes, outputs, own, frozenset().union(*outer))
        return Graph(
            name=name_text(proto.name),
            inputs=tuple(v for v in declared if v.name not in weights),
            outputs=outputs,
            nodes=self._named(in_running_order(where, nodes), proto, opsets),
            weights=weights,
            opsets=opsets,
            value_info={
                name_text(v.name): value_type(name_text(v.name), v.type, self.source) for v in proto.value_info
            },
            source=self.source.label,
            folder=None if self.source.folder is None else os.path.abspath(self.source.folder),
            proto=whole or proto,
            overridable=tuple(v for v in declared if v.name in weights),
            captures=captures,
            path=path,
        )

    def _check_extent(self, proto: Any) -> None:
        """Refuse a model that is too large to be built, before any of it is."""
        whole, parts = extents(proto, self.functions, self.source.label)
        if whole.depth > MAX_NESTING:
            raise LoadError(f"{self.source.label} nests subgraphs and function calls more than {MAX_NESTING} deep")
        for what, most in (("nodes", MAX_NODES), ("calls", MAX_CALLS)):
            amount = getattr(whole, what)
            if amount > most:
                # The first function that is too large on its own is the one to report.
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

    def _written(self, proto: Any, weights: Weights, where: str) -> list[Node]:
        """The nodes that run, without attributes and bodies; Constant nodes become weights."""
        nodes = []
        for index, node in enumerate(proto.node):
            if node.op_type != "Constant" or plain_domain(node.domain):
                nodes.append(written_node(node, index))
                continue
            for name in filter(None, map(name_text, node.output)):
                if name in weights:
                    raise GraphError(
                        f"{quoted(name)} is made twice in {where}: by a Constant node and by another weight"
                    )
                weights.tensors[name] = constant(node, name, self.source)
        return nodes

    def _filled(
        self, node: Node, proto: Any, opsets: dict[str, int], visible: tuple[frozenset[str], ...], path: GraphPath
    ) -> Node:
        function = self.functions.get(call_key(proto)) if self.functions else None
        if not proto.attribute and function is None:
            return node
        attributes: dict[str, Any] = {}
        subgraphs: dict[str, Graph] = {}
        where = label(node)
        for given in proto.attribute:
            name = name_text(given.name)
            if given.ref_attr_name:
                raise GraphError(f"{where} of {self.source.label} uses a function's attribute outside a function")
            if given.type in (_A.GRAPH, _A.GRAPHS):
                for i, inner in enumerate(bodies_in(given)):
                    own = name if given.type == _A.GRAPH else f"{name}[{i}]"
                    subgraphs[own] = self._graph(inner, opsets, visible, None, (*path, (node.index, own)))
            else:
                attributes[name] = attribute(given, where, self.source)
        captures = tuple(dict.fromkeys(name for graph in subgraphs.values() for name in graph.captures))
        body = None
        if function is not None:
            body = self._body(node, proto, function, opsets, (*path, (node.index, "function")))
        return replace(node, attributes=attributes, subgraphs=subgraphs, captures=captures, function=body)

    def _body(self, node: Node, call: Any, function: Any, opsets: dict[str, int], path: GraphPath) -> Graph:
        key = function_key(function)
        for kind, formal, actual in (("input", function.input, node.inputs), ("output", function.output, node.outputs)):
            if len(actual) > len(formal):
                raise GraphError(
                    f"{label(node)} of {self.source.label} has {len(actual)} {kind}s, "
                    f"but the function it calls has {len(formal)}"
                )
        try:
            proto = body_of_call(function, call)
            self._copied += proto.ByteSize()
        except Exception as error:  # protobuf copies by writing and reading, and reads only about 100 levels
            raise LoadError(
                f"function {quoted(key[1])} of {self.source.label} nests its subgraphs too deeply"
            ) from error
        if self._copied > MAX_COPIED:
            raise LimitError(
                f"the functions of {self.source.label} take more than {MAX_COPIED:,} bytes once every call is spelled "
                f"out; {label(node)} calls {quoted(key[1])}: give large constants to it as inputs"
            )
        return self._graph(proto, {**opsets, **read_opsets(function.opset_import)}, path=path)

    def _named(self, nodes: Sequence[Node], proto: Any, opsets: dict[str, int]) -> tuple[Node, ...]:
        for node in nodes:
            if not node.domain and "" not in opsets:
                raise LoadError(
                    f"{self.source.label} does not say which version of the ONNX operators it uses (no opset import), "
                    f"but {label(node)} is one of them; the file is damaged, export it again"
                )
        names = unique_names(nodes)
        stated = [metadata(proto.node[node.index]) for node in nodes]
        scopes = module_paths(names, [node.inputs for node in nodes], [node.outputs for node in nodes], stated)
        return tuple(
            replace(node, name=name, opset=opsets.get(node.domain, 1), scope=scope)
            for node, name, scope in zip(nodes, names, scopes)
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


# Nodes as they are written, before they have their final names: makers of names, captures, running order.


def written_node(proto: Any, index: int) -> Node:
    inputs, outputs = tuple(map(name_text, proto.input)), tuple(map(name_text, proto.output))
    return Node(name_text(proto.name), name_text(proto.op_type), plain_domain(proto.domain), inputs, outputs, index)


def label(node: Node) -> str:
    return f"node {quoted(node.name or _first_output(node))} ({quoted(node.op_type)[1:-1]})"


def _first_output(node: Node) -> str:
    return next((name for name in node.outputs if name), "")


def own_names(where: str, inputs: Iterable[Value], weights: Iterable[str], nodes: Iterable[Node]) -> frozenset[str]:
    """All names that a graph defines; raises if two things make the same one."""
    makers: dict[str, Node | str] = dict.fromkeys(weights, "a weight of that name")
    makers |= {value.name: "an input of that name" for value in inputs}
    for node in nodes:
        for name in filter(None, node.outputs):
            if name in makers:
                other = makers[name]
                raise GraphError(
                    f"{quoted(name)} is made twice in {where}: {label(node)} makes it, "
                    f"and so does {other if isinstance(other, str) else label(other)}"
                )
            makers[name] = node
    return frozenset(makers)


def free_names(
    where: str, nodes: Iterable[Node], outputs: Iterable[Value], own: frozenset[str], outer: frozenset[str]
) -> tuple[str, ...]:
    """Names that a graph captures, in order of first use; raises for undefined ones."""
    free: dict[str, None] = {}
    reads = [(name, node) for node in nodes for name in (*node.inputs, *node.captures)]
    for name, reader in [*reads, *((value.name, None) for value in outputs)]:
        if name and name not in own:
            if name not in outer:
                who = label(reader) if reader else "the output list"
                raise GraphError(
                    f"{who} reads {quoted(name)} in {where}, but no input, weight or node there makes that value"
                )
            free[name] = None
    return tuple(free)


def in_running_order(where: str, nodes: Sequence[Node]) -> list[Node]:
    """The nodes sorted topologically, otherwise in their order; an error names the nodes of a cycle."""
    needs = needs_between(nodes)
    order = topological(needs)
    if order is not None:
        return [nodes[i] for i in order]
    circle = find_cycle(needs)
    names = " → ".join(label(nodes[i]) for i in (*circle[:8], circle[0]))
    more = f" ({len(circle) - 8} more nodes lie between)" if len(circle) > 8 else ""
    raise GraphError(f"nodes wait for each other in {where}: {names}{more}; break the cycle")


def unique_names(nodes: Sequence[Node]) -> list[str]:
    """The model's node names if unique, else the first outputs, else with a number added."""
    taken: set[str] = set()
    names: list[str] = []
    for node in nodes:
        names.append("" if node.name in taken else node.name)
        taken.add(node.name)
    for i, node in enumerate(nodes):
        if not names[i]:
            base = _first_output(node) or node.op_type or "node"
            name, count = base, 1
            while not name or name in taken:
                count += 1
                name = f"{base}#{count}"
            names[i] = name
            taken.add(name)
    return names


def metadata(proto: Any) -> Mapping[str, str]:
    return {name_text(entry.key): name_text(entry.value) for entry in proto.metadata_props}
