"""What a runtime that plans by types knew of the values of a model, so that it can be asked for another plan later."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvviz.graph.fixed_dimensions import Dims
from kvviz.graph.model import Value

GONE = "gone"
"""Kind of a value of which nothing is known any more."""


class GraphTypes(NamedTuple):
    """The types of one graph's own values.

    ``path``: of the graph in its model: nodes and attributes, outermost first.
    ``fixed``: those that are others once the free dimensions have lengths.
    ``written``: nodes whose inputs the runtime has changed, with those of the model.
    """

    path: tuple[tuple[int, str], ...]
    types: tuple[Value, ...]
    fixed: tuple[Value, ...]
    written: tuple[tuple[int, tuple[str, ...]], ...]


class TypeFacts(NamedTuple):
    """The types of all values of a model.

    ``dims``: the free dimensions of the inputs, with the lengths that they had in every run.
    """

    dims: Dims
    graphs: tuple[GraphTypes, ...]


def free_dims(trace: Any) -> Dims:
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
