"""The same change in another layer: what was tried in one of the layers that are alike holds for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kvviz.fixes.changes import Change, Donate, Drop, Reserve, RunFirst, Swap
from kvviz.graph.layers import Place, places
from kvviz.graph.model import Graph


def moved_to_layer(
    graph: Graph, changes: tuple[Change, ...], layer: int | None, other: int | None
) -> tuple[Change, ...] | None:
    """Changes in one graph of a model as they are in another layer; None where something there has no counterpart."""
    if layer == other:
        return changes
    if layer is None or other is None:
        return None
    found = places(graph)
    nodes = {(place.layer, place.role): index for index, place in found.items()}
    try:
        return tuple(_moved(graph, change, found, nodes, layer, other) for change in changes)
    except KeyError:
        return None


def _moved(
    graph: Graph,
    change: Change,
    found: Mapping[int, Place],
    nodes: Mapping[tuple[int | None, str], int],
    layer: int,
    other: int,
) -> Change:
    def node(index: int) -> int:
        place = found[index]
        return index if place.layer is None else nodes[place.layer - layer + other, place.role]

    def given(name: str) -> str:
        readers = graph.consumers.get(name, ())
        for reader in readers:
            if found[reader.index].layer == layer and name in reader.inputs:
                return graph.by_index[node(reader.index)].inputs[reader.inputs.index(name)]
        if not readers or any(found[reader.index].layer is not None for reader in readers):
            raise KeyError(name)
        return name

    if isinstance(change, (RunFirst, Swap)):
        if change.graph != graph.path:
            raise KeyError(change.graph)
        if isinstance(change, RunFirst):
            return replace(change, reader=node(change.reader), node=node(change.node))
        return replace(change, node=node(change.node))
    if isinstance(change, (Donate, Reserve)):
        return replace(change, input=given(change.input))
    if isinstance(change, Drop):
        maker = graph.producers[change.output]
        if graph.path:
            raise KeyError(change.output)
        return replace(change, output=graph.by_index[node(maker.index)].outputs[maker.outputs.index(change.output)])
    return change
