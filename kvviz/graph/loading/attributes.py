"""Attributes of a node as plain Python values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from kvviz.errors import LoadError
from kvviz.graph.loading.external import Source
from kvviz.graph.loading.tensors import Tensor, element_type, frozen, held, read_sparse, read_tensor
from kvviz.graph.model import Dim, Value
from kvviz.graph.names import quoted, text

_A = onnx.AttributeProto


def attribute(proto: Any, node: str, source: Source) -> Any:
    """Value of an attribute that is not a graph. Numbers and strings become Python's own (bytes that are not UTF-8 stay
    bytes), lists become tuples, tensors read-only arrays, sparse ones dense, and types a nameless ``Value``."""
    what = f"attribute {quoted(text(proto.name))} of {node}"
    kind = proto.type or _guess(proto)
    simple = _SIMPLE.get(kind)
    if simple is not None:
        return simple(proto)
    if kind == _A.TENSOR:
        return frozen(read_tensor(proto.t, source, what).read())
    if kind == _A.TENSORS:
        return tuple(frozen(read_tensor(t, source, what).read()) for t in proto.tensors)
    if kind == _A.SPARSE_TENSOR:
        return frozen(read_sparse(proto.sparse_tensor, source, what).read())
    if kind == _A.SPARSE_TENSORS:
        return tuple(frozen(read_sparse(t, source, what).read()) for t in proto.sparse_tensors)
    if kind == _A.TYPE_PROTO:
        return value_type("", proto.tp, source, what)
    if kind == _A.TYPE_PROTOS:
        return tuple(value_type("", tp, source, what) for tp in proto.type_protos)
    if kind == _A.UNDEFINED:
        return None
    raise LoadError(f"{what} of {source.label} has the unknown kind {kind}; export the model again")


def constant(node: Any, name: str, source: Source) -> Tensor:
    """The weight that a Constant node stands for, in any of the seven forms of ONNX's Constant."""
    what = f"constant {quoted(name)}"
    for proto in node.attribute:
        if proto.name == "value":
            return read_tensor(proto.t, source, what, name)
        if proto.name == "sparse_value":
            return read_sparse(proto.sparse_tensor, source, what, name)
        if proto.name in _CONSTANTS:
            return held(name, frozen(np.array(attribute(proto, what, source), _CONSTANTS[proto.name])))
    raise LoadError(
        f"the Constant node that makes {quoted(name)} in {source.label} has no value; export the model again"
    )


def value_type(name: str, proto: Any, source: Source, what: str = "") -> Value:
    what = what or f"value {quoted(name)}"
    kind = proto.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return Value(name, kind=kind.removesuffix("_type"))
    if kind not in ("tensor_type", "sparse_tensor_type"):
        return Value(name, kind="map" if kind == "map_type" else "tensor")
    tensor = getattr(proto, kind)
    shape = tuple(_dim(dim) for dim in tensor.shape.dim) if tensor.HasField("shape") else None
    return Value(name, element_type(tensor.elem_type, what, source), shape)


def _dim(proto: Any) -> Dim:
    if proto.HasField("dim_value"):
        # A negative length says that it is free, as onnxruntime reads it (1.31, and exporters of Keras).
        return int(proto.dim_value) if proto.dim_value >= 0 else None
    return text(proto.dim_param) or None


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _guess(proto: Any) -> int:
    """The kind of an attribute that does not say it, as models of IR 1 and 2 did not."""
    for kind, name in _FIELDS.items():
        if proto.HasField(name) if name in ("f", "i", "s", "t") else len(getattr(proto, name)):
            return kind
    return int(_A.UNDEFINED)


_FIELDS = {_A.TENSOR: "t", _A.FLOAT: "f", _A.INT: "i", _A.STRING: "s"}
_FIELDS |= {_A.FLOATS: "floats", _A.INTS: "ints", _A.STRINGS: "strings", _A.TENSORS: "tensors"}
_SIMPLE = {
    _A.FLOAT: lambda a: float(a.f),
    _A.INT: lambda a: int(a.i),
    _A.STRING: lambda a: _text(a.s),
    _A.FLOATS: lambda a: tuple(a.floats),
    _A.INTS: lambda a: tuple(a.ints),
    _A.STRINGS: lambda a: tuple(_text(s) for s in a.strings),
}
_CONSTANTS: dict[str, Any] = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}
