"""What an optimiser made of a model: which nodes it kept, fused, folded and removed, and which it inserted.

Nodes are recognised by their names, and by the values that they make. Between two values that both graphs have, a node
that makes the second one stands for all nodes of the model that lay there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kvviz.graph.model import Graph, Node
from kvviz.trace.recording import Trace

KEPT, FUSED, FOLDED, REMOVED, INSERTED = "kept", "fused", "folded", "removed", "inserted"
_BLOCKED = "com.microsoft.nchwc"


@dataclass(frozen=True, slots=True)
class Change:
    """One node of the optimised graph with those of the model that it stands for, or one that is gone.

    ``kind``: ``"kept"``, ``"fused"`` (also: replaced), ``"folded"`` into a weight, ``"removed"`` or ``"inserted"``.
    ``nodes``: names in the model, in its order; none for what was inserted.
    ``ops``: their operators.
    ``into``: the node of the optimised graph, or the weight; empty where nothing is left.
    ``into_op``: its operator; empty for a weight.
    ``step``: of a folded value, the step that may not write over it; -1 where there is none.
    ``words``: one sentence.
    """

    kind: str
    nodes: tuple[str, ...]
    ops: tuple[str, ...]
    into: str
    into_op: str = ""
    step: int = -1
    words: str = ""


def changes(model: Graph, written: Graph, trace: Trace | None = None) -> tuple[Change, ...]:
    """What became of the nodes of a model's main graph; ``trace`` is a run of the optimised graph."""
    pairs = _pairs(model, written)
    gone = {node.index for nodes in pairs.values() for node in nodes}
    found = [_of_written(node, pairs[node.index]) for node in written.nodes]
    blocked = {} if trace is None else dict(_kept_by_weights(trace))
    lost: dict[str, Change] = {}
    # Backwards: what only folded nodes read was folded with them.
    for node in reversed(model.nodes):
        if node.index not in gone:
            lost[node.name] = _of_gone(model, written, node, lost, blocked)
    return (*found, *(lost[node.name] for node in model.nodes if node.name in lost))


def in_words(found: Sequence[Change]) -> list[str]:
    """Changes of one form together: ``"30 × Sigmoid, Mul → QuickGelu"``, what a weight prevents first."""
    sentences = [change.words for change in found if change.step >= 0]
    forms = Counter(
        (change.kind, change.ops, change.into_op) for change in found if change.kind != KEPT and change.step < 0
    )
    lines = []
    for (kind, ops, into), times in forms.most_common():
        left = ", ".join(f"{n} {op}" if n > 1 else op for op, n in Counter(ops).items())
        right = {FOLDED: "a weight", REMOVED: "nothing"}.get(kind, into)
        lines.append(f"{times:,} × {left} → {right}" if ops else f"{times:,} × {right} inserted")
    return sentences + lines


def _of_written(node: Node, nodes: Sequence[Node]) -> Change:
    names, ops = tuple(one.name for one in nodes), tuple(one.qualified_op for one in nodes)
    op = node.qualified_op
    if ops == (op,):
        return Change(KEPT, names, ops, node.name, op)
    words = f"{', '.join(ops)} became {op} {node.name!r}" if nodes else f"{op} {node.name!r} was inserted"
    return Change(FUSED if nodes else INSERTED, names, ops, node.name, op, words=words)


def _of_gone(
    model: Graph, written: Graph, node: Node, lost: Mapping[str, Change], blocked: Mapping[str, tuple[int, str]]
) -> Change:
    weight = next((name for name in node.outputs if name in written.weights), "")
    readers = [lost.get(reader.name) for name in node.outputs for reader in model.consumers.get(name, ())]
    if not weight and not (readers and all(one is not None and one.kind == FOLDED for one in readers)):
        words = f"{node.qualified_op} {node.name!r} was removed"
        return Change(REMOVED, (node.name,), (node.qualified_op,), "", words=words)
    into = weight or next(one.into for one in readers if one is not None)
    step, op = blocked.get(weight, (-1, ""))
    words = f"constant folding made {into!r} a weight"
    if op:
        words += f", and {op} may not write over a weight (step {step})"
    return Change(FOLDED, (node.name,), (node.qualified_op,), into, step=step, words=words)


def _kept_by_weights(trace: Trace) -> Iterator[tuple[str, tuple[int, str]]]:
    for step in reversed(trace.steps):
        for blocker in step.decision.blockers:
            if str(blocker.code) == "CONSTANT":
                yield blocker.input, (step.index, step.op_type)


def _pairs(model: Graph, written: Graph) -> dict[int, list[Node]]:
    """Index of each node of the optimised graph to those of the model that it stands for."""
    ours = {node.name: node for node in model.nodes}
    same = {*model.producers, *(value.name for value in model.inputs), *model.weights}
    twins = {node.index: twin for node in written.nodes if (twin := _twin(node, model, ours)) is not None}
    claimed = {twin.index for twin in twins.values()}
    stands_for: dict[str, str] = {}
    found: dict[int, list[Node]] = {}
    for node in reversed(written.nodes):
        ends = [stands_for.get(name, name if name in same else "") for name in node.outputs]
        twin = twins.get(node.index)
        if twin is not None:
            ends += twin.outputs
        moves = node.domain == _BLOCKED and node.op_type.startswith("Reorder")
        mine = [] if moves else _between(model, written, [end for end in ends if end], twin, claimed)
        found[node.index] = sorted(mine, key=lambda one: one.index)
        # What is read here under a new name is a value of the model: where its nodes begin, or what is only moved.
        inside = {name for one in mine for name in one.outputs}
        begins = (
            list(twin.inputs)
            if twin is not None
            else [n for o in found[node.index] for n in o.inputs if n not in inside]
        )
        new = [name for name in node.inputs if name and name not in same and name not in written.weights]
        if moves:
            begins = ends
        elif twin is None:
            begins = [name for name in dict.fromkeys(begins) if name not in written.weights and name not in node.inputs]
        else:
            begins = [old for name, old in zip(node.inputs, twin.inputs) if name in new]
        for name, old in zip(new, begins):
            stands_for.setdefault(name, old)
    return found


def _twin(node: Node, model: Graph, ours: Mapping[str, Node]) -> Node | None:
    """The node of the model that goes by the same name and operator; a blocked node is named after its first output."""
    if node.domain == _BLOCKED:
        return model.producers.get(node.name.removesuffix("_nchwc"))
    found = ours.get(node.name)
    return found if found is not None and found.op_type == node.op_type else None


def _between(model: Graph, written: Graph, ends: Sequence[str], twin: Node | None, claimed: set[int]) -> list[Node]:
    """Nodes of the model upwards from some values, up to values that the optimised graph has, too."""
    found: dict[int, Node] = {}
    pending = list(ends)
    while pending:
        node = model.producers.get(pending.pop())
        if node is None or node.index in found or (node.index in claimed and node is not twin):
            continue
        found[node.index] = node
        if node is not twin:
            pending += [name for name in node.inputs if name not in written.producers and name not in written.weights]
    return list(found.values())
