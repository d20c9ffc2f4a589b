"""Model-local functions: the body of one call, with the call's own attributes put in."""

from __future__ import annotations

from typing import Any

import onnx

from kvviz.graph.names import text

FunctionKey = tuple[str, str, str]


def plain_domain(domain: str | bytes) -> str:
    """The domain under the name that kvviz uses: ``ai.onnx`` is ONNX's own, the empty string."""
    return "" if domain == "ai.onnx" else text(domain)


def function_key(proto: Any) -> FunctionKey:
    return plain_domain(proto.domain), text(proto.name), text(proto.overload)


def call_key(node: Any) -> FunctionKey:
    """(domain, name, overload) of the function that a node would call."""
    return plain_domain(node.domain), text(node.op_type), text(node.overload)


def body_of_call(function: Any, call: Any) -> Any:
    """The graph that a call of a model-local function runs, with an input and an output for each that it declares.

    Attribute references (at any depth of subgraphs) take the value that the call gives, else the function's default,
    else they are left out, as the ONNX specification says. Inputs that the call leaves out become absent inputs
    (``""``) of the nodes that read them.
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


def _resolve(graph: Any, given: dict[str, Any], absent: set[str]) -> None:
    """Put attribute values in and blank absent inputs, in a graph that is ours to change."""
    for node in graph.node:
        if absent.intersection(node.input):
            node.input[:] = ["" if name in absent else name for name in node.input]
        if any(a.ref_attr_name for a in node.attribute):
            kept = [_resolved(a, given) for a in node.attribute]
            del node.attribute[:]
            node.attribute.extend(a for a in kept if a is not None)
        for a in node.attribute:
            for inner in subgraphs(a):
                _resolve(inner, given, absent - _defined(inner))


def _resolved(attribute: Any, given: dict[str, Any]) -> Any | None:
    if not attribute.ref_attr_name:
        copy = onnx.AttributeProto()
        copy.CopyFrom(attribute)
        return copy
    value = given.get(attribute.ref_attr_name)
    if value is None:
        return None
    copy = onnx.AttributeProto()
    copy.CopyFrom(value)
    copy.name = attribute.name
    return copy


def subgraphs(attribute: Any) -> list[Any]:
    """The graphs that an attribute holds."""
    if attribute.type == onnx.AttributeProto.GRAPH:
        return [attribute.g]
    return list(attribute.graphs)


def _defined(graph: Any) -> set[str]:
    names = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    return names.union(*(node.output for node in graph.node))
