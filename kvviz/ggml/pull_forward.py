"""Taking nodes ahead of others that they do not depend on, within a window: what most re-order rules have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvviz.ggml.node_needs import Touching, is_source
from kvviz.ggml.op_effects import is_noop
from kvviz.ggml.tensor import Tensor

WINDOW = 20

Depends = Callable[[Tensor, Tensor], bool]
"""Whether a node (the first) must stay behind an earlier one (the second)."""


def pull_forward(nodes: Sequence[Tensor], depends: Depends, window: int = WINDOW) -> list[Tensor]:
    """An order in sets of nodes that may run at once: each set has the next node, and what need not wait for others.

    Nodes that do something are taken first, then views.
    """
    order: list[Tensor] = []
    used = [False] * len(nodes)
    first = 0
    while first < len(nodes):
        taken = [first]
        ahead = range(first + 1, min(first + window, len(nodes)))
        for views in (False, True):
            for j in ahead:
                if used[j] or j in taken or is_noop(nodes[j]) is not views:
                    continue
                waits = (c for c in range(first, j) if not used[c] and not (views and c in taken))
                if not any(depends(nodes[j], nodes[c]) for c in waits):
                    taken.append(j)
        for j in taken:
            order.append(nodes[j])
            used[j] = True
        while first < len(nodes) and used[first]:
            first += 1
    return order


def by_edges(nodes: Sequence[Tensor]) -> list[Tensor]:
    """The rule ``none``: declared edges alone keep nodes apart, and nobody looks at memory."""
    return pull_forward(nodes, is_source)


def by_exact_bytes(nodes: Sequence[Tensor]) -> list[Tensor]:
    """The rule ``exact``: declared edges, and bytes that one of two nodes writes."""
    touching = Touching(nodes)
    return pull_forward(nodes, lambda node, other: is_source(node, other) or bool(touching.shared(other, node)))
