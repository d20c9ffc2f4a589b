"""Shapes through If, Loop and Scan: what their bodies are given, and what follows for their outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx
from onnx import helper

from kvviz.graph.model import Graph, Node
from kvviz.graph.shapes.shape_merge import merge, tensor_of, union, without_shape

Walk = Callable[[Graph, Sequence[Any]], list[Any]]


def infer(node: Node, types: Sequence[Any], walk: Walk) -> list[Any]:
    """Types of the outputs of a control node; ``walk(body, types)`` infers a body and gives the types of its outputs.

    Rules of ONNX If-1…25, Loop-1…25 and Scan-8…25: branches of an If agree on what both say; what a Loop carries has
    any shape, inside and outside, but for what the body declares; its scans have a new first dimension of unknown
    length, those of a Scan have the length of what is scanned.
    """
    if node.op_type == "If":
        branches = [walk(node.subgraphs[name], []) for name in ("then_branch", "else_branch") if name in node.subgraphs]
        return [_agreed(pair) for pair in zip(*branches)]
    if node.op_type == "Loop":
        return _loop(node, types, walk)
    if node.op_type == "Scan":
        return _scan(node, types, walk)
    for body in node.subgraphs.values():
        walk(body, [])
    return []


def _agreed(pair: Sequence[Any]) -> Any | None:
    if None in pair:
        return None
    return union(pair[0], pair[-1])


def _loop(node: Node, types: Sequence[Any], walk: Walk) -> list[Any]:
    carried = [None if proto is None else without_shape(proto) for proto in types[2:]]
    iteration = helper.make_tensor_type_proto(onnx.TensorProto.INT64, None)
    condition = types[1] if len(types) > 1 else None
    found = walk(node.subgraphs["body"], [iteration, condition, *carried])[1:]
    ends = [None if proto is None else without_shape(proto) for proto in found[: len(carried)]]
    return ends + [_stacked(proto, 0, _Dimension()) for proto in found[len(carried) :]]


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
    # What is carried keeps its shape, so that of the start is as good as that of the end.
    carried = [merge(_sliced(start, None, batched), end) for start, end in zip(given[:states], found)]
    ends = [*carried, *(_stacked(proto, axis, length) for proto, axis in zip(found[states:], axes_out))]
    if batched:
        batch = _common([_dim(proto, 0) for proto in given])
        ends = [_stacked(proto, 0, batch) for proto in ends]
    return ends


_Dimension = onnx.TensorShapeProto.Dimension


def _dim(proto: Any | None, axis: int) -> Any | None:
    tensor = None if proto is None else tensor_of(proto)
    dims = () if tensor is None else tensor.shape.dim
    return dims[axis] if -len(dims) <= axis < len(dims) else None


def _common(dims: Sequence[Any]) -> Any:
    """What several dimensions of one length are known to be: a number if one says so, else the first name."""
    stated = [dim for dim in dims if dim is not None and dim.WhichOneof("value") is not None]
    return next((dim for dim in stated if dim.HasField("dim_value")), stated[0] if stated else _Dimension())


def _sliced(proto: Any | None, axis: int | None, batched: bool) -> Any | None:
    """The type of one slice along an axis (None: of the whole), without the batch dimension of Scan-8."""
    tensor = None if proto is None else tensor_of(proto)
    if tensor is None or not tensor.HasField("shape"):
        return proto
    dims = list(tensor.shape.dim)
    gone = {axis % len(dims) if dims else 0} if axis is not None else set()
    return _with_dims(tensor.elem_type, [dim for i, dim in enumerate(dims) if i not in gone and (i or not batched)])


def _stacked(proto: Any | None, axis: int, length: Any) -> Any | None:
    """The type of several of these along a new axis; without a known shape only the element type is known."""
    tensor = None if proto is None else tensor_of(proto)
    if tensor is None or not tensor.HasField("shape"):
        return proto
    dims = list(tensor.shape.dim)
    dims.insert(axis % (len(dims) + 1), length)
    return _with_dims(tensor.elem_type, dims)


def _with_dims(elem_type: int, dims: Sequence[Any]) -> Any:
    proto = onnx.TypeProto()
    proto.tensor_type.elem_type = elem_type
    proto.tensor_type.shape.dim.extend(dims)
    proto.tensor_type.shape.SetInParent()
    return proto
