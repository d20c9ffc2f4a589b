"""Attributes of an op as one short line, for people."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from kvviz.explain.units import short
from kvviz.graph.model import Node

_MOST = 60  # letters of one value


class _Name(str):
    """A name that is not quoted."""


_TYPED = frozenset({"to", "dtype", "output_dtype", "stash_type"})
_TYPES = {number: _Name(name.lower()) for name, number in onnx.TensorProto.DataType.items()}


def attribute_text(node: Node) -> str:
    """``axis = 2, mode = "reflect"``; arrays by type and shape unless they are small, bodies by their number of ops."""
    plain = [
        f"{name} = {_value(_TYPES.get(value, value) if name in _TYPED else value)}"
        for name, value in node.attributes.items()
    ]
    bodies = [f"{name}: a graph of {len(graph.nodes)} ops" for name, graph in node.subgraphs.items()]
    return ", ".join(plain + bodies)


def _value(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, np.ndarray):
        return str(value.tolist())
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, _Name):
        return value
    if isinstance(value, str):
        return f'"{short(value, _MOST)}"'
    return short(str(list(value) if isinstance(value, tuple) else value), _MOST)
