"""The graphs of a recording as tensors, with nothing of the recording's own but buffers and places in them."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import kvviz
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.tensor import Tensor


class Recorded(NamedTuple):
    meta: dict[str, Any]
    graphs: Sequence[ComputeGraph]
    buffers: dict[str, int]


def read_lines(path: Path) -> Recorded:
    recording = kvviz.ggml.load(path)
    orders: dict[tuple[int, int], list[int]] = {}  # of graphs that are alike
    for graph in recording.graphs:
        met = dict.fromkeys(source for node in graph.nodes for source in node.src if source is not None)
        nodes = set(graph.nodes)
        leafs = [tensor for tensor in met if tensor not in nodes]
        alike = len(graph.nodes), len(leafs)
        if alike not in orders:
            orders[alike] = [leafs.index(leaf) for leaf in leafs_as_visited(graph.nodes)]
        graph.leafs = [leafs[number] for number in orders[alike]]
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    buffers = {row["usage"]: row["size"] for row in rows if row["k"] == "buffer"}
    return Recorded(rows[0], recording.graphs, buffers)


def leafs_as_visited(nodes: list[Tensor]) -> list[Tensor]:
    """The leafs in the order in which ``ggml_build_forward_expand`` met them, which no recording says.

    It was called for some of the nodes: for the embeddings by themselves, and then the list is cut into the longest
    parts that a call gives.
    """
    built = ComputeGraph().expand(nodes[0], compute=False)
    at = 1
    while at < len(nodes):
        stop = min(len(nodes), at + 120)
        for end in range(stop, at, -1):
            if _emitted(nodes[end - 1], set(nodes[:at])) == nodes[at:end]:
                built.expand(nodes[end - 1], compute=False)
                at = end
                break
        else:
            raise AssertionError(f"no call gives {nodes[at].name}")
    assert built.nodes == nodes
    return built.leafs


def _emitted(node: Tensor, there: set[Tensor]) -> list[Tensor]:
    """The nodes that a call for one of them would append."""
    graph = ComputeGraph()
    graph._visited = there
    return graph.expand(node, compute=False).nodes
