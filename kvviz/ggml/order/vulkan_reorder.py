"""The order that ggml's Vulkan back end gives a graph, before its fix for views of one root, and after it.

Source: ``ggml_vk_graph_optimize`` (``src/ggml-vulkan/ggml-vulkan.cpp``): before the fix of snapshot d99724f, after it
of llama.cpp 0c1e57098. Since llama.cpp#27812 the roots of sources are compared as well; more is fused since then, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from kvviz.ggml.graph.op_effects import is_empty, is_source
from kvviz.ggml.graph.tensor import OUTPUT, Tensor, can_repeat, is_contiguous

WINDOW, FUSION_WINDOW, ROW_WINDOW = 20, 15, 10  # since the fix the last one is 15, too

FUSED = frozenset(
    {
        ("RMS_NORM", "MUL"),
        ("MUL_MAT", "ADD"),
        ("MUL_MAT_ID", "ADD_ID"),
        ("MUL_MAT_ID", "MUL"),
        ("ADD", "ADD"),
        ("SSM_CONV", "ADD"),
        ("SSM_CONV", "UNARY"),
    }
)
"""Pairs that are taken together although the second depends on the first."""

_TAIL = ("GET_ROWS", "RESHAPE", "SUM_ROWS", "CLAMP", "DIV", "RESHAPE")
KEPT = (
    ("SOFT_MAX", "RESHAPE", "ARGSORT", "VIEW", *_TAIL),
    ("UNARY", "RESHAPE", "ADD", "ARGSORT", "VIEW", *_TAIL),
    ("UNARY", "SQRT", "RESHAPE", "ADD", "ARGSORT", "VIEW", *_TAIL),
    ("SOFT_MAX", "RESHAPE", "ARGSORT", "VIEW", "GET_ROWS"),
    ("ARGSORT", "VIEW", "GET_ROWS", "RESHAPE", "SOFT_MAX", "RESHAPE"),
    ("MUL", "SIN", "SQR", "MUL", "ADD"),
)
"""Runs of ops that are never pulled apart: the choice of experts, and snake."""
QSA = ("GET_ROWS", "PERMUTE", "CONT", "CPY", "RESHAPE", "ADD", "TOP_K")
KEPT_SINCE = (
    QSA,
    ("RMS_NORM", "MUL", "ADD", "MUL"),
    ("RMS_NORM", "MUL", "ADD"),
    ("RMS_NORM", "MUL", "ROPE", "VIEW", "SET_ROWS"),
    ("RMS_NORM", "VIEW", "SET_ROWS"),
    ("ROPE", "VIEW", "SET_ROWS"),
    ("SCALE", "UNARY", "SCALE", "DSV4_HC_POST"),
)
"""More runs since the fix; no node inside QSA is taken either."""
_GATES = ("GELU", "SIGMOID", "SILU", "SOFTPLUS")


def by_result_roots(node: Tensor, other: Tensor) -> bool:
    """A declared edge, or results in one root. A read through a view is neither."""
    return is_source(node, other) or node.root is other.root


def by_all_roots(node: Tensor, other: Tensor) -> bool:
    """As before, or one of two that execute reads the root that the other writes."""
    if by_result_roots(node, other) or is_empty(node) or is_empty(other):
        return by_result_roots(node, other)
    reads, wrote = ({source.root for source in one.sources} for one in (node, other))
    return other.root in reads or node.root in wrote


def vulkan(nodes: Sequence[Tensor], fixed: bool = False) -> list[Tensor]:
    return _Vulkan(nodes, fixed).order()


class _Vulkan:
    def __init__(self, nodes: Sequence[Tensor], fixed: bool) -> None:
        self.nodes = nodes
        self.fixed = fixed
        self.depends = by_all_roots if fixed else by_result_roots
        self.kept = (*KEPT, *KEPT_SINCE) if fixed else KEPT
        self.uses = Counter(source for node in nodes for source in node.sources)
        self.used = [False] * len(nodes)
        self.done: set[Tensor] = set()
        self.current: list[int] = []
        self.first = 0

    def order(self) -> list[Tensor]:
        made: list[Tensor] = []
        while self.first < len(self.nodes):
            kept = next((pattern for pattern in self.kept if self._matches(pattern, self.first)), ())
            self.current = list(range(self.first, self.first + len(kept)))
            if not kept:
                self._gather()
            for number in self.current:
                made.append(self.nodes[number])
                self.done.add(self.nodes[number])
                self.used[number] = True
            while self.first < len(self.nodes) and self.used[self.first]:
                self.first += 1
        return made

    def _matches(self, pattern: Sequence[str], start: int) -> bool:
        here = range(start, start + len(pattern))
        return here.stop <= len(self.nodes) and all(
            self.nodes[number].op == op and not self.used[number] for number, op in zip(here, pattern)
        )

    def _gather(self) -> None:
        """One set: the next node, others that need not wait, what they are fused with, and then views."""
        self.current = [self.first]
        for j in self._ahead():
            if is_empty(self.nodes[j]) or any(self._matches(pattern, j) for pattern in self.kept):
                continue
            if self.fixed and any(j >= o and self._matches(QSA, j - o) for o in range(len(QSA))):
                continue
            if not any(self._holds(j, c) for c in range(self.first, j) if not self.used[c]):
                self.current.append(j)
                self._pull(j)
        # Ops that are fused with an ADD stay behind it.
        if self.nodes[self.current[-1]].op == "ADD":
            return
        for j in self._ahead():
            if is_empty(self.nodes[j]):
                waits = (c for c in range(self.first, j) if not self.used[c] and c not in self.current)
                if not any(self.depends(self.nodes[j], self.nodes[c]) for c in waits):
                    self.current.append(j)

    def _ahead(self) -> Iterator[int]:
        return (
            j
            for j in range(self.first + 1, min(self.first + WINDOW, len(self.nodes)))
            if not self.used[j] and j not in self.current
        )

    def _holds(self, j: int, c: int) -> bool:
        if not self.depends(self.nodes[j], self.nodes[c]):
            return False
        pair = self.nodes[c].op, self.nodes[j].op
        if self.fixed and pair in (("RMS_NORM", "MUL"), ("UNARY", "MUL")):
            near = all(self.used[v] or is_empty(self.nodes[v]) for v in range(c + 1, j))
        else:
            near = j == c + 1 and pair in FUSED
        return not (near and c == self.current[-1])

    def _pull(self, j: int) -> None:
        """Take what the kernels fuse with a node, wherever it stands, without a look at the nodes between."""
        node, before = self.nodes[j], self.nodes[j - 1].op if j else ""
        rope = j
        if (before, node.op) == ("RMS_NORM", "MUL"):
            for k in self._after(j, FUSION_WINDOW):
                if self._reads(k, "ROPE", j) and all(
                    source is None or source.op == "NONE" for source in self.nodes[k].src[1:3]
                ):
                    rope = k
                    self._take(k)
                    break
        if self.nodes[rope].op == "ROPE" or (self.fixed and self.nodes[rope].op == "RMS_NORM"):
            self._pull_rows(rope)
        if self.fixed and node.op == "UNARY":
            self._pull_gate(j)
        follow = {("MUL_MAT_ID", "ADD_ID"): "MUL", ("MUL_MAT", "ADD"): "ADD", ("SSM_CONV", "ADD"): "UNARY"}
        wanted = follow.get((before, node.op))
        for k in self._after(j, FUSION_WINDOW) if wanted else ():
            if self._reads(k, str(wanted), j) and (wanted == "UNARY" or self._ready(self.nodes[k].src[1])):
                self._take(k)
                break

    def _pull_rows(self, rope: int) -> None:
        view = -1
        for k in self._after(rope, FUSION_WINDOW if self.fixed else ROW_WINDOW):
            if view < 0 and self._reads(k, "VIEW", rope):
                view = k
            elif view >= 0 and self._reads(k, "SET_ROWS", view):
                if not self.fixed or self._can_pull(rope, view, k):
                    self._take(view)
                    self._take(k)
                return

    def _can_pull(self, rope: int, view: int, rows: int) -> bool:
        """Whether the three can be fused, and nothing between them prevents it (``ggml_can_fuse_subgraph_ext``)."""
        one, two = self.nodes[rope], self.nodes[view]
        alone = self.uses[one] == self.uses[two] == 1 and not (one.flags | two.flags) & OUTPUT
        between = (c for c in range(rope + 1, rows) if not self.used[c] and c != view and not is_empty(self.nodes[c]))
        owns = one.view_src is None and two.view_src is one
        return alone and owns and not any(self.depends(self.nodes[rows], self.nodes[c]) for c in between)

    def _pull_gate(self, j: int) -> None:
        """The MUL that a UNARY is fused with (``ggml_vk_can_fuse_unary_mul``)."""
        gate = self.nodes[j]
        for k in self._after(j, FUSION_WINDOW):
            mul = self.nodes[k]
            if mul.op != "MUL" or gate not in mul.src[:2] or self.used[k] or k in self.current:
                continue
            other = mul.src[1] if mul.src[0] is gate else mul.src[0]
            fits = gate.desc in _GATES and gate.type == mul.type in ("f32", "f16")
            if other is None or not fits or other.type != gate.type or not self._ready(other):
                continue
            rows = is_contiguous(other, 1) and gate.src[0] is not None and is_contiguous(gate.src[0], 1)
            if rows and (can_repeat(other, gate) if mul.src[0] is gate else can_repeat(gate, other)):
                self._take(k)
                return

    def _after(self, j: int, window: int) -> range:
        return range(j + 1, min(j + window, len(self.nodes)))

    def _reads(self, k: int, op: str, j: int) -> bool:
        # ggml does not check whether a node is taken already, so it could be in the list twice.
        node = self.nodes[k]
        return node.op == op and node.src[0] is self.nodes[j] and not self.used[k] and k not in self.current

    def _ready(self, source: Tensor | None) -> bool:
        return source is not None and (source.op == "NONE" or source in self.done)

    def _take(self, k: int) -> None:
        self.current.append(k)
        self.used[k] = True
