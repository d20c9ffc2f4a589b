"""Which node of a graph each run of a profile belongs to, and what an optimiser made of the graph's nodes.

A profile names nodes; the memory statistics add a hash to the name. Nodes of an optimised graph are recognised by their
names, and by the values that they make. Between two values that both graphs have, the node that makes the second one
stands for all nodes of the model between them. A body is compared with the body of the node that stands for the
enclosing one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import prod

from kvviz.engine.recorded_answers import Answer, Answers
from kvviz.graph.loading.from_onnx import node_proto
from kvviz.graph.model import Graph, GraphPath, Node
from kvviz.trace.recording import Trace
from kvviz.verification.session_record import NodeRun

Ran = tuple[GraphPath, Node, NodeRun]
"""A node, the path of its graph, and one of its runs."""

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0x239B961B, 0xAB0E9789, 0x38B34AE5, 0xA1E38B93)
_ROUNDS = ((15, 19, 0x561CCD1B), (16, 17, 0x0BCAA747), (17, 15, 0x96CD1C35), (18, 13, 0x32AC3B17))


class ProfileAnswers(Answers):
    """Recorded results of one run: the branches taken, and the iterations of its loops; kernels are not needed.
    ``runs``: of nodes of the graph, in running order."""

    def __init__(self, graph: Graph, runs: Sequence[Ran]) -> None:
        super().__init__(graph, {})
        often = Counter((path, node.name) for path, node, _ in runs)
        for part, node in graph.walk():
            key, inside = (part.path, node.name), {}
            for attribute, body in node.subgraphs.items():
                inside[attribute] = max((often[body.path, inner.name] for inner in body.nodes), default=0)
            # A branch without nodes is not reported.
            taken = [name for name, times in inside.items() if times or not node.subgraphs[name].nodes]
            taken = [name for name in taken if inside[name]] or taken
            if node.op_type == "If" and len(taken) == 1:
                self[key] = int(taken[0] == "then_branch")
            elif node.op_type == "Loop" and often[key] and not inside["body"] % often[key]:
                self[key] = inside["body"] // often[key]
        for path, node, run in runs:
            given = iter(run.outputs)
            layouts = tuple(next(given, None) if name else None for name in node.outputs)
            written = sum(prod(shape) * dtype.itemsize for shape, dtype in filter(None, layouts))
            self.calls.setdefault((path, node.name), []).append(Answer(layouts, (written, 0), ()))


def unique_name(graph: Graph, node: Node, removed: Mapping[str, str]) -> str:
    """A node as the memory statistics name it: its name or operator, and a hash of the names of its values.

    ``removed``: values of nodes that the session removed, and what is read instead. The hash is MurmurHash3 (x86, 128
    bits) of one name after the other, each seeded with the previous hash. Source:
    ``IResourceAccountant::MakeUniqueNodeName`` of onnxruntime 1.31.
    """
    state = [0, 0, 0, 0]
    for name in (*node.inputs, *node.outputs):
        while name in removed:
            name = removed[name]
        state = _murmur(name.encode(), state[0])
    return f"{_own_name(graph, node) or node.op_type}_{state[0] | state[1] << 32}"


def matched(graph: Graph, runs: Sequence[NodeRun]) -> tuple[list[Ran], list[str]]:
    """Runs with their nodes, and the names of runs whose node is ambiguous.

    Of nodes of one name in several bodies, it is the one whose body also ran others. A node without a name has its
    operator and its number in the session as a name: in an unoptimised model its place in the file, without constants,
    but a session writes its nodes in running order.
    """
    named: dict[str, list[tuple[Graph, Node]]] = defaultdict(list)
    for part, node in graph.walk():
        named[_own_name(part, node)].append((part, node))
    nameless = [node for part, node in named.pop("", ()) if part is graph]
    places = enumerate(sorted(graph.nodes, key=lambda node: node.index))
    numbers = {f"{node.op_type}_{at}": node for at, node in places if node in nameless}
    as_written = {run.name for run in runs} <= {*numbers, *named}
    for run in runs:
        if run.name not in named:
            of_kind = [numbers[run.name]] if as_written else [node for node in nameless if node.op_type == run.op_type]
            if of_kind:
                nameless.remove(of_kind[0])
                named[run.name] = [(graph, of_kind[0])]
    entered = {named[run.name][0][0] for run in runs if len(named.get(run.name, ())) == 1}
    found: list[Ran] = []
    missing: list[str] = []
    for run in runs:
        same = [(part, node) for part, node in named.get(run.name, ()) if node.op_type == run.op_type]
        if len(same) > 1:
            same = [(part, node) for part, node in same if part in entered]
        if len(same) == 1:
            found.append((same[0][0].path, same[0][1], run))
        else:
            missing.append(run.name)
    return found, missing


def _own_name(graph: Graph, node: Node) -> str:
    name: str = node_proto(graph, node).name
    return name


def _murmur(data: bytes, seed: int) -> list[int]:
    h = [seed] * 4
    for start in range(0, len(data), 16):
        for i, (first, second, more) in enumerate(_ROUNDS):
            k = int.from_bytes(data[start + 4 * i : start + 4 * i + 4], "little") * _MULTIPLIERS[i] & _MASK
            h[i] ^= _turned(k, first) * _MULTIPLIERS[(i + 1) % 4] & _MASK
            if start + 16 <= len(data):
                h[i] = (_turned(h[i], second) + h[(i + 1) % 4]) * 5 + more & _MASK
    h = _mixed([part ^ len(data) for part in h])
    for i, part in enumerate(h):
        part = (part ^ part >> 16) * 0x85EBCA6B & _MASK
        part = (part ^ part >> 13) * 0xC2B2AE35 & _MASK
        h[i] = part ^ part >> 16
    return _mixed(h)


def _turned(x: int, bits: int) -> int:
    return (x << bits | x >> 32 - bits) & _MASK


def _mixed(h: Sequence[int]) -> list[int]:
    total = sum(h) & _MASK
    return [total, *(part + total & _MASK for part in h[1:])]


KEPT, FUSED, FOLDED, REMOVED, INSERTED = "kept", "fused", "folded", "removed", "inserted"
INLINED = "inlined"
_BLOCKED = "com.microsoft.nchwc"
_ORIGIN = {"Upsample": "Resize"}

Weights = Mapping[tuple[GraphPath, str], tuple[int, str]]
"""Weights of a graph that an op may not write over: step and operator."""


@dataclass(frozen=True, slots=True)
class Change:
    """One node of the optimised graph with those of the model that it stands for, or one that was removed.

    ``kind``: ``"kept"``, ``"fused"`` (also: replaced), ``"folded"`` into a weight, ``"removed"``, ``"inserted"``, or
      ``"inlined"``: from the branch of an If whose condition is constant; the nodes of such branches are not listed.
    ``nodes, ops``: names in the model, in its order, and their operators; none for an inserted node.
    ``into, into_op``: the node of the optimised graph or the weight, and its operator; empty if there is none.
    ``frame``: their body, such as ``"loop[body]"``; empty for the main graph.
    ``step``: of a folded value, the step that may not write over it; -1 if none.
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
    """Changes grouped by form: ``"30 × Sigmoid, Mul → QuickGelu"``, those that affect a weight first."""
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
    # Backwards: nodes read only by folded nodes were folded with them.
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
    """For each node of the optimised graph, by index, the nodes of the model that it stands for."""
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
        # Its inputs under new names are the first reads of its nodes, or values that it only moves.
        made = {name for one in mine.values() for name in one.outputs} | {*node.inputs, *written.weights}
        read = dict.fromkeys(name for one in found[node.index] for name in one.inputs if name not in made)
        for name, old in zip(sorted(new[node.index]), read if mine else ends):
            stands_for.setdefault(name, old)
    return found


def _root(node: Node, model: Graph, ours: Mapping[str, Node]) -> Node | None:
    """The node of the model with the same name and operator; a blocked node is named after its output."""
    if node.domain != _BLOCKED:
        twin = ours.get(node.name)
        return twin if twin is not None and twin.op_type == node.op_type else None
    one = model.producers.get(node.name.removesuffix("_nchwc"))
    while one is not None and one.op_type != _ORIGIN.get(node.op_type, node.op_type):
        one = model.producers.get(one.inputs[0]) if one.inputs else None
    return one


def _values(graph: Graph) -> Set[str]:
    return {*graph.producers, *graph.weights, *(value.name for value in graph.inputs)}
