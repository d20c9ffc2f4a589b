"""The largest graph that llama.cpp reserves memory for, from two recorded ones that differ in their number of tokens.

``llama_context`` reserves for ``min(n_ctx, n_ubatch)`` tokens, all of them outputs, over the full cache; smaller graphs
with the same nodes then keep those places (``ggml_gallocr_needs_realloc``).
"""

from typing import Any

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
