"""What onnxruntime's planner knows of a model, written for a trace and read from one: a loaded model infers nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvviz.graph.model import Graph, Node, Value
from kvviz.graph.shapes.fixed_dimensions import Dims, with_dims
from kvviz.runtimes.ort.known_types import keep, known, own_types
from kvviz.runtimes.schedules.graph_paths import graphs_of
from kvviz.trace.schema.policy_facts import GONE, GraphTypes, TypeFacts
from kvviz.trace.trace_data import TraceData


def types_of(trace: TraceData) -> TypeFacts:
    """What is known of the values of a trace's model, and what if its free dimensions had the lengths of this run."""
    dims = free_dims(trace)
    known(trace.graph)
    fixed = with_dims(trace.graph, dims) if dims else trace.graph
    known(fixed)
    pairs = zip(graphs_of(trace.graph), graphs_of(fixed))
    return TypeFacts(dims, tuple(_stated(graph, twin) for graph, twin in pairs))


def take_types(graph: Graph, facts: TypeFacts) -> None:
    """Let what a trace states be known of its model, as it is and with the lengths of the trace."""
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
    """Dimensions of the model's inputs without a number, with the length that they had in every run."""
    given = [{bound.name: bound.shape for bound in f.bindings} for f in trace.log.frames if f.parent is None]
    found = []
    for value in trace.graph.inputs:
        shapes = {shapes.get(value.name) for shapes in given}
        for axis, dim in enumerate(value.shape or ()):
            lengths = {-1 if shape is None else shape[axis] for shape in shapes}
            if not isinstance(dim, int) and len(lengths) == 1 and -1 not in lengths:
                found.append((value.name, axis, lengths.pop()))
    return tuple(found)
