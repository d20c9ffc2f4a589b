"""Merging two statements about the type of one value.

Rules of ONNX's ``mergeInShapeInfo`` and ``UnionShapeInfo`` as onnxruntime 1.31 applies them to models that are not
checked strictly: a conflict is no error, it makes a dimension unknown.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from kvviz.errors import name_text
from kvviz.graph.model import Dim


def merge(declared: Any | None, inferred: Any | None) -> Any | None:
    """The declaration of a value, completed by inference; neither is changed. A declared dimension stays, but a number
    replaces a name. If two numbers differ, all dimensions on which the two do not agree become unknown; if the ranks
    differ, the shape does. Of the elements of an inferred sequence only the type is kept."""
    if declared is None or declared.WhichOneof("value") is None:
        return None if inferred is None else _plain(inferred)
    if inferred is None or inferred.WhichOneof("value") != declared.WhichOneof("value"):
        return declared
    merged = deepcopy(declared)
    mine, theirs = tensor_of(merged), tensor_of(inferred)
    if mine is None or theirs is None:
        return merged
    if not mine.elem_type:
        mine.elem_type = theirs.elem_type
    if not theirs.HasField("shape"):
        return merged
    if not mine.HasField("shape"):
        mine.shape.CopyFrom(theirs.shape)
    elif len(mine.shape.dim) != len(theirs.shape.dim):
        mine.ClearField("shape")
    elif not all(_merge_dim(a, b) for a, b in zip(mine.shape.dim, theirs.shape.dim)):
        _keep_equal(mine.shape, theirs.shape)
    return merged


def union(one: Any, other: Any) -> Any:
    """A type that both are of: only dimensions on which both agree are known."""
    both = deepcopy(one)
    mine, theirs = tensor_of(both), tensor_of(other)
    if mine is None or theirs is None or not mine.HasField("shape"):
        return both
    if not theirs.HasField("shape") or len(mine.shape.dim) != len(theirs.shape.dim):
        mine.ClearField("shape")
    else:
        _keep_equal(mine.shape, theirs.shape)
    return both


def tensor_of(proto: Any) -> Any | None:
    """The part of a TypeProto that has an element type and a shape; None for sequences and maps."""
    kind = proto.WhichOneof("value")
    if kind == "optional_type":
        return tensor_of(proto.optional_type.elem_type)
    return getattr(proto, kind) if kind in ("tensor_type", "sparse_tensor_type") else None


def dims_of(proto: Any | None) -> list[Dim] | None:
    """The lengths and names of a type's dimensions, None for one without either; None if the shape is not known."""
    tensor = None if proto is None else tensor_of(proto)
    if tensor is None or not tensor.HasField("shape"):
        return None
    return [
        dim.dim_value if dim.HasField("dim_value") else name_text(dim.dim_param) or None for dim in tensor.shape.dim
    ]


def without_shape(proto: Any) -> Any:
    copy = deepcopy(proto)
    tensor = tensor_of(copy)
    if tensor is not None:
        tensor.ClearField("shape")
    return copy


def _plain(proto: Any) -> Any:
    if proto.WhichOneof("value") != "sequence_type":
        return proto
    copy = deepcopy(proto)
    copy.sequence_type.elem_type.CopyFrom(without_shape(proto.sequence_type.elem_type))
    return copy


def _merge_dim(mine: Any, theirs: Any) -> bool:
    """Put what is known of one dimension into the other; False if two numbers differ."""
    if theirs.HasField("dim_value"):
        if mine.HasField("dim_value"):
            return bool(mine.dim_value == theirs.dim_value)
        mine.dim_value = theirs.dim_value
    elif theirs.HasField("dim_param") and mine.WhichOneof("value") is None:
        mine.dim_param = theirs.dim_param
    return True


def _keep_equal(mine: Any, theirs: Any) -> None:
    for a, b in zip(mine.dim, theirs.dim):
        if a.WhichOneof("value") is not None and a != b:
            a.Clear()
