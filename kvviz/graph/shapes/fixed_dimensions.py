"""A model whose free dimensions have lengths."""

from __future__ import annotations

from dataclasses import replace

from kvviz.graph.model import Graph

Dims = tuple[tuple[str, int, int], ...]
"""(input, axis, length) of each."""


def with_dims(graph: Graph, dims: Dims) -> Graph:
    """The model with these lengths; the same object each time.

    Its bodies are graphs of their own, because what is known of a body follows from the model around it.
    """
    key = ("dims", dims)
    if key not in graph.derived:
        lengths = {(name, axis): length for name, axis, length in dims}
        inputs = tuple(
            value
            if value.shape is None
            else replace(
                value, shape=tuple(lengths.get((value.name, axis), dim) for axis, dim in enumerate(value.shape))
            )
            for value in graph.inputs
        )
        graph.derived[key] = replace(_anew(graph, {}), inputs=inputs)
    return graph.derived[key]


def _anew(graph: Graph, made: dict[int, Graph]) -> Graph:
    if id(graph) not in made:
        nodes = [
            replace(
                node,
                subgraphs={name: _anew(body, made) for name, body in node.subgraphs.items()},
                function=None if node.function is None else _anew(node.function, made),
            )
            if node.subgraphs or node.function is not None
            else node
            for node in graph.nodes
        ]
        made[id(graph)] = replace(graph, nodes=tuple(nodes))
    return made[id(graph)]
