"""The re-order rules by name, with those of Metal and CUDA, and orders that a caller gives.

Source of the rule ``metal``: ``ggml_graph_optimize`` (``src/ggml-metal/ggml-metal-common.cpp``, snapshot d99724f):
nodes that touch no common root with a write join one set. Ranges are those of whole roots, and adjacent ranges clash.

Source of the rule ``cuda``: ``ggml_backend_cuda_graph_optimize`` (with ``GGML_CUDA_GRAPH_OPT=1``) and
``ggml_cuda_concurrent_event::is_valid`` (``src/ggml-cuda``, snapshot d99724f). It applies to a node whose name contains
``attn_norm`` and which has exactly three users of one row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from kvviz.errors import KvvizError
from kvviz.ggml.graph.compute_graph import ComputeGraph
from kvviz.ggml.graph.op_effects import effects, is_empty, is_noop, is_source
from kvviz.ggml.graph.tensor import COMPUTE, OUTPUT, VIEW_OPS, Tensor
from kvviz.ggml.order.gallocr import is_external
from kvviz.ggml.order.vulkan_reorder import by_result_roots, vulkan
from kvviz.trace.schema.regions import overlap

FORWARD, MAX_FUSE = 64, 16

SAFE = frozenset(
    {
        *("MUL_MAT", "MUL_MAT_ID", "ROPE", "NORM", "RMS_NORM", "GROUP_NORM", "L2_NORM", "SUM_ROWS", "SSM_CONV"),
        *("SSM_SCAN", "CLAMP", "TRI", "DIAG", "MUL", "ADD", "SUB", "DIV", "GLU", "SCALE", "UNARY", "GET_ROWS"),
        *("SET_ROWS", "SET", "CPY", "CONT", "REPEAT", "NONE", *VIEW_OPS),
    }
)
"""Ops across which nodes are pulled forward."""


class _Range(NamedTuple):
    buffer: object
    low: int
    high: int
    writes: bool


def _are_apart(some: Sequence[_Range], others: Sequence[_Range]) -> bool:
    return not any(
        one.buffer == other.buffer and (one.writes or other.writes) and one.low < other.high and one.high >= other.low
        for one in some
        for other in others
    )


class _Group(NamedTuple):
    """Nodes that are fused, and move as one."""

    nodes: tuple[Tensor, ...]
    ranges: tuple[_Range, ...]

    @property
    def is_empty(self) -> bool:
        return is_empty(self.nodes[0])


def metal(nodes: Sequence[Tensor]) -> list[Tensor]:
    groups = _groups(nodes)
    order: list[_Group] = []
    used = [False] * len(groups)
    at_once: list[_Range] = []
    for i, group in enumerate(groups):
        if used[i]:
            continue
        if not group.is_empty and not _are_apart(group.ranges, at_once):
            skipped = [*group.ranges]
            for j in range(i + 1, min(i + FORWARD, len(groups))):
                other = groups[j]
                if used[j]:
                    continue
                if other.nodes[0].op not in SAFE:
                    break
                if (other.is_empty or _are_apart(other.ranges, at_once)) and _are_apart(other.ranges, skipped):
                    at_once += other.ranges
                    order.append(other)
                    used[j] = True
                else:
                    skipped += other.ranges
            at_once = []
        at_once += group.ranges
        order.append(group)
    return [node for group in order for node in group.nodes]


def _groups(nodes: Sequence[Tensor]) -> list[_Group]:
    uses = Counter(source for node in nodes for source in node.sources)
    flagged = any(node.flags & COMPUTE for node in nodes)
    found, at = [], 0
    while at < len(nodes):
        length = 1
        if nodes[at].op in ("ADD", "NORM", "RMS_NORM"):
            stop = at + 1
            while stop < min(at + MAX_FUSE, len(nodes)) and nodes[stop].op in ("ADD", "MUL", "NORM", "RMS_NORM"):
                stop += 1
            length = next((n for n in range(stop - at, 1, -1) if _can_fuse(nodes[at : at + n], uses, flagged)), 1)
        fused = tuple(nodes[at : at + length])
        reads = [_range(source, False) for node in fused for source in node.sources]
        found.append(_Group(fused, (*reads, _range(fused[-1], True))))
        at += length
    return found


def _can_fuse(nodes: Sequence[Tensor], uses: Counter[Tensor], flagged: bool) -> bool:
    """``ggml_can_fuse``: each is used once, by the next one, which has its shape; none but the last is a view."""
    for i, node in enumerate(nodes):
        if flagged and not node.flags & COMPUTE:
            return False
        if i < len(nodes) - 1 and (uses[node] != 1 or node.view_src is not None or node.flags & OUTPUT):
            return False
        if i and (not any(source is nodes[i - 1] for source in node.src[:2]) or node.ne != nodes[i - 1].ne):
            return False
    return True


def _range(tensor: Tensor, writes: bool) -> _Range:
    """All of a root; a tensor that has no place yet stands for itself."""
    root = tensor.root
    if is_external(root) and root.buffer and root.address is not None:
        return _Range(root.buffer, root.address, root.address + root.nbytes, writes)
    return _Range(root, 0, 1024, writes)


WINDOW = 20

Depends = Callable[[Tensor, Tensor], bool]
"""Whether a node (the first) must stay after an earlier one (the second)."""


def pull_forward(nodes: Sequence[Tensor], depends: Depends) -> list[Tensor]:
    """An order in sets of nodes that may run at once: each set has the next node, and later nodes that need not wait;
    nodes that compute first, then views."""
    order: list[Tensor] = []
    used = [False] * len(nodes)
    first = 0
    while first < len(nodes):
        taken = [first]
        ahead = range(first + 1, min(first + WINDOW, len(nodes)))
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


def by_exact_bytes(nodes: Sequence[Tensor]) -> list[Tensor]:
    """The rule ``exact``: declared edges, and bytes that one of two nodes writes."""
    touched = {node: effects(node) for node in nodes}

    def depends(node: Tensor, other: Tensor) -> bool:
        return is_source(node, other) or any(
            overlap(one.region, two.region)
            for one in touched[other]
            for two in touched[node]
            if (one.writes or two.writes) and one.tensor.root is two.tensor.root
        )

    return pull_forward(nodes, depends)


FAN_OUT = 3


def cuda(nodes: Sequence[Tensor]) -> list[Tensor]:
    """The rule ``cuda``: forks are interleaved, except those that its own check refuses when the graph is run."""
    order = list(nodes)
    place = {node: i for i, node in enumerate(nodes)}
    fan_out: Counter[Tensor] = Counter()
    for node in nodes:
        if not is_noop(node) and node.ne[1] * node.ne[2] * node.ne[3] <= 1:
            fan_out.update(node.sources)
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
        if join < 0 or join - at - 1 != sum(map(len, branches)) or not _branches_are_apart(branches, order[join]):
            continue
        done.append(span)
        order[at + 1 : join] = _interleaved(branches)
    return order


def _grow(order: Sequence[Tensor], at: int, branches: list[list[Tensor]]) -> int:
    """Add to each branch what depends on it; returns the place of the first node that depends on two branches, or
    -1."""
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


def _branches_are_apart(branches: Sequence[Sequence[Tensor]], join: Tensor) -> bool:
    """Whether no two branches share a root, and none has a source in another; only roots are compared."""
    stream = {node: i for i, branch in enumerate(branches) for node in branch}
    roots = [{node.root for node in branch} - {join.root} for branch in branches]
    if any(roots[i] & roots[j] for i in range(len(roots)) for j in range(i)):
        return False
    return all(stream.get(source, i) == i for node, i in stream.items() for source in node.sources)


def _interleaved(branches: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """One node of each branch in turn, with the views that follow it."""
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


class ReorderRule(NamedTuple):
    """``about``: one sentence on what keeps two nodes apart."""

    name: str
    about: str
    order: Callable[[Sequence[Tensor]], list[Tensor]]


RULES = {
    rule.name: rule
    for rule in (
        ReorderRule("as listed", "the order of the node list, as on the CPU", list),
        ReorderRule("none", "declared edges alone; memory is ignored", partial(pull_forward, depends=is_source)),
        ReorderRule("vulkan", "declared edges, and results in one root; reads through views are ignored", vulkan),
        ReorderRule(
            "vulkan fixed",
            "declared edges, and any two nodes of which one writes a root of the other",
            partial(vulkan, fixed=True),
        ),
        ReorderRule("metal", "whole roots, wherever one of two nodes writes", metal),
        ReorderRule("cuda", "the tests of vulkan, only for Q, K and V after attn_norm, then checked by roots", cuda),
        ReorderRule("exact", "declared edges, and the exact bytes that one of two nodes writes", by_exact_bytes),
    )
}
"""Of ggml's back ends at snapshot d99724f (``vulkan fixed``: 0c1e57098), and two of ours: ``none`` and ``exact``."""

Order = str | Sequence[Tensor] | Sequence[int]
"""A rule's name, or the nodes themselves or their positions in the new execution order."""


def new_order(graph: ComputeGraph, order: Order) -> list[Tensor]:
    """The nodes of a graph in the order of a rule or of the caller, if the declared edges allow it."""
    if isinstance(order, str):
        if order not in RULES:
            raise KvvizError(f"there is no re-order rule {order!r}; choose one of {', '.join(RULES)}")
        made = RULES[order].order(graph.nodes)
    else:
        made = [_node(graph, one) for one in order]
    _check(graph, made)
    return made


def _node(graph: ComputeGraph, one: Tensor | int) -> Tensor:
    if isinstance(one, Tensor):
        return one
    if not isinstance(one, int) or isinstance(one, bool) or not 0 <= one < len(graph.nodes):
        raise KvvizError(
            f"{one!r} is not a node of {graph.title!r}; give a rule's name, or all {len(graph.nodes)} nodes, or "
            f"their positions from 0 to {len(graph.nodes) - 1}"
        )
    return graph.nodes[one]


def _check(graph: ComputeGraph, order: Sequence[Tensor]) -> None:
    old = {node: i for i, node in enumerate(graph.nodes)}
    place: dict[Tensor, int] = {}
    for i, node in enumerate(order):
        if node not in old:
            raise KvvizError(f"{_called(node)} at place {i} of the order is not a node of {graph.title!r}")
        if node in place:
            raise KvvizError(f"the order has {_called(node)} twice, at places {place[node]} and {i}")
        place[node] = i
    if len(place) < len(old):
        left = next(node for node in graph.nodes if node not in place)
        raise KvvizError(f"the order has {len(place)} of {len(old)} nodes: {_called(left)} at {old[left]} is not in it")
    for node in order:
        for source in node.others:
            if place.get(source, 0) > place[node]:
                raise KvvizError(
                    f"the declared edges do not allow this order: {_called(node)} at place {place[node]} reads "
                    f"{_called(source)} at place {place[source]}; put {_called(source)} first"
                )


def _called(node: Tensor) -> str:
    return f"{node.op} {node.name!r}"
