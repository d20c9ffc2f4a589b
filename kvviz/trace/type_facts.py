"""What a runtime that plans by types knew of the values of a model, so that it can be asked for another plan later."""

from __future__ import annotations

from typing import NamedTuple

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
