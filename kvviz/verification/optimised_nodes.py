"""What an optimiser made of a model: which nodes it kept, fused, folded and removed, and which it inserted.

Nodes are recognised by their names, and by the values that they make. Between two values that both graphs have, a node
that makes the second one stands for all nodes of the model that lay there. A body is compared with the body of the node
that stands for the one around it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from kvviz.graph.model import Graph, GraphPath, Node
from kvviz.trace.recording import Trace

KEPT, FUSED, FOLDED, REMOVED, INSERTED = "kept", "fused", "folded", "removed", "inserted"
INLINED = "inlined"
_BLOCKED = "com.microsoft.nchwc"
_ORIGIN = {"Upsample": "Resize"}

Weights = Mapping[tuple[GraphPath, str], tuple[int, str]]
"""Weights of a graph that an op may not write over: step and operator."""


@dataclass(frozen=True, slots=True)
class Change:
    """One node of the optimised graph with those of the model that it stands for, or one that is gone.

    ``kind``: ``"kept"``, ``"fused"`` (also: replaced), ``"folded"`` into a weight, ``"removed"``, ``"inserted"``, or
      ``"inlined"``: out of the branch of an If whose condition is constant. The nodes of such branches are not listed.
    ``nodes``: names in the model, in its order; none for what was inserted.
    ``ops``: their operators.
    ``into``: the node of the optimised graph, or the weight; empty where nothing is left.
    ``into_op``: its operator; empty for a weight.
    ``frame``: the body that they are in, such as ``"loop[body]"``; empty for the main graph.
    ``step``: of a folded value, the step that may not write over it; -1 where there is none.
    ``words``: of a folded value, one sentence.
    """

    kind: str
    nodes: tuple[str, ...]
    ops: tuple[str, ...]
    into: str = ""
    into_op: str = ""
    frame: str = ""
    step: int = -1
    words: str = ""


def changes(model: Graph, written: Graph, trace: Trace) -> tuple[Change, ...]:
    """What became of the nodes of a model and of its bodies; ``trace`` is a run of the optimised graph."""
    frames = trace.log.frames
    blocked = {
        (frames[trace.log[step.index].frame].program.graph.path, blocker.input): (step.index, step.op_type)
        for step in reversed(trace.steps)
        for blocker in step.decision.blockers
        if str(blocker.code) == "CONSTANT"
    }
    return tuple(_changes(model, written, blocked, frozenset(), ""))


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
        lines.append(f"{times:,} × {left} → {right}" if ops else f"{times:,} × {right} {kind}")
    return sentences + lines


def _changes(model: Graph, written: Graph, blocked: Weights, outer: Set[str], frame: str) -> Iterator[Change]:
    """``outer``: values and weights of the graphs around both."""
    pairs = _pairs(model, written, outer)
    gone = {node.index for nodes in pairs.values() for node in nodes}
    for node in written.nodes:
        nodes, op = pairs[node.index], node.qualified_op
        names, ops = tuple(one.name for one in nodes), tuple(one.qualified_op for one in nodes)
        kind = KEPT if ops == (op,) else INLINED if node.name.startswith("_if_") else FUSED if nodes else INSERTED
        yield Change(kind, names, ops, node.name, op, frame)
    lost: dict[str, Change] = {}
    # Backwards: what only folded nodes read was folded with them.
    for node in reversed([node for node in model.nodes if node.index not in gone]):
        lost[node.name] = _of_gone(model, written, node, lost, blocked, frame)
    yield from reversed(lost.values())
    here = outer | {*_values(model), *_values(written)}
    for node in written.nodes:
        twin = next((one for one in pairs[node.index] if one.subgraphs.keys() == node.subgraphs.keys()), None)
        if twin is None:
            continue
        for name, body in node.subgraphs.items():
            inside = f"{frame}/" * bool(frame) + f"{node.name}[{name}]"
            yield from _changes(twin.subgraphs[name], body, blocked, here, inside)


def _of_gone(
    model: Graph, written: Graph, node: Node, lost: Mapping[str, Change], blocked: Weights, frame: str
) -> Change:
    who = (node.name,), (node.qualified_op,)
    weight = next((name for name in node.outputs if name in written.weights), "")
    readers = [lost.get(reader.name) for name in node.outputs for reader in model.consumers.get(name, ())]
    if not weight and not (readers and all(one is not None and one.kind == FOLDED for one in readers)):
        return Change(REMOVED, *who, frame=frame)
    into = weight or next(one.into for one in readers if one is not None)
    step, op = blocked.get((written.path, weight), (-1, ""))
    words = f"constant folding made {into!r} a weight"
    if op:
        words += f", and {op} may not write over a weight (step {step})"
    return Change(FOLDED, *who, into, frame=frame, step=step, words=words)


def _pairs(model: Graph, written: Graph, outer: Set[str]) -> dict[int, list[Node]]:
    """Index of each node of the optimised graph to those of the model that it stands for."""
    ours = {node.name: node for node in model.nodes}
    same = {*model.producers, *(value.name for value in model.inputs)} | outer
    roots = {node.index: _root(node, model, ours) for node in written.nodes}
    new = {node.index: {name for name in node.inputs if name} - same - {*written.weights} for node in written.nodes}
    stands_for: dict[str, str] = {}  # values under new names to those of the model
    stops = {*written.producers, *written.weights}
    for node in written.nodes:
        if root := roots[node.index]:
            stops.update(root.outputs)
            stands_for.update((name, old) for name, old in zip(node.inputs, root.inputs) if name in new[node.index])
    stops.update(stands_for.values())
    found: dict[int, list[Node]] = {}
    for node in reversed(written.nodes):
        root = roots[node.index]
        own = () if root is None else root.outputs
        ends = [name if name in same else stands_for.get(name, "") for name in node.outputs]
        mine: dict[int, Node] = {}
        only_moves = node.domain == _BLOCKED and node.op_type.startswith("Reorder")
        pending = [] if only_moves else [*ends, *own]
        while pending:
            one = model.producers.get(pending.pop())
            if one is not None and one.index not in mine:
                mine[one.index] = one
                pending += [name for name in one.inputs if one is not root and (name not in stops or name in own)]
        found[node.index] = [mine[index] for index in sorted(mine)]
        # What it reads under a new name is what its nodes read first, or what it only moves.
        made = {name for one in mine.values() for name in one.outputs} | {*node.inputs, *written.weights}
        read = dict.fromkeys(name for one in found[node.index] for name in one.inputs if name not in made)
        for name, old in zip(sorted(new[node.index]), read if mine else ends):
            stands_for.setdefault(name, old)
    return found


def _root(node: Node, model: Graph, ours: Mapping[str, Node]) -> Node | None:
    """The node of the model that goes by the same name and operator; a blocked node is named after its output."""
    if node.domain != _BLOCKED:
        twin = ours.get(node.name)
        return twin if twin is not None and twin.op_type == node.op_type else None
    one = model.producers.get(node.name.removesuffix("_nchwc"))
    while one is not None and one.op_type != _ORIGIN.get(node.op_type, node.op_type):
        one = model.producers.get(one.inputs[0]) if one.inputs else None
    return one


def _values(graph: Graph) -> Set[str]:
    return {*graph.producers, *graph.weights, *(value.name for value in graph.inputs)}
