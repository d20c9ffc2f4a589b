"""Which node of a graph each run of a profile is of, and what the nodes gave, for a dry run of that graph.

A profile names nodes; the memory statistics add a hash to the name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from math import prod

from kvviz.engine.recorded_answers import Answer, Answers
from kvviz.graph.loading.from_onnx import node_proto
from kvviz.graph.model import Graph, GraphPath, Node
from kvviz.verification.session_record import NodeRun

Ran = tuple[GraphPath, Node, NodeRun]
"""A node, the path of its graph, and one of the times that it ran."""

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0x239B961B, 0xAB0E9789, 0x38B34AE5, 0xA1E38B93)
_ROUNDS = ((15, 19, 0x561CCD1B), (16, 17, 0x0BCAA747), (17, 15, 0x96CD1C35), (18, 13, 0x32AC3B17))


class ProfileAnswers(Answers):
    """The answers of one run, which branch it took, and how often its loops went round: no op needs a kernel here.

    ``runs``: of nodes of the graph, in the order of running.
    """

    def __init__(self, graph: Graph, runs: Sequence[Ran]) -> None:
        super().__init__(graph, {})
        often = Counter((path, node.name) for path, node, _ in runs)
        for part, node in graph.walk():
            key, inside = (part.path, node.name), {}
            for attribute, body in node.subgraphs.items():
                inside[attribute] = max((often[body.path, inner.name] for inner in body.nodes), default=0)
            # Of a branch without nodes nothing is reported.
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

    ``removed``: values of nodes that the session took out, to what is read instead.

    The hash is MurmurHash3 (x86, 128 bits) of one name after the other, seeded with what came before.
    Source: ``IResourceAccountant::MakeUniqueNodeName`` of onnxruntime 1.31.
    """
    state = [0, 0, 0, 0]
    for name in (*node.inputs, *node.outputs):
        while name in removed:
            name = removed[name]
        state = _murmur(name.encode(), state[0])
    return f"{_own_name(graph, node) or node.op_type}_{state[0] | state[1] << 32}"


def matched(graph: Graph, runs: Sequence[NodeRun]) -> tuple[list[Ran], list[str]]:
    """Runs with the nodes that ran, and the names in those of which it is not clear which node it was.

    Of nodes of one name in several bodies, it is the one whose body also ran others. A node without a name goes by its
    operator and its number in the session. In a model as it was written that is its place in the file, constants left
    out; a session writes its nodes in the order in which they run.
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
    """The node's name in the model file; empty where it has none."""
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
