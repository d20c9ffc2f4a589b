"""Model-local functions: the body of one call, and the size of a model with every call expanded."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import onnx

from kvviz.errors import GraphError, name_text, quoted
from kvviz.graph.topological_order import find_cycle, topological

FunctionKey = tuple[str, str, str]


def plain_domain(domain: str | bytes) -> str:
    """The domain under the name that kvviz uses: ``ai.onnx`` is ONNX's own, the empty string."""
    return "" if domain == "ai.onnx" else name_text(domain)


def function_key(proto: Any) -> FunctionKey:
    return plain_domain(proto.domain), name_text(proto.name), name_text(proto.overload)


def call_key(node: Any) -> FunctionKey:
    """(domain, name, overload) of the function that a node would call."""
    return plain_domain(node.domain), name_text(node.op_type), name_text(node.overload)


def body_of_call(function: Any, call: Any) -> Any:
    """The graph that a call of a model-local function runs, with an input and an output for each that it declares.

    Attribute references (at any depth of subgraphs) take the value of the call, else the function's default, else they
    are left out, as the ONNX specification says. Inputs that the call leaves out become absent inputs (``""``) of the
    nodes that read them.
    """
    given = {a.name: a for a in function.attribute_proto}
    given |= {a.name: a for a in call.attribute}
    passed = [*call.input, *[""] * (len(function.input) - len(call.input))]
    absent = {formal for formal, actual in zip(function.input, passed) if not actual}

    body = onnx.GraphProto(name=function.name)
    body.node.extend(function.node)
    body.input.extend(onnx.ValueInfoProto(name=name) for name in function.input)
    body.output.extend(onnx.ValueInfoProto(name="" if name in absent else name) for name in function.output)
    body.value_info.extend(function.value_info)
    _resolve(body, given, absent)
    return body


def _resolve(graph: onnx.GraphProto, given: dict[str, Any], absent: set[str]) -> None:
    """Put attribute values in and blank absent inputs, in a graph that is ours to change."""
    for node in graph.node:
        if absent.intersection(node.input):
            node.input[:] = ["" if name in absent else name for name in node.input]
        if any(a.ref_attr_name for a in node.attribute):
            kept = [_resolved(a, given) for a in node.attribute]
            del node.attribute[:]
            node.attribute.extend(a for a in kept if a is not None)
        for a in node.attribute:
            for inner in bodies_in(a):
                _resolve(inner, given, absent - _defined(inner))


def _resolved(attribute: Any, given: dict[str, Any]) -> Any | None:
    value = deepcopy(given.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute)
    if value is not None:
        value.name = attribute.name
    return value


def bodies_in(attribute: Any) -> list[Any]:
    if attribute.type == onnx.AttributeProto.GRAPH:
        return [attribute.g]
    return list(attribute.graphs)


def _defined(graph: onnx.GraphProto) -> set[str]:
    names = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    return names.union(*(node.output for node in graph.node))


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a graph or function with all that it calls."""

    nodes: int  # at any depth, each body once for each of its calls
    calls: int = 0  # bodies among them
    depth: int = 1  # graphs within each other


Own = tuple[Extent, list[tuple[FunctionKey, int]]]
"""The size of one graph or function by itself, and its calls with their nesting level."""


def extents(
    graph: onnx.GraphProto, functions: Mapping[FunctionKey, Any], label: str
) -> tuple[Extent, dict[FunctionKey, Extent]]:
    """Extent of a main graph, and of each function that it reaches, called ones first."""
    main = _own(graph, functions)
    own: dict[FunctionKey, Own] = {}
    waiting = [key for key, _ in main[1]]
    while waiting:
        key = waiting.pop()
        if key not in own:
            own[key] = _own(functions[key], functions)
            waiting += [called for called, _ in own[key][1]]
    found: dict[FunctionKey, Extent] = {}
    for key in _callees_first(own, label):
        found[key] = _sum(own[key], found)
    return _sum(main, found), found


def _own(root: Any, functions: Mapping[FunctionKey, Any]) -> Own:
    count, deepest = 0, 1
    calls: list[tuple[FunctionKey, int]] = []
    # Without recursion: a proto in memory may nest thousands of levels.
    stack = [(root, 1)]
    while stack:
        graph, depth = stack.pop()
        count += len(graph.node)
        deepest = max(deepest, depth)
        for node in graph.node:
            stack += [(inner, depth + 1) for attribute in node.attribute for inner in bodies_in(attribute)]
            # Constant nodes become weights, whatever functions there are.
            if functions and (node.op_type != "Constant" or plain_domain(node.domain)):
                key = call_key(node)
                if key in functions:
                    calls.append((key, depth))
    return Extent(count, depth=deepest), calls


def _callees_first(own: Mapping[FunctionKey, Own], label: str) -> list[FunctionKey]:
    keys = list(own)
    number = {key: i for i, key in enumerate(keys)}
    needs = [{number[called] for called, _ in own[key][1]} for key in keys]
    order = topological(needs)
    if order is not None:
        return [keys[i] for i in order]
    circle = [keys[i] for i in reversed(find_cycle(needs))]
    names = [quoted(name)[1:-1] for _, name, _ in (*circle[:8], circle[0])]
    more = f" ({len(circle) - 8} more functions lie between)" if len(circle) > 8 else ""
    raise GraphError(f"function {quoted(circle[0][1])} of {label} calls itself: {' → '.join(names)}{more}")


def _sum(own: Own, found: Mapping[FunctionKey, Extent]) -> Extent:
    alone, calls = own
    called = [(found[key], depth) for key, depth in calls]
    return Extent(
        alone.nodes + sum(extent.nodes for extent, _ in called),
        len(called) + sum(extent.calls for extent, _ in called),
        max([alone.depth, *(depth + extent.depth for extent, depth in called)]),
    )
