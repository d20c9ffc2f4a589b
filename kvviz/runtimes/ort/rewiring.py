"""A model as onnxruntime has it after copying DequantizeLinears and removing Casts.

A removed Cast reads the value that it stands for. Of two Casts that lead back to their start, the second one is
removed, and its readers read the first one's input. The first one stays if something else reads it. It may then come
later, or overwrite unneeded values, so the second one, which still runs here, must not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from kvviz.engine.plan import needed
from kvviz.graph.model import MAX_NODES, Graph, Node, Value
from kvviz.runtimes.frontier import Log, PlanningEvent, descend, first_output, reads
from kvviz.runtimes.ort.known_types import adopt, known

Types = Mapping[str, Value]
_BITS = {"bool": 1, "bfloat16": 16}


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The nodes that onnxruntime plans, with inputs renamed where a Cast before them was removed. ``stands_for``: by
    output of a removed Cast, the value that its readers read instead."""

    nodes: tuple[Node, ...]
    stands_for: Mapping[str, str]


def without_duplicates(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str], types: Types) -> Rewritten:
    """Remove the Casts that onnxruntime removes. ``nodes``: those that are planned. ``outputs``: a Cast that makes one
    of them stays."""
    if sum(is_cast(node) for node in nodes) < 2:
        return Rewritten(tuple(nodes), {})
    work = _Work(nodes, outputs, types)
    for index in sorted(work.left):
        if index in work.left and is_cast(work.left[index]):
            work.look_at(index)
    return Rewritten(tuple(work.left.values()), {name: _end(work.gone, name) for name in work.gone})


class _Work:
    """The remaining nodes, the readers of values, and the removed Casts."""

    def __init__(self, nodes: Sequence[Node], outputs: Sequence[str], types: Types) -> None:
        self.left = {node.index: node for node in nodes}
        self.kinds = {name: value.dtype for name, value in types.items()}
        self.wanted = set(outputs)
        self.gone: dict[str, str] = {}
        self.readers: dict[str, list[int]] = {}  # one entry a reading
        for node in nodes:
            for name in (*node.inputs, *node.captures):
                self.readers.setdefault(name, []).append(node.index)

    def look_at(self, index: int) -> None:
        """Drop a Cast, and those after it that lead back, if the rules allow it."""
        node, kinds = self.left[index], self.kinds
        source, made = node.inputs[0], node.outputs[0]
        readers = sorted(self.readers.get(made, ()))
        casts = [self.left[i] for i in readers if is_cast(self.left[i])]
        lossy = is_unsafe(kinds.get(source), kinds.get(made))
        if not casts or (lossy and any(is_unsafe(kinds.get(c.outputs[0]), kinds.get(made)) for c in casts)):
            return
        back = [c for c in casts if c.outputs[0] not in self.wanted and kinds.get(c.outputs[0]) == kinds.get(source)]
        for cast in back:
            self._drop(cast, source)
        to_bool = any(kinds.get(c.outputs[0]) == np.bool_ for c in casts if c.index in self.left)
        if len(casts) == len(readers) and made not in self.wanted and not (lossy and to_bool):
            self._drop(node, source)

    def _drop(self, cast: Node, source: str) -> None:
        made = cast.outputs[0]
        del self.left[cast.index]
        self.gone[made] = source
        self.readers[cast.inputs[0]].remove(cast.index)
        moved = self.readers.pop(made, [])
        for index in set(moved):
            reader = self.left[index]
            self.left[index] = replace(
                reader,
                inputs=tuple(source if name == made else name for name in reader.inputs),
                captures=tuple(dict.fromkeys(source if name == made else name for name in reader.captures)),
            )
        self.readers.setdefault(source, []).extend(moved)


def is_cast(node: Node) -> bool:
    return node.op_type == "Cast" and not node.domain


def _end(gone: Mapping[str, str], name: str) -> str:
    while name in gone:
        name = gone[name]
    return name


def is_unsafe(source: np.dtype | None, target: np.dtype | None) -> bool:
    """Whether a cast may change a number, by onnxruntime's rules; an unknown type counts as one that does."""
    if source is None or target is None:
        return True
    a, b = _group(source), _group(target)
    if not a or not b:
        return True
    bits, room = (_BITS.get(str(dtype), dtype.itemsize * 8) for dtype in (source, target))
    if b == "unsigned" and a in ("float", "signed"):
        return True
    if a == "float" and b != "float":
        return True
    if (a == "unsigned" and b == "signed") or (a in ("signed", "unsigned") and b == "float"):
        return room <= bits
    if {str(source), str(target)} == {"float16", "bfloat16"}:
        return True
    return bits > room


def _group(dtype: np.dtype) -> str:
    if str(dtype) in ("float16", "bfloat16", "float32", "float64"):
        return "float"
    return {"b": "bool", "i": "signed", "u": "unsigned"}.get(dtype.kind, "")


def rewired(graph: Graph, outputs: Sequence[str]) -> Graph:
    """A main graph with copies of DequantizeLinears, in which removed Casts read what they stand for, at any depth; the
    graph itself if nothing changes. ``outputs``: wanted values."""
    key = ("onnxruntime", tuple(outputs))
    found = graph.derived.get(key)
    if found is None:
        known(graph)
        found = _rewired(graph, outputs)
        if found is not graph:
            graph.derived[key] = found
    return found


def remaining(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str]) -> Rewritten:
    """onnxruntime's nodes among these, derived from the model's own nodes."""
    facts = known(graph)
    return without_duplicates(graph, [facts.written.get(n.index, n) for n in nodes], outputs, facts.types)


def _rewired(graph: Graph, outputs: Sequence[str]) -> Graph:
    copied, stands_for = with_own_dequantizers(graph, needed(graph, outputs), outputs)
    nodes = tuple(map(_with_rewired_bodies, copied))
    new = graph
    if stands_for or any(node is not old for node, old in zip(nodes, graph.nodes)):
        new = replace(graph, nodes=nodes)
        adopt(new, graph, stands_for)
    gone = remaining(new, needed(new, outputs), outputs).stands_for
    changed = {}
    for made, source in gone.items():
        cast = new.producers[made]
        if cast.inputs[0] not in gone and cast.inputs[0] != source:
            changed[cast.index] = replace(cast, inputs=(source,))
    if not changed:
        return new
    rewritten = replace(new, nodes=tuple(changed.get(node.index, node) for node in new.nodes))
    adopt(rewritten, new)
    return rewritten


def _with_rewired_bodies(node: Node) -> Node:
    bodies = {name: _rewired(body, _names(body)) for name, body in node.subgraphs.items()}
    function = None if node.function is None else _rewired(node.function, _names(node.function))
    if function is node.function and all(bodies[name] is body for name, body in node.subgraphs.items()):
        return node
    return replace(node, subgraphs=bodies, function=function)


def _names(graph: Graph) -> tuple[str, ...]:
    return tuple(value.name for value in graph.outputs)


# -- own dequantizers -------------------------------------------------------------------------------------------------
# A DequantizeLinear of its own for every node that reads one: onnxruntime adds copies before it does anything else.
#
# Its kernels for quantized types need a DequantizeLinear that nobody else reads. Copies are added at every
# optimisation level; only the session option ``session.disable_quant_qdq`` prevents it. Source:
# ``EnsureUniqueDQForNodeUnit`` of onnxruntime 1.31.


def with_own_dequantizers(
    graph: Graph, nodes: Sequence[Node], outputs: Sequence[str]
) -> tuple[tuple[Node, ...], Mapping[str, str]]:
    """The nodes of a graph with the copies that onnxruntime adds, each just behind its original; also a map from the
    output of each copy to that of its original. ``nodes``: those that run; the others stay unchanged. ``outputs``:
    wanted values."""
    readers = _readers(nodes)
    if not any(_is_shared(node, readers, outputs) for node in nodes):
        return graph.nodes, {}
    now = {node.index: node for node in graph.nodes}
    copies: dict[int, list[Node]] = {}
    stands_for: dict[str, str] = {}
    values, names, suffix = (
        {*graph.producers, *graph.weights},
        {node.name for node in graph.nodes},
        map("_token_{}".format, count()),
    )
    for index in [node.index for node in walk(nodes) if _is_shared(node, readers, outputs)]:
        made = now[index].outputs[0]
        edges, keeps = readers[made], made in outputs or any(position < 0 for _, position in readers[made])
        for reader, position in [edge for edge in edges if edge[1] >= 0][not keeps :]:
            value, name = _unused(made, values, suffix), _unused(now[index].name, names, suffix)
            number = sum(map(len, copies.values())) + 1
            copy = replace(now[index], name=name, outputs=(value,), index=index + number * MAX_NODES)
            copies.setdefault(index, []).append(copy)
            stands_for[value] = made
            inputs = now[reader].inputs
            now[reader] = replace(now[reader], inputs=(*inputs[:position], value, *inputs[position + 1 :]))
    listed = (one for node in graph.nodes for one in (now[node.index], *copies.get(node.index, ())))
    return tuple(listed), stands_for


def _readers(nodes: Sequence[Node]) -> dict[str, list[tuple[int, int]]]:
    """By value, the indices of its readers, with the input position, -1 for a capture of a body."""
    found: dict[str, list[tuple[int, int]]] = {}
    for node in sorted(nodes, key=lambda node: node.index):
        for position, name in enumerate(node.inputs):
            found.setdefault(name, []).append((node.index, position))
        for name in node.captures:
            found.setdefault(name, []).append((node.index, -1))
    return found


def _is_shared(node: Node, readers: Mapping[str, Sequence[tuple[int, int]]], outputs: Sequence[str]) -> bool:
    if node.op_type != "DequantizeLinear" or node.domain not in ("", "com.microsoft"):
        return False
    return len(readers.get(node.outputs[0], ())) + (node.outputs[0] in outputs) > 1


def _unused(base: str, taken: set[str], suffix: Iterator[str]) -> str:
    """A name as onnxruntime makes it, which is noted as taken."""
    name = base = f"{base}/duplicated"
    while name in taken:
        name = base + next(suffix)
    taken.add(name)
    return name


def walk(nodes: Sequence[Node], log: Log | None = None) -> list[Node]:
    """The walk itself, over nodes whose inputs are as onnxruntime has them."""
    makers = {name: node for node in nodes for name in node.outputs if name}
    followed = {makers[name].index for node in nodes for name in reads(node) if name in makers}
    order: list[Node] = []
    met: set[int] = set()

    def say(node: Node, value: str, action: str, reason: str, depth: int) -> None:
        if log is not None:
            log(PlanningEvent("walk", node, value, action, reason, planned=len(order), depth=depth))

    def above(node: Node, depth: int) -> Iterator[Node]:
        values: dict[int, str] = {}
        for name in reads(node):
            if name in makers and makers[name].index not in met:
                values.setdefault(makers[name].index, name)
        for index in sorted(values, reverse=True):
            value, maker = values[index], makers[values[index]]
            if index in met:
                say(maker, value, "skip", f"{maker.op_type} was met already", depth)
                continue
            why = f"{node.op_type} reads {value}; of what it reads, the model lists this maker last among those left"
            say(maker, value, "visit", why, depth)
            met.add(index)
            yield maker

    for end in sorted((node for node in nodes if node.index not in followed), key=lambda node: -node.index):
        why = f"nothing follows {end.op_type}; of such ends the one that the model lists last comes first"
        say(end, first_output(end), "visit", why, 0)
        met.add(end.index)
        for node, depth in descend(end, above):
            order.append(node)
            say(node, first_output(node), "append", f"all that {node.op_type} reads is in the order now", depth)
    return order
