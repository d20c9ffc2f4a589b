"""Where a graph lies inside its model: the path by which picks and changes of order name it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from weakref import WeakKeyDictionary

from kvviz.graph.model import Graph

GraphKey = tuple[tuple[int, str], ...]
"""``()`` is the main graph; a body adds the index of its node and the attribute: ``((7, "then_branch"),)``."""

_KEYS: WeakKeyDictionary[Graph, GraphKey] = WeakKeyDictionary()


def key_of(graph: Graph) -> GraphKey:
    """Path of a graph inside its model. The main graph must be asked for before its bodies, as planning does.

    A graph that is no body of a model seen before is a model of its own. The body of a local function counts as
    attribute ``"function"``.
    """
    if graph not in _KEYS:
        for key, inner in graphs_of(graph):
            _KEYS[inner] = key
    return _KEYS[graph]


def graphs_of(graph: Graph, key: GraphKey = ()) -> Iterator[tuple[GraphKey, Graph]]:
    """A graph and all bodies in it with their paths, outermost first."""
    yield key, graph
    for node in graph.nodes:
        for attribute, body in node.subgraphs.items():
            yield from graphs_of(body, (*key, (node.index, attribute)))
        if node.function is not None:
            yield from graphs_of(node.function, (*key, (node.index, "function")))


def told(key: GraphKey) -> str:
    """A path for people: ``the main graph``, ``then_branch of node 7``."""
    if not key:
        return "the main graph"
    return ", in ".join(f"{attribute} of node {index}" for index, attribute in reversed(key))


def fingerprint(graph: Graph) -> str:
    """Digest of the nodes of a model, at any depth: operators and the names of what they make."""
    digest = hashlib.blake2b(digest_size=8)
    for key, inner in graphs_of(graph):
        for node in inner.nodes:
            digest.update(repr((key, node.index, node.qualified_op, node.outputs)).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
