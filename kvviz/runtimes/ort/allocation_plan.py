"""onnxruntime's allocation plan: before anything runs, which buffer each value will have, and why.

One pass over the nodes in running order. Use counts belong to a buffer, not to a value: a view adds its own to those of
the viewed value. Source: ``core/framework/allocation_planner.cc`` of onnxruntime 1.31, one stream, sequential
execution; checked against the released wheel, output by output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvviz.graph.model import Graph, Node, Value
from kvviz.runtimes.ort import refusal
from kvviz.trace import blockers as b

ALLOCATE, ALLOCATE_OUTPUT, REUSE, SHARE = "kAllocate", "kAllocateOutput", "kReuse", "kShare"
PRE_EXISTING, STATIC = "kPreExisting", "kAllocateStatically"
ALIAS, MAY_INPLACE, FREELIST = "Alias", "MayInplace", "freelist"

Types = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Buffer:
    """The plan of one value.

    ``kind``: in onnxruntime's words: ``kAllocate``, ``kAllocateOutput``, ``kReuse``, ``kShare``, ``kPreExisting`` or
      ``kAllocateStatically``.
    ``root``: the value whose buffer it has, perhaps itself.
    ``rule``: of a reuse: ``"Alias"``, ``"MayInplace"`` or ``"freelist"``.
    ``position``: the input of an alias or in-place reuse, else -1.
    ``refused``: input positions that the op could have taken over, each with a bit mask of all reasons against it
      (`kvviz.trace.blockers`, and `kvviz.runtimes.ort.refusal` for the planner's own).
    """

    value: str
    kind: str
    root: str
    rule: str = ""
    position: int = -1
    refused: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        """In onnxruntime's words, e.g. ``kReuse of relu_out (MayInplace)``."""
        return f"{self.kind} of {self.root} ({self.rule})" if self.rule else self.kind


class AllocationPlan:
    """onnxruntime's plan of one graph, the main graph or a body.

    ``order``: nodes in running order, with inputs renamed where a Cast before them was removed.
    ``outputs``: wanted values.
    ``types``: known types of values; dimensions as numbers or names.
    ``inside``: operator of the node that a body belongs to.
    ``mem_reuse``: session option ``enable_mem_reuse``: whether dead buffers are reused; running in place is not
      affected.
    ``parallel``: execution mode ``ORT_PARALLEL``: nothing in the main graph shares a buffer, not even an alias.
    ``buffers``: of every value that the nodes make or read.
    """

    def __init__(
        self,
        graph: Graph,
        order: Sequence[Node],
        outputs: Sequence[str],
        types: Types,
        inside: str = "",
        mem_reuse: bool = True,
        parallel: bool = False,
    ) -> None:
        self.order = order
        self.graph = graph
        self.inside = inside
        self.types = types
        self.outputs = frozenset(outputs)
        self.alone = parallel and not inside
        self.mem_reuse = mem_reuse and not self.alone
        # Roots of dead buffers by size, the latest one at the end.
        self.free: dict[refusal.Size, list[str]] = {}
        self.buffers: dict[str, Buffer] = {}
        self.needed: Counter[str] = Counter()  # of each buffer, how many of its values are read again or wanted
        self.uses: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()  # readings left of each value, for the reasons
        made = {name for node in order for name in node.outputs}
        lent = {value.name for value in graph.inputs}
        for node in order:
            self.reads.update(name for name in (*node.inputs, *node.captures) if name)
            lent.update(n for n in (*node.inputs, *node.captures) if n and n not in made and n not in graph.weights)
        for name in (*lent, *graph.weights):
            # The caller, the outer graph or the model needs it after the run: one use that never ends.
            self.uses[name] += 1
            kind = STATIC if name in graph.weights else PRE_EXISTING
            self._own(name, kind)
        self.uses.update(self.reads)
        self.uses.update(name for name in made if name)
        self.uses.update(outputs)
        for node in order:
            self._plan(node)

    def _plan(self, node: Node) -> None:
        """Plan the outputs of the next node, and release its last reads."""
        pairs = self._pairs(node)
        for j, name in enumerate(node.outputs):
            if name:
                self._place(node, pairs[j], name)
        for name in (*node.inputs, *node.captures):
            if name:
                self.reads[name] -= 1
                if not self._is_needed(name):
                    self.needed[self.buffers[name].root] -= 1
                self._release(name)
        for name in node.outputs:
            if name:
                self._release(name)

    def _place(self, node: Node, pairs: list[tuple[int, bool]], name: str) -> None:
        refused: list[tuple[int, int]] = []
        if name in self.outputs:
            shared = node.op_type == "Identity" and self.inside == "Loop" and self._is_lent(node.inputs[0])
            if shared:
                # The state of a loop that its body only returns; the iteration number is overwritten.
                self._reuse(node.inputs[0], name, SHARE, ALIAS, 0, ())
                return
            for i, must in pairs:
                refused.append((i, refusal.OUTPUT | (0 if must else self._refusal(node, i, name))))
            self._own(name, ALLOCATE_OUTPUT, tuple(refused))
            return
        for i, must in pairs:
            mask = 0 if must else self._refusal(node, i, name)
            if not mask:
                self._reuse(node.inputs[i], name, REUSE, ALIAS if must else MAY_INPLACE, i, ())
                return
            refused.append((i, mask))
        dead = self._dead(name)
        if dead is None:
            self._own(name, ALLOCATE, tuple(refused))
        else:
            self._reuse(dead, name, REUSE, FREELIST, -1, tuple(refused))

    def _pairs(self, node: Node) -> dict[int, list[tuple[int, bool]]]:
        """Output position to the inputs that it must (True) or may (False) take over, in onnxruntime's order."""
        found: dict[int, list[tuple[int, bool]]] = {j: [] for j in range(len(node.outputs))}
        if self.alone:
            return found
        first = self.types.get(node.inputs[0]) if node.inputs else None
        may = refusal.may_inplace(node, None if first is None else first.dtype)
        for pairs, must in ((refusal.alias(node), True), (may, False)):
            for i, j in pairs:
                if i < len(node.inputs) and node.inputs[i] and j in found:
                    found[j].append((i, must))
        return found

    def _refusal(self, node: Node, position: int, output: str) -> int:
        name = node.inputs[position]
        root = self.buffers[name].root
        mask = 0
        if self.uses[root] > 1:
            here = node.inputs.count(name) + node.captures.count(name)
            others = self.needed[root] - self._is_needed(name)
            kind = self.buffers[root].kind
            reasons = (
                (b.REQUESTED_OUTPUT, name in self.outputs),
                (b.SAME_OP_TWICE, here > 1),
                (b.NOT_LAST_USE, self.reads[name] > here),
                (b.ALIASED, others > 0),
                (b.CONSTANT, kind == STATIC),
                (b.CAPTURED_BY_REFERENCE if self.inside else b.BORROWED_INPUT, kind == PRE_EXISTING),
            )
            mask = sum(bit for bit, holds in reasons if holds)
        return mask | refusal.size(self.types.get(name), self.types.get(output))

    def _dead(self, name: str) -> str | None:
        """Take a dead buffer of the size of a value, the latest one; None for scalars and unread values."""
        mine = self.types.get(name)
        if not self.mem_reuse or not self.reads[name] or mine is None or not mine.shape:
            return None
        size = refusal.size_of(mine)
        dead = self.free.get(size) if size else None
        return dead.pop() if dead else None

    def _is_needed(self, name: str) -> bool:
        return self.reads[name] > 0 or name in self.outputs

    def _is_lent(self, name: str) -> bool:
        inputs = self.graph.inputs
        return self.buffers[name].kind == PRE_EXISTING and not (inputs and name == inputs[0].name)

    def _own(self, name: str, kind: str, refused: tuple[tuple[int, int], ...] = ()) -> None:
        self.buffers[name] = Buffer(name, kind, name, refused=refused)
        self.needed[name] = int(self._is_needed(name))

    def _reuse(
        self, source: str, name: str, kind: str, rule: str, position: int, refused: tuple[tuple[int, int], ...]
    ) -> None:
        root = self.buffers[source].root
        self.buffers[name] = Buffer(name, kind, root, rule, position, refused)
        self.needed[root] += self._is_needed(name)
        self.uses[root] += self.uses[name]

    def _release(self, name: str) -> None:
        root = self.buffers[name].root
        self.uses[root] -= 1
        if self.uses[root] == 0:
            size = refusal.size_of(self.types.get(root))
            if size:
                self.free.setdefault(size, []).append(root)
