"""The order that ggml's Metal back end gives a graph: nodes that touch no common root with a write join one set.

Source: ``ggml_graph_optimize`` (``src/ggml-metal/ggml-metal-common.cpp``, snapshot d99724f). Ranges are those of whole
roots, and ranges that only touch clash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from kvviz.ggml.graph.tensor import COMPUTE, OUTPUT, VIEW_OPS, Tensor
from kvviz.ggml.order.gallocr import is_external

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


class _Ranges:
    """Ranges of a set of nodes."""

    def __init__(self) -> None:
        self._by_buffer: dict[object, list[_Range]] = {}

    def add(self, ranges: Sequence[_Range]) -> None:
        for one in ranges:
            self._by_buffer.setdefault(one.buffer, []).append(one)

    def is_clear_of(self, ranges: Sequence[_Range]) -> bool:
        return not any(
            (one.writes or other.writes) and one.low < other.high and one.high >= other.low
            for one in ranges
            for other in self._by_buffer.get(one.buffer, ())
        )


class _Group(NamedTuple):
    """Nodes that are fused, which move as one."""

    nodes: tuple[Tensor, ...]
    ranges: tuple[_Range, ...]

    @property
    def is_empty(self) -> bool:
        return self.nodes[0].op in VIEW_OPS or self.nodes[0].op == "NONE"


def metal(nodes: Sequence[Tensor]) -> list[Tensor]:
    """The rule ``metal``."""
    groups = _groups(nodes)
    order: list[_Group] = []
    used = [False] * len(groups)
    at_once = _Ranges()
    for i, group in enumerate(groups):
        if used[i]:
            continue
        if not group.is_empty and not at_once.is_clear_of(group.ranges):
            skipped = _Ranges()
            skipped.add(group.ranges)
            for j in range(i + 1, min(i + FORWARD, len(groups))):
                other = groups[j]
                if used[j]:
                    continue
                if other.nodes[0].op not in SAFE:
                    break
                if (other.is_empty or at_once.is_clear_of(other.ranges)) and skipped.is_clear_of(other.ranges):
                    at_once.add(other.ranges)
                    order.append(other)
                    used[j] = True
                else:
                    skipped.add(other.ranges)
            at_once = _Ranges()
        at_once.add(group.ranges)
        order.append(group)
    return [node for group in order for node in group.nodes]


def _groups(nodes: Sequence[Tensor]) -> list[_Group]:
    uses = Counter(source for node in nodes for source in node.src if source is not None)
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
        reads = [_range(source, False) for node in fused for source in node.src if source is not None]
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
    """All of a root; what the graph allocator has not placed yet stands for itself."""
    root = tensor.root
    if is_external(root) and root.buffer and root.address is not None:
        return _Range(root.buffer, root.address, root.address + root.nbytes, writes)
    return _Range(root, 0, 1024, writes)
