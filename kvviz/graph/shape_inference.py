"""Types and shapes of all values before anything runs, one node at a time, with ONNX's own inference functions.

The model's declarations stand; inference only adds to them. Symbolic dimensions keep the model's names, and none are
invented: a dimension is a number, one of the model's names, or unknown.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from kvviz.errors import LoadError
from kvviz.graph.loading.external import Source
from kvviz.graph.loading.from_onnx import graph_proto, node_proto
from kvviz.graph.loading.tensors import Weights, value_type
from kvviz.graph.model import Dim, Graph, Node, Value, weight_layout
from kvviz.graph.shape_merge import dims_of, merge, tensor_of, union, without_shape

# Inference looks into constants for a shape, axes or pads; larger ones are not passed to it.
_SMALL = 1024


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of an inference beyond ONNX's schemas.

    ``extra`` maps (domain, operator) to ``rule(node, types, constant)``, which returns one TypeProto or None per
    output: ``types`` has one per input, ``constant(position)`` returns a small constant input as an array, or None.
    ``propagate(node, types, known, constant)`` returns the value of output 0 if it follows from shapes; ``known`` has
    such values of the inputs, or None.
    """

    extra: Mapping[tuple[str, str], Callable[..., Sequence[Any]]] = field(default_factory=dict)
    propagate: Callable[..., np.ndarray | None] | None = None


ONNX_RULES = Rules()


def infer(graph: Graph, rules: Rules = ONNX_RULES) -> dict[Graph, dict[str, Value]]:
    """What is known of every value of a model's graph and of all its subgraphs and function bodies, but not of
    captures. A declared name of a dimension stays even if inference finds another; a number replaces a name;
    conflicting numbers make the dimension unknown (onnxruntime 1.31; see `kvviz.graph.shape_merge`)."""
    if graph_proto(graph) is None:
        # It was loaded with a trace, without its file.
        inside = {graph, *(inner for inner, _ in graph.walk())}
        return {inner: {value.name: value for value in (*inner.inputs, *inner.outputs)} for inner in inside}
    walk = _Walk(rules, graph)
    walk.graph(graph, _numbered(graph), {}, {})
    source = Source(graph.source)
    return {
        inner: {name: value_type(name, proto, source) for name, proto in types.items() if proto is not None}
        for inner, types in walk.found.items()
    }


def _numbered(graph: Graph) -> list[Any]:
    """Types of the main graph's inputs, with numbers that the graph has and its file does not."""
    declared = {value.name: value.type for value in graph_proto(graph).input}
    found: list[Any] = []
    for value in graph.inputs:
        proto = declared.get(value.name)
        dims = () if proto is None else tuple(proto.tensor_type.shape.dim)
        numbers = [(axis, n) for axis, n in enumerate(value.shape or ()) if isinstance(n, int)]
        free = [(axis, n) for axis, n in numbers if axis < len(dims) and not dims[axis].HasField("dim_value")]
        if proto is not None and free:
            proto = deepcopy(proto)
            for axis, n in free:
                proto.tensor_type.shape.dim[axis].dim_value = n
        found.append(proto if free else None)
    return found


class _Walk:
    def __init__(self, rules: Rules, main: Graph) -> None:
        self.rules = rules
        self.found: dict[Graph, dict[str, Any]] = {}
        self.ir_version = getattr(main.proto, "ir_version", 0)

    def graph(
        self, graph: Graph, arguments: Sequence[Any], outer: Mapping[str, Any], constants: Mapping[str, Graph]
    ) -> list[Any]:
        """Infer one graph; ``arguments`` are the types of its inputs known to the caller."""
        own = self.found.setdefault(graph, {})
        proto = graph_proto(graph)
        for value in (*proto.input, *proto.output, *proto.value_info):
            own[value.name] = merge(value.type if value.HasField("type") else None, own.get(value.name))
        for value, given in zip(graph.inputs, arguments):
            own[value.name] = merge(own.get(value.name), given)
        declared = {v.name for v in graph.overridable}
        for name in graph.weights:
            own[name] = merge(own.get(name) if name in declared else None, _weight_type(graph, name))
        # Before IR 4 every weight is listed as an input, and none can be overridden.
        mine = set(graph.weights) - (declared if self.ir_version >= 4 else set())
        visible = {name: where for name, where in constants.items() if name not in own}
        scope = _Scope(graph, ChainMap(own, dict(outer)), {**visible, **dict.fromkeys(mine, graph)})
        for node in graph.nodes:
            inferred = self._node(scope, node)
            for name, found in zip(node.outputs, inferred):
                if name:
                    own[name] = merge(own.get(name), found)
            if self.rules.propagate is not None:
                known = [scope.known.get(name) for name in node.inputs]
                value = self.rules.propagate(node, scope.of(node.inputs), known, scope.constant_of(node))
                if value is not None:
                    scope.known[node.outputs[0]] = value
        return [scope.types.get(value.name) for value in graph.outputs]

    def _node(self, scope: _Scope, node: Node) -> Sequence[Any]:
        types = scope.of(node.inputs)
        given = {name: proto for name, proto in zip(node.inputs, types) if name}
        rule = self.rules.extra.get((node.domain, node.op_type))
        if rule is not None:
            return rule(node, types, scope.constant_of(node))
        if node.function is not None:
            return self.graph(node.function, types, {}, {})
        if node.subgraphs:
            return infer_control(node, types, lambda body, given: self.graph(body, given, scope.types, scope.constants))
        schema = _schema(node.op_type, node.opset, node.domain)
        if schema is None or None in given.values():
            return []
        proto = node_proto(scope.graph, node)
        if (tuple(proto.input), tuple(proto.output)) != (node.inputs, node.outputs):
            proto = deepcopy(proto)
            proto.input[:], proto.output[:] = node.inputs, node.outputs
        imports = [helper.make_opsetid(domain, version) for domain, version in scope.graph.opsets.items()]
        try:
            found = shape_inference.infer_node_outputs(
                schema, proto, given, scope.data(node), None, imports, self.ir_version or 8
            )
        except Exception:  # what ONNX cannot infer is unknown, whatever it has to say about it
            return []
        return [found.get(name) for name in node.outputs]


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is known inside one graph: types of all visible values, where constants are, values that follow."""

    graph: Graph
    types: Mapping[str, Any]
    constants: Mapping[str, Graph]
    known: dict[str, np.ndarray] = field(default_factory=dict)

    def of(self, names: Sequence[str]) -> list[Any]:
        return [self.types.get(name) if name else None for name in names]

    def constant_of(self, node: Node) -> Callable[[int], np.ndarray | None]:
        def constant(position: int) -> np.ndarray | None:
            name = node.given(position)
            graph = self.constants.get(name)
            if graph is None or not _is_small(weight_layout(graph, name)):
                return None
            absent = isinstance(graph.weights, Weights) and not graph.weights.has_contents(name)
            try:
                return None if absent else graph.weights[name]
            except LoadError:  # a run says that its data cannot be read, where it needs them
                return None

        return constant

    def data(self, node: Node) -> dict[str, Any]:
        """Values of inputs that inference may look at, as TensorProtos."""
        constant = self.constant_of(node)
        values = {name: self.known.get(name, constant(i)) for i, name in enumerate(node.inputs) if name}
        return {name: numpy_helper.from_array(value) for name, value in values.items() if value is not None}


def _is_small(value: Value) -> bool:
    return math.prod(dim for dim in value.shape or () if isinstance(dim, int)) <= _SMALL


def _weight_type(graph: Graph, name: str) -> Any:
    value = weight_layout(graph, name)
    code = helper.np_dtype_to_tensor_dtype(value.dtype) if value.dtype is not None else 0
    return helper.make_tensor_type_proto(code, value.shape)


@lru_cache(maxsize=1024)
def _schema(op_type: str, opset: int, domain: str) -> Any | None:
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


Walk = Callable[[Graph, Sequence[Any]], list[Any]]


def infer_control(node: Node, types: Sequence[Any], walk: Walk) -> list[Any]:
    """Types of the outputs of a control node; ``walk(body, types)`` infers a body and returns the types of its outputs.

    Rules of ONNX If-1…25, Loop-1…25 and Scan-8…25: branches of an If keep what both agree on; values carried by a Loop
    have any shape, inside and outside, except for the body's declarations; its scans have a new first dimension of
    unknown length, those of a Scan have the length of the scanned input.
    """
    if node.op_type == "If":
        branches = [walk(node.subgraphs[name], []) for name in ("then_branch", "else_branch") if name in node.subgraphs]
        return [None if None in pair else union(pair[0], pair[-1]) for pair in zip(*branches)]
    if node.op_type == "Loop":
        return _loop(node, types, walk)
    if node.op_type == "Scan":
        return _scan(node, types, walk)
    for body in node.subgraphs.values():
        walk(body, [])
    return []


def _loop(node: Node, types: Sequence[Any], walk: Walk) -> list[Any]:
    carried = [None if proto is None else without_shape(proto) for proto in types[2:]]
    iteration = helper.make_tensor_type_proto(onnx.TensorProto.INT64, None)
    condition = types[1] if len(types) > 1 else None
    found = walk(node.subgraphs["body"], [iteration, condition, *carried])[1:]
    ends = [None if proto is None else without_shape(proto) for proto in found[: len(carried)]]
    return ends + [_stacked(proto, 0, None) for proto in found[len(carried) :]]


def _scan(node: Node, types: Sequence[Any], walk: Walk) -> list[Any]:
    batched = node.opset < 9
    given = list(types[1:] if batched else types)
    states = len(given) - int(node.attributes.get("num_scan_inputs", 0))
    scanned = given[states:]
    axes = [int(axis) + batched for axis in node.attributes.get("scan_input_axes", (0,) * len(scanned))]
    slices = [_sliced(proto, axis, batched) for proto, axis in zip(scanned, axes)]
    found = walk(node.subgraphs["body"], [*(_sliced(proto, None, batched) for proto in given[:states]), *slices])
    axes_out = [int(axis) for axis in node.attributes.get("scan_output_axes", (0,) * (len(found) - states))]
    length = _common([_dim(proto, axis) for proto, axis in zip(scanned, axes)])
    # Carried values keep their shape, so that of the start is as good as that of the end.
    carried = [merge(_sliced(start, None, batched), end) for start, end in zip(given[:states], found)]
    ends = [*carried, *(_stacked(proto, axis, length) for proto, axis in zip(found[states:], axes_out))]
    if batched:
        batch = _common([_dim(proto, 0) for proto in given])
        ends = [_stacked(proto, 0, batch) for proto in ends]
    return ends


def _dim(proto: Any | None, axis: int) -> Dim:
    dims = dims_of(proto) or ()
    return dims[axis] if -len(dims) <= axis < len(dims) else None


def _common(dims: Sequence[Dim]) -> Dim:
    """The best knowledge of several dimensions of one length: a number if there is one, else the first name."""
    stated = [dim for dim in dims if dim is not None]
    return next((dim for dim in stated if isinstance(dim, int)), stated[0] if stated else None)


def _sliced(proto: Any | None, axis: int | None, batched: bool) -> Any | None:
    """The type of one slice along an axis (None: of the whole), without the batch dimension of Scan-8."""
    dims = dims_of(proto)
    if dims is None:
        return proto
    gone = {axis % len(dims) if dims else 0} if axis is not None else set()
    return _with_dims(proto, [dim for i, dim in enumerate(dims) if i not in gone and (i or not batched)])


def _stacked(proto: Any | None, axis: int, length: Dim) -> Any | None:
    """The type of several of these along a new axis; without a known shape only the element type is known."""
    dims = dims_of(proto)
    if dims is None:
        return proto
    dims.insert(axis % (len(dims) + 1), length)
    return _with_dims(proto, dims)


def _with_dims(proto: Any, dims: Sequence[Dim]) -> Any:
    tensor = tensor_of(proto)
    return helper.make_tensor_type_proto(0 if tensor is None else tensor.elem_type, dims)
