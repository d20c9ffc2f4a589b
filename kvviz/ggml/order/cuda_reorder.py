"""The order that ggml's CUDA back end gives a graph with ``GGML_CUDA_GRAPH_OPT=1``: Q, K and V of a layer interleaved.

Source: ``ggml_backend_cuda_graph_optimize`` and ``ggml_cuda_concurrent_event::is_valid`` (``src/ggml-cuda``, snapshot
d99724f). It applies where a node whose name has ``attn_norm`` in it has exactly three users of one row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kvviz.ggml.graph.op_effects import is_noop
from kvviz.ggml.graph.tensor import Tensor
from kvviz.ggml.order.vulkan_reorder import by_result_roots

FAN_OUT = 3


def cuda(nodes: Sequence[Tensor]) -> list[Tensor]:
    """The rule ``cuda``: forks are interleaved, but for those that its own check refuses when the graph is run."""
    order = list(nodes)
    place = {node: i for i, node in enumerate(nodes)}
    fan_out: Counter[Tensor] = Counter()
    for node in nodes:
        if not is_noop(node) and node.ne[1] * node.ne[2] * node.ne[3] <= 1:
            fan_out.update(source for source in node.src if source is not None)
    done: list[range] = []
    for fork in [node for node in nodes if fan_out[node] == FAN_OUT and "attn_norm" in node.name]:
        at = place[fork]
        if any(at in span or at == span.stop for span in done):
            continue
        branches = [[node] for node in order[at + 1 :] if not is_noop(node) and by_result_roots(node, fork)]
        if len(branches) != FAN_OUT:
            continue
        join = _grow(order, at, branches)
        span = range(at, join)
        if join < 0 or join - at - 1 != sum(map(len, branches)) or not _is_valid(branches, order[join]):
            continue
        done.append(span)
        order[at + 1 : join] = _interleaved(branches)
    return order


def _grow(order: Sequence[Tensor], at: int, branches: list[list[Tensor]]) -> int:
    """Add to each branch what depends on it; gives the place of the first node that depends on two, or -1."""
    for i in range(at + 1, len(order)):
        node = order[i]
        mine = [branch for branch in branches if any(by_result_roots(node, other) for other in branch)]
        if len(mine) > 1:
            return i
        for branch in mine:
            if not any(node is other for other in branch):
                branch.append(node)
        if not mine and is_noop(node):
            branches[0].append(node)
    return -1


def _is_valid(branches: Sequence[Sequence[Tensor]], join: Tensor) -> bool:
    """Whether no two branches write one root, and none has a source in another; roots alone are compared."""
    stream = {node: i for i, branch in enumerate(branches) for node in branch}
    roots = [{node.root for node in branch} - {join.root} for branch in branches]
    if any(roots[i] & roots[j] for i in range(len(roots)) for j in range(i)):
        return False
    return all(
        stream[source] == i
        for node, i in stream.items()
        for source in node.src
        if source is not None and source in stream
    )


def _interleaved(branches: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """One node of each branch in turn, with the views that stand behind it."""
    left = [list(branch) for branch in branches]
    order: list[Tensor] = []
    turn = 0
    while any(left):
        branch = left[turn % len(left)]
        turn += 1
        if branch:
            order.append(branch.pop(0))
            while branch and is_noop(branch[0]):
                order.append(branch.pop(0))
    return order
