"""Repeated layers as one thing: for each node of a graph its layer, and its role there, the same in all layers alike.

Invariant: a role stands once in each layer, and what belongs to no layer has a role of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from kvviz.graph.alignment import Part, aligned
from kvviz.graph.model import Graph, Node
from kvviz.graph.module_paths import Scope
from kvviz.graph.repetition import repeated


class Place(NamedTuple):
    """Where a node stands among the repeated layers of its graph.

    ``layer``: its number, None for a node of no layer.
    ``role``: its place inside its layer by name, ``"self_attn/k_cache/Concat"``; what follows a ``#`` counts in the
      order of the model, other numbers are the exporter's own.
    """

    layer: int | None
    role: str


def inside(outer: Place | None, graph: Graph | None, attribute: str, own: Place) -> Place:
    """A place in a body, told from the main graph.

    ``outer``: the place of the node that has the body, in ``graph``, told from the main graph; None: this is it.
    """
    if outer is None or graph is None:
        return own
    layer = outer.layer if own.layer is None else own.layer
    if attribute == "function":
        return Place(layer, f"{outer.role} › {own.role}")
    # Where no other node has bodies, the branch says enough.
    alone = sum(bool(node.subgraphs) for node in graph.nodes) == 1
    return Place(layer, f"{attribute} › {own.role}" if alone else f"{outer.role} › {attribute} › {own.role}")


_NUMBERED = re.compile(r"^(.*)\.(\d+)$")
# What exporters put around the operator in the name of a node, and the number behind it.
_NAMED = re.compile(r"^(?:node_)?(.*?)(?:_node)?(?:_(\d+))?$")
# A name that counts the layer itself, as ggml's Kcur-3 and cache_k_l3 (view).
_COUNTED = re.compile(r"^([^ ]+?)(?:-|_l)(\d+)(?: \(.*)?(?:#\d+)?$")
_KNOWN: WeakKeyDictionary[Graph, Mapping[int, Place]] = WeakKeyDictionary()


def places(graph: Graph) -> Mapping[int, Place]:
    """The place of every node of a graph, by the index of the node.

    Layers are what the module paths number (``layers.3``, ``h.3``), outermost first. Without such paths they are what
    repeats itself in the order of the model: the same operators, wired alike.
    """
    if graph not in _KNOWN:
        _KNOWN[graph] = _places(graph)
    return _KNOWN[graph]


def _places(graph: Graph) -> dict[int, Place]:
    stacks = _stacks(graph.nodes)
    if not stacks:
        stacks = {("", ()): dict(enumerate(repeated(graph)))}
    found: dict[int, Place] = {}
    labels = _labels(list(stacks))
    for (stack, above), layers in stacks.items():
        depth = len(above) + 1 if stack else 0
        parts = {layer: [_part(graph, node, node.scope[depth:]) for node in nodes] for layer, nodes in layers.items()}
        for layer, roles in zip(layers, aligned(list(parts.values()))):
            for node, role in zip(layers[layer], roles):
                found[node.index] = Place(layer, labels[stack, above] + role)
    rest = [node for node in graph.nodes if node.index not in found]
    (roles,) = aligned([[_part(graph, node, node.scope, alone=True) for node in rest]])
    taken = {place.role for place in found.values()}
    for node, role in zip(rest, roles):
        # The name that a layer's op has inside it may be that of an op outside all of them.
        found[node.index] = Place(None, f"/{role}" if role in taken else role)
    return found


Stack = tuple[str, Scope]


def _stacks(nodes: Sequence[Node]) -> dict[Stack, dict[int, list[Node]]]:
    """Numbered modules with the same path and stem, and the nodes of each number; one number alone is no stack."""
    numbers: dict[Stack, set[int]] = {}
    for node in nodes:
        for stack, number in _numbered(node.scope):
            numbers.setdefault(stack, set()).add(number)
    found: dict[Stack, dict[int, list[Node]]] = {}
    for node in nodes:
        for stack, number in _numbered(node.scope):
            if len(numbers[stack]) > 1:
                found.setdefault(stack, {}).setdefault(number, []).append(node)
                break
    kept = {stack: _like_others(layers, len(stack[1]) + 1) for stack, layers in found.items()}
    return {stack: dict(sorted(layers.items())) for stack, layers in kept.items() if layers}


def _like_others(layers: dict[int, list[Node]], depth: int) -> dict[int, list[Node]]:
    """Without numbers under which nothing is as in any other: an exporter may count the last norm as a layer."""
    kinds = {number: {(node.scope[depth:], node.op_type) for node in nodes} for number, nodes in layers.items()}
    often = Counter(kind for own in kinds.values() for kind in own)
    return {number: layers[number] for number, own in kinds.items() if any(often[kind] > 1 for kind in own)}


def _numbered(scope: Scope) -> list[tuple[Stack, int]]:
    """The numbered modules of a path, outermost first."""
    found = []
    for depth, part in enumerate(scope):
        match = _NUMBERED.match(part)
        # Longer ones are no count of layers.
        if match and len(match[2]) < 6:
            found.append(((match[1], scope[:depth]), int(match[2])))
    return found


def _labels(stacks: Sequence[Stack]) -> dict[Stack, str]:
    """What tells stacks apart, in front of their roles; nothing where there is only one."""
    if len(stacks) == 1:
        return dict.fromkeys(stacks, "")
    stems = Counter(stem for stem, _ in stacks)
    found = {}
    for stem, above in stacks:
        others = [other for same, other in stacks if same == stem and other != above]
        own = [part for part in above if any(part not in other for other in others)] or list(above)
        # Paths may differ in their order only: then all of it is told.
        found[stem, above] = "/".join([*own, ""]) if stems[stem] > 1 else f"{stem}/"
    if len(set(found.values())) < len(found):
        found = {(stem, above): "/".join([*above, stem, ""]) for stem, above in stacks}
    return found


def _part(graph: Graph, node: Node, path: Scope, alone: bool = False) -> Part:
    """What a node is by name and by its neighbours.

    ``alone``: it is in no layer, so that the name of its output says enough where it has no name of its own.
    """
    if alone and node.name in node.outputs:
        return Part(node.name, node.op_type, "", ())
    last = re.split(r"[/:]", node.name)[-1]
    match = _NAMED.match(last)
    stem, number = (match[1], match[2]) if match else (last, None)
    own = _COUNTED.match(node.name)
    if own and own[2] in {part.rpartition(".")[2] for part in node.scope}:
        # Several nodes may be called alike: Kcur is made, reshaped and rotated.
        stem, number = f"{own[1]}/{node.op_type}", None
    elif node.name in node.outputs or not stem or stem.isdigit() or stem.casefold() == node.op_type.casefold():
        stem = node.op_type
    makers = [made.op_type if (made := graph.producers.get(name)) else "" for name in node.inputs]
    readers = sorted(reader.op_type for name in node.outputs for reader in graph.consumers.get(name, ()))
    return Part("/".join((*path, stem)), node.op_type, number or "", (*makers, ">", *readers))
