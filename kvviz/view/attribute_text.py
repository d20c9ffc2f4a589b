"""Attributes of an op as one short line, for people."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from kvviz.graph.model import Node
from kvviz.trace.units import short

_MOST = 60  # letters of one value


class _Name(str):
    """A name that is not quoted."""


_TYPED = frozenset({"to", "dtype", "output_dtype", "stash_type"})
_TYPES = {number: _Name(name.lower()) for name, number in onnx.TensorProto.DataType.items()}


def attribute_text(node: Node) -> str:
    """``axis = 2, mode = "reflect"``; bodies by their number of ops. Arrays are left out: a saved trace has none."""
    plain = [
        f"{name} = {_value(_TYPES.get(value, value) if name in _TYPED else value)}"
        for name, value in node.attributes.items()
        if not isinstance(value, np.ndarray)
    ]
    bodies = [f"{name}: a graph of {len(graph.nodes)} ops" for name, graph in node.subgraphs.items()]
    return ", ".join(plain + bodies)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, _Name):
        return value
    if isinstance(value, str):
        return f'"{short(value, _MOST)}"'
    return short(str(list(value) if isinstance(value, tuple) else value), _MOST)
