"""onnxruntime's knowledge of a graph before it plans: types of all values, and whose body it is.

Bodies are planned one at a time, but their types follow from the whole model. So they are inferred together, on the
first request for the main graph, and kept as long as the graphs live.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from kvviz.graph.model import Dims, Graph, GraphPath, Node, Value, graphs_of, with_dims
from kvviz.graph.shape_inference import Rules, infer
from kvviz.graph.shape_merge import tensor_of
from kvviz.ops import contrib_shapes
from kvviz.trace.trace_data import GONE, GraphTypes, TraceData, TypeFacts

# -- shape values -----------------------------------------------------------------------------------------------------
# Values that onnxruntime derives from shapes while it loads a model: what it knows of inputs of Reshape, Expand, ….
#
# Only whole values count: a shape with one unknown dimension says nothing, not even its other dimensions, and names
# are not carried. Constants take part as indices and axes, but not as operands. Rules of onnxruntime 1.31
# (`core/graph/data_propagation`), found out by asking it for the shapes of small models.


Constant = Callable[[int], np.ndarray | None]
Arrays = Sequence[np.ndarray | None]


def propagate(node: Node, types: Sequence[Any], known: Arrays, constant: Constant) -> np.ndarray | None:
    """The value of a node's output, as a scalar or a list of numbers; None if onnxruntime does not know it. ``types``:
    of its inputs. ``known``: earlier results for its inputs. ``constant(position)`` returns a small weight."""
    rule = _RULES.get(node.op_type) if not node.domain else None
    return None if rule is None or not node.inputs else rule(node, types, known, constant)


def _shape(node: Node, types: Sequence[Any], known: Arrays, constant: Constant) -> np.ndarray | None:
    tensor = None if types[0] is None else tensor_of(types[0])
    if tensor is None or not tensor.HasField("shape"):
        return None
    dims = list(tensor.shape.dim)[node.attributes.get("start", 0) : node.attributes.get("end")]
    return np.array([d.dim_value for d in dims], np.int64) if all(d.HasField("dim_value") for d in dims) else None


def _size(node: Node, types: Sequence[Any], known: Arrays, constant: Constant) -> np.ndarray | None:
    # The product of the values, not of the lengths, as in onnxruntime.
    return None if known[0] is None or not known[0].ndim else np.array(known[0].prod())


def _same(node: Node, types: Sequence[Any], known: Arrays, constant: Constant) -> np.ndarray | None:
    return known[0] if known[0] is not None and known[0].ndim else None


def _concat(node: Node, types: Sequence[Any], known: Arrays, constant: Constant) -> np.ndarray | None:
    parts = [value for value in known if value is not None and value.ndim]
    return np.concatenate(parts) if len(parts) == len(known) else None


def _gather(node: Node, types: Sequence[Any], known: Arrays, constant: Constant) -> np.ndarray | None:
    values, index = known[0], constant(1)
    if values is None or not values.ndim or index is None or index.size != 1:
        return None
    place = int(index.reshape(()))
    if not -len(values) <= place < len(values):
        return None
    return values[place].reshape((1,) * bool(index.ndim))


def _unsqueeze(node: Node, types: Sequence[Any], known: Arrays, constant: Constant) -> np.ndarray | None:
    values = known[0]
    if values is None or not values.ndim:
        return None if values is None else values.reshape(1)
    axes = _axes(node, constant)
    inserted: list[int] = []
    for place, value in enumerate(values):
        inserted += [1] * (place in {axis % len(values) for axis in axes}) + [int(value)]
    return np.array(inserted, np.int64) if axes else None


def _squeeze(node: Node, types: Sequence[Any], known: Arrays, constant: Constant) -> np.ndarray | None:
    values = known[0]
    if values is None or not values.ndim:
        return None
    if len(values) == 1:
        return values[0].reshape(())
    axes = {axis % len(values) for axis in _axes(node, constant)}
    # Without axes it drops the values that are 1, as if they were lengths.
    kept = [v for i, v in enumerate(values) if (i not in axes if axes else v != 1)]
    return np.array(kept, np.int64)


def _axes(node: Node, constant: Constant) -> list[int]:
    given = constant(1) if len(node.inputs) > 1 else node.attributes.get("axes")
    return [] if given is None else [int(axis) for axis in np.ravel(given)]


def _arithmetic(compute: Callable[[Any, Any], Any], lists: bool = True) -> Callable[..., np.ndarray | None]:
    def rule(node: Node, types: Sequence[Any], known: Arrays, constant: Constant) -> np.ndarray | None:
        a, b = known[0], known[1]
        if a is None or b is None:
            return None
        if a.size == b.size == 1 or (lists and a.ndim and b.ndim and (a.size == b.size or 1 in (a.size, b.size))):
            return compute(a, b)
        return None

    return rule


def _divide(a: Any, b: Any) -> Any:
    return np.array(int(a.item() / b.item()), np.int64).reshape((1,) * max(a.ndim, b.ndim)) if b.item() else None


_RULES: dict[str, Callable[..., np.ndarray | None]] = {
    "Shape": _shape,
    "Size": _size,
    "Cast": _same,
    "Concat": _concat,
    "Gather": _gather,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Add": _arithmetic(np.add),
    "Sub": _arithmetic(np.subtract),
    "Mul": _arithmetic(np.multiply),
    "Div": _arithmetic(_divide, lists=False),
}


RULES = Rules(contrib_shapes.RULES, propagate)


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What is known of one graph. ``types``: of its own values and of its captures. ``inside``: operator whose body it
    is: ``"If"``, ``"Loop"``, ``"Scan"``, ``"function"``, or empty. ``written``: for a graph with changed nodes, the
    model's nodes by index."""

    types: Mapping[str, Value]
    inside: str = ""
    written: Mapping[int, Node] = field(default_factory=dict)


_KNOWN: WeakKeyDictionary[Graph, Known] = WeakKeyDictionary()


def known(graph: Graph) -> Known:
    """What is known of a graph; a body is taken as independent unless its main graph was requested before."""
    found = _KNOWN.get(graph)
    if found is None:
        _keep(graph, "", {}, infer(graph, RULES))
        found = _KNOWN[graph]
    return found


def know_blocks(graph: Graph, size: int) -> None:
    """Set the block size of the channel-blocked layout: a rewritten graph has a fixed one."""
    reorder = partial(contrib_shapes.reorder_input, block=size)
    rules = replace(RULES, extra={**RULES.extra, ("com.microsoft.nchwc", "ReorderInput"): reorder})
    _keep(graph, "", {}, infer(graph, rules))


def adopt(graph: Graph, original: Graph, copies: Mapping[str, str] = MappingProxyType({})) -> None:
    """Apply the knowledge of a graph to one that was made from it by changing nodes. ``copies``: new values, with those
    that they are copies of. Without any, the original's nodes are kept as those that are written."""
    known_types = own_types(original)
    new = {name: replace(known_types[source], name=name) for name, source in copies.items() if source in known_types}
    facts = known(original)
    if copies:
        outer = facts.types.maps[1:] if isinstance(facts.types, ChainMap) else []
        _KNOWN[graph] = Known(ChainMap({**known_types, **new}, *outer), facts.inside)
    else:
        _KNOWN[graph] = replace(facts, written=original.by_index)


def own_types(graph: Graph) -> Mapping[str, Value]:
    types = known(graph).types
    return types.maps[0] if isinstance(types, ChainMap) else types


def keep(
    graph: Graph, types: Mapping[GraphPath, dict[str, Value]], written: Mapping[GraphPath, Mapping[int, Node]]
) -> None:
    """Set the types of a main graph and of its bodies, and the nodes that were changed."""
    inner = {one.path: one for one in graphs_of(graph)}
    _keep(graph, "", {}, {inner[path]: of for path, of in types.items() if path in inner})
    for path, nodes in written.items():
        _KNOWN[inner[path]] = replace(_KNOWN[inner[path]], written=nodes)


def _keep(graph: Graph, inside: str, outer: Mapping[str, Value], inferred: Mapping[Graph, Mapping[str, Value]]) -> None:
    own = dict(inferred.get(graph, {}))
    types: Mapping[str, Value] = ChainMap(own, dict(outer)) if outer else own
    _KNOWN[graph] = Known(types, inside)
    for node in graph.nodes:
        for body in node.subgraphs.values():
            _keep(body, node.op_type, types, inferred)
        if node.function is not None:
            _keep(node.function, "function", {}, inferred)


def types_of(trace: TraceData) -> TypeFacts:
    """Known types of a trace's model, and those with its free dimensions as long as in this run."""
    dims = free_dims(trace)
    known(trace.graph)
    fixed = with_dims(trace.graph, dims) if dims else trace.graph
    known(fixed)
    pairs = zip(graphs_of(trace.graph), graphs_of(fixed))
    return TypeFacts(dims, tuple(_stated(graph, twin) for graph, twin in pairs))


def take_types(graph: Graph, facts: TypeFacts) -> None:
    """Apply the types that a trace states to its model, as it is and with the lengths of the trace."""
    stated = {of.path: of for of in facts.graphs}
    written = {g.path: _written(g, stated[g.path].written) for g in graphs_of(graph) if g.path in stated}
    keep(graph, {path: {value.name: value for value in of.types} for path, of in stated.items()}, written)
    if facts.dims:
        keep(with_dims(graph, facts.dims), {path: _fixed(of) for path, of in stated.items()}, {})


def _stated(graph: Graph, twin: Graph) -> GraphTypes:
    types, fixed = own_types(graph), own_types(twin)
    others = [value for name, value in fixed.items() if types.get(name) != value]
    others += [Value(name, kind=GONE) for name in types if name not in fixed]
    now = graph.by_index
    written = [(i, node.inputs) for i, node in known(graph).written.items() if now[i].inputs != node.inputs]
    return GraphTypes(graph.path, tuple(types.values()), tuple(others), tuple(written))


def _written(graph: Graph, nodes: Any) -> Mapping[int, Node]:
    return {index: replace(graph.by_index[index], inputs=inputs) for index, inputs in nodes if index in graph.by_index}


def _fixed(of: GraphTypes) -> dict[str, Value]:
    types = {value.name: value for value in (*of.types, *of.fixed)}
    return {name: value for name, value in types.items() if value.kind != GONE}


def free_dims(trace: TraceData) -> Dims:
    given = [{bound.name: bound.shape for bound in f.bindings} for f in trace.log.frames if f.parent is None]
    found = []
    for value in trace.graph.inputs:
        shapes = {shapes.get(value.name) for shapes in given}
        for axis, dim in enumerate(value.shape or ()):
            lengths = {-1 if shape is None else shape[axis] for shape in shapes}
            if not isinstance(dim, int) and len(lengths) == 1 and -1 not in lengths:
                found.append((value.name, axis, lengths.pop()))
    return tuple(found)
