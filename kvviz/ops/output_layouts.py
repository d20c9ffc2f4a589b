"""Shapes and dtypes of a node's outputs from the layouts of its inputs, without running a kernel.

They come from ONNX's own inference, and from `kvviz.ops.contrib_shapes` for onnxruntime's operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from kvviz.errors import InputError, UnknownValueError
from kvviz.graph.loading.from_onnx import graph_proto, node_proto
from kvviz.graph.model import Graph, Node
from kvviz.memory.ghosts import is_ghost
from kvviz.ops.contrib_shapes import RULES
from kvviz.ops.kernels import node_proto as made_proto
from kvviz.ops.movement.cast import DTYPES
from kvviz.ops.registry import OpSpec


class UnknownLengthError(UnknownValueError):
    """One length of an output depends on data; whoever supplies it states the whole shape."""


Layout = tuple[tuple[int, ...], np.dtype]
Rule = Callable[[Sequence[Any]], list[Layout | None]]
_KEPT: WeakKeyDictionary[Graph, dict[tuple, dict[tuple, list[Layout | None]]]] = WeakKeyDictionary()
_MOST_KEPT = 64  # of one kind of node; a long decode has new lengths at every run
_SMALL = 1024  # elements of a value that inference may look at


def layout_rule(
    graph: Graph,
    node: Node,
    spec: OpSpec | None,
    attributes: Mapping[str, Any],
    count: int | None = None,
    elsewhere: Sequence[int] = (),
) -> Rule:
    """``rule(args)`` returns shape and dtype of every output of a node; None for an absent output. ``count``: number of
    elements of an output whose length depends on data. ``elsewhere``: outputs that the caller makes; the rule returns
    None for them. The rule raises `UnknownValueError` if they depend on values that ghosts do not have."""
    plain = None if node.domain else _PLAIN.get(node.op_type)
    if plain is not None or (spec is not None and spec.overwrites):
        check_use(node, count)
    return _Inferred(graph, node, count, elsewhere) if plain is None else lambda args: plain(args, attributes)


def check_use(node: Node, count: int | None) -> None:
    """Raise `InputError` for a count that is given for a node whose outputs do not depend on data."""
    if count is not None:
        raise InputError(
            f"counts says {count} for node {node.name!r} ({node.qualified_op}), whose shapes follow from its inputs; "
            "counts is for nodes that data decides: how many elements a NonZero or Compress picks, how often a Loop "
            "runs, 1 or 0 for an If"
        )


def _concat_from_sequence(args: Sequence[Any], attributes: Any) -> list[Layout | None]:
    parts, axis = args[0], attributes["axis"]
    if attributes.get("new_axis"):
        shape = list(parts[0].shape)
        axis %= len(shape) + 1
        return [((*shape[:axis], len(parts), *shape[axis:]), parts[0].dtype)]
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return [(tuple(shape), parts[0].dtype)]


def _stft(args: Sequence[Any], attributes: Any) -> list[Layout | None]:
    # ONNX's inference (1.23) ignores ``onesided`` if a window determines the frame length.
    signal, window, length = args[0], *(*args[2:], None, None)[:2]
    if is_ghost(args[1]) or (length is not None and is_ghost(length)):
        raise UnknownValueError("the number of frames depends on values")
    size = window.size if length is None else int(length.item())
    frames = (signal.shape[1] - size) // int(args[1].item()) + 1
    return [((signal.shape[0], frames, size // 2 + 1 if attributes["onesided"] else size, 2), signal.dtype)]


# What ONNX's inference (1.23) does not know, or gets wrong.
_PLAIN: dict[str, Callable[..., list[Layout | None]]] = {"ConcatFromSequence": _concat_from_sequence, "STFT": _stft}


class _Inferred:
    """ONNX's inference, cached by layouts and known values; nodes that differ only in their names, as in repeated
    layers, share results."""

    def __init__(self, graph: Graph, node: Node, count: int | None, elsewhere: Sequence[int]) -> None:
        self.node = node
        self.count = count
        self.absent = {*elsewhere}
        self.extra = RULES.get((node.domain, node.op_type))
        # A loaded trace has no model file; its nodes have only attributes that can be written as text.
        has_file = graph_proto(graph) is not None
        proto = node_proto(graph, node) if has_file else made_proto(replace(node, subgraphs={}))
        like = (
            *(node.domain, node.op_type, node.opset, count, *sorted(self.absent)),
            tuple(map(bool, node.inputs)),
            tuple(map(bool, node.outputs)),
            *(attribute.SerializeToString(deterministic=True) for attribute in proto.attribute),
        )
        self.kept = _KEPT.setdefault(graph, {}).setdefault(like, {})
        self.schema: Any = None
        if self.extra is None and onnx.defs.has(node.op_type, node.opset, node.domain):
            self.schema = onnx.defs.get_schema(node.op_type, node.opset, node.domain)
            self.proto = onnx.NodeProto()
            self.proto.CopyFrom(proto)
            self.proto.input[:] = node.inputs
            self.proto.output[:] = node.outputs
            self.imports = [helper.make_opsetid(domain, version) for domain, version in graph.opsets.items()]
            self.ir_version = getattr(graph_proto(graph), "ir_version", 0) or 8

    def __call__(self, args: Sequence[Any]) -> list[Layout | None]:
        small = {i: a for i, a in enumerate(args) if isinstance(a, np.ndarray) and a.size <= _SMALL and not is_ghost(a)}
        key = (
            *((a.shape, a.dtype.num) if isinstance(a, np.ndarray) else None for a in args),
            *((i, a.tobytes()) for i, a in small.items() if a.dtype != object),
        )
        found = self.kept.get(key)
        if found is None:
            found = self._infer(args, small)
            if len(self.kept) >= _MOST_KEPT:
                self.kept.clear()
            self.kept[key] = found
        return found

    def _infer(self, args: Sequence[Any], small: dict[int, np.ndarray]) -> list[Layout | None]:
        node = self.node
        types = [_type(a) for a in args]
        if self.extra is None and self.schema is None:
            raise UnknownValueError("the shapes of what it gives are known to its kernel alone")
        if self.extra is not None:
            found = [*self.extra(node, types, small.get), *[None] * len(node.outputs)]
        else:
            named = {name: proto for name, proto in zip(node.inputs, types) if name}
            data = {node.inputs[i]: numpy_helper.from_array(np.array(a, order="C")) for i, a in small.items()}
            try:
                outs = shape_inference.infer_node_outputs(
                    self.schema, self.proto, named, data, None, self.imports, self.ir_version
                )
            except Exception as error:
                raise UnknownValueError(str(error).splitlines()[0]) from None
            found = [outs.get(name) for name in node.outputs]
        layouts = [
            _layout(name, proto, self._picked(i, args)) if name and i not in self.absent else None
            for i, (name, proto) in enumerate(zip(node.outputs, found))
        ]
        if not any(proto is not None and _open_dims(proto) for proto in found):
            check_use(node, self.count)
        return layouts

    def _picked(self, output: int, args: Sequence[Any]) -> int | None:
        """The number of elements of an output whose length depends on data."""
        if self.node.op_type == "Unique" and output == 2:
            axis = self.node.attributes.get("axis")
            return int(args[0].size if axis is None else args[0].shape[axis])
        return self.count


def _type(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return helper.make_tensor_type_proto(_code(value.dtype), value.shape)
    if isinstance(value, (list, tuple)):
        element = value[0].dtype if value else np.dtype(np.float32)
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(_code(element), None))
    return None


@cache
def _code(dtype: np.dtype) -> int:
    return int(helper.np_dtype_to_tensor_dtype(dtype))


def _open_dims(proto: Any) -> int:
    return sum(not dim.HasField("dim_value") for dim in proto.tensor_type.shape.dim)


def _layout(name: str, proto: Any, count: int | None) -> Layout:
    tensor = proto.tensor_type if proto is not None and proto.HasField("tensor_type") else None
    if tensor is not None and tensor.HasField("shape") and tensor.elem_type:
        dims, unknown = tensor.shape.dim, _open_dims(proto)
        if unknown == 1 and count is None:
            raise UnknownLengthError(f"the shape of {name!r} depends on values")
        if unknown < 2:
            lengths = (dim.dim_value if dim.HasField("dim_value") else count or 0 for dim in dims)
            return tuple(lengths), DTYPES[tensor.elem_type]
    raise UnknownValueError(f"the shape of {name!r} depends on values")


def size_of(layout: Layout | None) -> int:
    return 0 if layout is None else math.prod(layout[0])
