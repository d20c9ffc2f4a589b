"""What inputs of integers are looked up in: how many rows an embedding has, and so which numbers it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from kvviz.graph.caches.cache_ops import VIEWS
from kvviz.graph.model import Dim, Graph, Node

ShapeOf = Callable[[Graph, str], "tuple[Dim, ...]"]

# Operators whose first output holds the same numbers as their first input.
_SAME = VIEWS | {"Expand", "Tile"}
_LOOK_UPS = frozenset({"Gather", "GatherElements", "GatherND", "GatherBlockQuantized"})
# Which input of EmbedLayerNormalization (com.microsoft) is looked up in which.
_EMBEDDED = {0: 2, 1: 4, 7: 3}


@dataclass(frozen=True, slots=True)
class IndexRange:
    """Numbers from ``low`` up to, not including, ``high``."""

    low: int
    high: int


def written_shape(graph: Graph, name: str) -> tuple[Dim, ...]:
    """The shape of a value as the model writes it down: of a weight, also behind Cast or DequantizeLinear, or of an
    inner value whose shape it declares."""
    while name not in graph.weights:
        value, node = graph.value_info.get(name), graph.producers.get(name)
        if value is not None and value.shape is not None:
            return value.shape
        if node is None or node.op_type not in ("Cast", "DequantizeLinear", "Identity"):
            return ()
        name = node.inputs[0]
    declared = getattr(graph.weights, "declared", None)
    return np.shape(graph.weights[name]) if declared is None else declared(name).shape or ()


def index_range(graph: Graph, name: str, shape_of: ShapeOf = written_shape) -> IndexRange | None:
    """What an input of integers may hold so that every look-up finds something; None where nothing is looked up by it.
    The input is followed through views, casts and sums with a constant, into subgraphs and functions, to the look-ups
    (Gather, GatherElements, GatherND, onnxruntime's EmbedLayerNormalization and GatherBlockQuantized) and OneHot.

    ``shape_of``: the shape of a value of a graph, ``()`` where it is not known.
    """
    # Asked for first: what an inference knows of bodies includes what they take from here.
    shape_of(graph, name)
    low, high = 0, None
    seen: set[tuple[int, str, int]] = set()
    stack = [(graph, name, 0)]
    while stack:
        inside, value, added = stack.pop()
        if (id(inside), value, added) in seen or len(seen) > 10_000:
            continue
        seen.add((id(inside), value, added))
        for node in inside.consumers.get(value, ()):
            for position in (i for i, read in enumerate(node.inputs) if read == value):
                size = _looked_up(graph, inside, node, position, shape_of)
                if size:
                    low = max(low, -added)
                    high = size - added if high is None else min(high, size - added)
                stack += [(inside, node.outputs[0], added + more) for more in _passed_on(graph, inside, node, position)]
                if node.function is not None and position < len(node.function.inputs):
                    stack.append((node.function, node.function.inputs[position].name, added))
            stack += [(body, value, added) for body in node.subgraphs.values() if value in node.captures]
    return IndexRange(low, high) if high is not None and low < high else None


def _passed_on(main: Graph, graph: Graph, node: Node, position: int) -> Iterator[int]:
    """What is added to an input on its way to the first output, where that holds the same numbers."""
    if node.domain:
        return
    if position == 0 and node.op_type in _SAME:
        yield 0
    elif node.op_type in ("Add", "Sub") and len(node.inputs) == 2:
        amount = _number(main, graph, node.inputs[1 - position])
        if amount is not None and (node.op_type == "Add" or position == 0):
            yield amount if node.op_type == "Add" else -amount


def _looked_up(main: Graph, graph: Graph, node: Node, position: int, shape_of: ShapeOf) -> int:
    """How many things an input of a node chooses from; 0 where it chooses nothing, or that is not known."""
    if node.op_type in _LOOK_UPS and position == 1:
        axis = node.attributes.get("gather_axis" if node.domain else "axis", 0)
        at = int(node.attributes.get("batch_dims", 0) if "ND" in node.op_type else axis)
        return length_at(shape_of(graph, node.inputs[0]), at)
    if node.op_type == "EmbedLayerNormalization" and position in _EMBEDDED and len(node.inputs) > _EMBEDDED[position]:
        return length_at(shape_of(graph, node.inputs[_EMBEDDED[position]]), 0)
    if (node.op_type, node.domain, position) == ("OneHot", "", 0):
        return _number(main, graph, node.inputs[1]) or 0
    return 0


def _number(main: Graph, graph: Graph, name: str) -> int | None:
    """A constant of one number, of the graph itself or (as exporters write bodies) of the main one."""
    array = next((inside.weights[name] for inside in (graph, main) if name in inside.weights), None)
    return None if array is None or np.size(array) != 1 else int(np.ravel(array)[0])


def length_at(shape: tuple[Dim, ...], axis: int) -> int:
    """A length that is a known number, else 0."""
    length = shape[axis] if -len(shape) <= axis < len(shape) else 0
    return length if isinstance(length, int) else 0
