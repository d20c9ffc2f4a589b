"""Where a graph lies inside its model: the path by which picks and changes of order name it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from kvviz.graph.model import MAX_NODES, Graph, GraphPath


def graphs_of(graph: Graph) -> Iterator[Graph]:
    """A graph and all bodies in it, outermost first."""
    yield graph
    for node in graph.nodes:
        for body in (*node.subgraphs.values(), *((node.function,) if node.function is not None else ())):
            yield from graphs_of(body)


def path_of(key: GraphPath) -> str:
    """A path for people: ``the main graph``, ``then_branch of node 7``."""
    if not key:
        return "the main graph"
    return ", in ".join(f"{attribute} of node {index}" for index, attribute in reversed(key))


def fingerprint(graph: Graph) -> str:
    """Digest of the nodes of a model, at any depth: operators and the names of what they make. Copies do not count."""
    digest = hashlib.blake2b(digest_size=8)
    for inner in graphs_of(graph):
        for node in (node for node in inner.nodes if node.index < MAX_NODES):
            digest.update(
                repr((inner.path, node.index, node.qualified_op, node.outputs)).encode("utf-8", "surrogatepass")
            )
    return digest.hexdigest()
