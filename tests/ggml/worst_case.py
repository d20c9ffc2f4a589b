"""The largest graph that llama.cpp reserves memory for, from two recorded ones that differ in their number of tokens.

``llama_context`` reserves for ``min(n_ctx, n_ubatch)`` tokens, all of them outputs, over the full cache; smaller graphs
with the same nodes then keep those places (``ggml_gallocr_needs_realloc``). Graphs are read here as tensors, with
nothing of the recording's own but buffers and places in them.
"""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import kvviz
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.tensor import INPUT, Tensor, new_tensor, packed

KQ_MASK_PAD = 64


def reserved_graph(
    many: ComputeGraph, one: ComputeGraph, tokens: int, cells: int, cells_seen: int = 0, hidden_embd: int = 0
) -> tuple[ComputeGraph, dict[Tensor, Tensor]]:
    """The graph for ``tokens`` tokens; ``many`` has several, ``one`` has 1.

    ``cells_seen``: cells that the recorded graphs attend to, where that is not all of the cache.
    ``hidden_embd``: width of the input of embeddings that is in the graph without a node that computes from it.
    """
    copies: dict[Tensor, Tensor] = {}
    computed = set(many.nodes)
    outputs: set[Tensor] = set()
    pairs = [*zip(many.leafs, one.leafs), *zip(many.nodes, one.nodes)]
    had = next(b.ne[0] and a.ne[0] // b.ne[0] for a, b in pairs if a.flags & INPUT and a.type == "i32")
    for a, b in pairs:
        # What grows with the tokens does so by a fixed number for each.
        ne: Any = tuple(m + (n - m) // (had - 1) * (tokens - 1) for n, m in zip(a.ne, b.ne))
        if a.op == "GET_ROWS" and a.src[1] in many.leafs and a.src[1].ne[0] == 1 < had:
            outputs.add(a)
        if a.role == "input" and a.type == "i32" and a.ne[0] == 1 < had and "s_copy" not in a.name:
            ne = (tokens, 1, 1, 1)
        if outputs.intersection(source for source in a.src if source is not None):
            outputs.add(a)
        if a in outputs:
            ne = (ne[0], tokens, *ne[2:])
        if (
            a.role == "input"
            and a.type in ("f32", "f16")
            and a.ne[0] in (cells, cells_seen)
            and a.ne[1] == KQ_MASK_PAD != had
        ):
            ne = (cells, tokens, 1, 1)
        if cells_seen and a.view_src is None and a.op != "NONE" and ne[0] == cells_seen:
            ne = (cells, *ne[1:])
        if a.op == "CPY" and a.src[1] is a and a.src[0] is not None:
            ne = copies[a.src[0]].ne
        copies[a] = Tensor(
            a.name, a.type, ne, packed(a.type, ne) if a.view_src is None else a.nb, a.op, flags=a.flags, role=a.role
        )
    graph = ComputeGraph("reserved")
    for a, copy in copies.items():
        copy.src = [None if source is None else copies[source] for source in a.src]
        copy.view_src = None if a.view_src is None else copies.get(a.view_src)
        (graph.nodes if a in computed else graph.leafs).append(copy)
    if hidden_embd:
        at = next(i for i, leaf in enumerate(graph.leafs) if leaf.flags & INPUT)
        graph.leafs.insert(at + 1, new_tensor("f32", (hidden_embd, tokens), "inp_embd"))
    return graph, copies


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
