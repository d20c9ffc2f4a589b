"""Repeated layers as one thing: for each node of a graph its layer, and its role there, the same in all equal layers.

Invariant: a role is unique in each layer, and nodes of no layer have roles of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from kvviz.graph.blocks import values_alive
from kvviz.graph.model import Graph, Node
from kvviz.graph.module_paths import Scope
from kvviz.graph.topological_order import needs_between


class Place(NamedTuple):
    """Where a node stands among the repeated layers of its graph. ``layer``: its number, None for a node of no layer.
    ``role``: its place inside its layer by name, ``"self_attn/k_cache/Concat"``; a number after ``#`` counts in the
    order of the model, other numbers are the exporter's own."""

    layer: int | None
    role: str


def inside(outer: Place | None, graph: Graph | None, attribute: str, own: Place) -> Place:
    """A place in a body, as seen from the main graph. ``outer``: the place of the node that has the body, in ``graph``;
    None: this is the main graph."""
    if outer is None or graph is None:
        return own
    layer = outer.layer if own.layer is None else own.layer
    if attribute == "function":
        return Place(layer, f"{outer.role} › {own.role}")
    # If no other node has bodies, the branch is enough.
    alone = sum(bool(node.subgraphs) for node in graph.nodes) == 1
    return Place(layer, f"{attribute} › {own.role}" if alone else f"{outer.role} › {attribute} › {own.role}")


_NUMBERED = re.compile(r"^(.*)\.(\d+)$")
# Exporters' additions around the operator in the name of a node, and the number after it.
_NAMED = re.compile(r"^(?:node_)?(.*?)(?:_node)?(?:_(\d+))?$")
# A name that counts the layer itself, as ggml's Kcur-3 and cache_k_l3 (view).
_COUNTED = re.compile(r"^([^ ]+?)(?:-|_l)(\d+)(?: \(.*)?(?:#\d+)?$")
_KNOWN: WeakKeyDictionary[Graph, Mapping[int, Place]] = WeakKeyDictionary()


def places(graph: Graph) -> Mapping[int, Place]:
    """The place of every node of a graph, by node index. Layers are the numbered parts of module paths (``layers.3``,
    ``h.3``), outermost first. Without such paths they are repetitions in the order of the model: the same operators,
    wired alike."""
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
        # The name of a layer's op inside it may equal that of an op outside all layers.
        found[node.index] = Place(None, f"/{role}" if role in taken else role)
    return found


Stack = tuple[str, Scope]


def _stacks(nodes: Sequence[Node]) -> dict[Stack, dict[int, list[Node]]]:
    """Numbered modules with the same path and stem, and the nodes of each number; a single number is no stack."""
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
    """Without layers that have nothing in common with any other: an exporter may count the last norm as a layer."""
    kinds = {number: {(node.scope[depth:], node.op_type) for node in nodes} for number, nodes in layers.items()}
    often = Counter(kind for own in kinds.values() for kind in own)
    return {number: layers[number] for number, own in kinds.items() if any(often[kind] > 1 for kind in own)}


def _numbered(scope: Scope) -> list[tuple[Stack, int]]:
    found = []
    for depth, part in enumerate(scope):
        match = _NUMBERED.match(part)
        # Longer numbers do not count layers.
        if match and len(match[2]) < 6:
            found.append(((match[1], scope[:depth]), int(match[2])))
    return found


def _labels(stacks: Sequence[Stack]) -> dict[Stack, str]:
    """Prefixes of roles that distinguish stacks; empty if there is only one."""
    if len(stacks) == 1:
        return dict.fromkeys(stacks, "")
    stems = Counter(stem for stem, _ in stacks)
    found = {}
    for stem, above in stacks:
        others = [other for same, other in stacks if same == stem and other != above]
        own = [part for part in above if any(part not in other for other in others)] or list(above)
        # Paths may differ in their order only: then the whole path is shown.
        found[stem, above] = "/".join([*own, ""]) if stems[stem] > 1 else f"{stem}/"
    if len(set(found.values())) < len(found):
        found = {(stem, above): "/".join([*above, stem, ""]) for stem, above in stacks}
    return found


def _part(graph: Graph, node: Node, path: Scope, alone: bool = False) -> Part:
    """A node by its name and neighbours. ``alone``: it is in no layer, so that the name of its output can replace a
    missing name."""
    if alone and node.name in node.outputs:
        return Part(node.name, node.op_type, "", ())
    last = re.split(r"[/:]", node.name)[-1]
    match = _NAMED.match(last)
    stem, number = (match[1], match[2]) if match else (last, None)
    own = _COUNTED.match(node.name)
    if own and own[2] in {part.rpartition(".")[2] for part in node.scope}:
        # Several nodes may have one name: Kcur is made, reshaped and rotated.
        stem, number = f"{own[1]}/{node.op_type}", None
    elif node.name in node.outputs or not stem or stem.isdigit() or stem.casefold() == node.op_type.casefold():
        stem = node.op_type
    makers = [made.op_type if (made := graph.producers.get(name)) else "" for name in node.inputs]
    readers = sorted(reader.op_type for name in node.outputs for reader in graph.consumers.get(name, ()))
    return Part("/".join((*path, stem)), node.op_type, number or "", (*makers, ">", *readers))


# Repetition in a graph whose names do not show layers: the longest stretch of equal parts.


# The minimum of nodes and of operators of a layer, and its maximum of nodes.
_LEAST, _KINDS, _MOST = 5, 3, 2000
# A shorter period that explains this share of the best one's repetitions is the layer; a multiple of it is not.
_ENOUGH = 0.95


def repeated(graph: Graph) -> list[list[Node]]:
    """Nodes of each repetition, in the order of the model; empty if nothing repeats. Repetitions have the same
    operators in the same order; the cut is where the fewest values pass from one to the next."""
    nodes = graph.nodes
    codes = _codes(nodes)
    size = len(codes)
    found: list[tuple[int, int, int]] = []  # nodes explained, period, start
    for period in range(_LEAST, min(size // 2, _MOST) + 1):
        start, length = _longest(codes[:-period] == codes[period:])
        if length >= period:
            found.append((length + period, period, start))
    if not found:
        return []
    most = max(explained for explained, _, _ in found)
    explained, period, start = next(one for one in found if one[0] >= _ENOUGH * most)
    if len(set(codes[start : start + period].tolist())) < _KINDS:
        return []
    crossing = values_alive(needs_between(nodes))
    cut = min(range(start, start + explained % period + 1), key=lambda at: (crossing[at], at))
    return [list(nodes[at : at + period]) for at in range(cut, start + explained - period + 1, period)]


def _codes(nodes: Sequence[Node]) -> np.ndarray:
    """A number for each node, equal for the same operator with as many inputs and outputs."""
    known: dict[tuple[str, int, int], int] = {}
    kinds = [(node.qualified_op, len(node.inputs), len(node.outputs)) for node in nodes]
    return np.array([known.setdefault(kind, len(known)) for kind in kinds], np.int64)


def _longest(equal: np.ndarray) -> tuple[int, int]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], equal, [False]))))
    if not len(edges):
        return 0, 0
    starts, ends = edges[::2], edges[1::2]
    at = int(np.argmax(ends - starts))
    return int(starts[at]), int(ends[at] - starts[at])


# Layers side by side: which op of one layer corresponds to which of another, by name, neighbours and order.
#
# Invariant: a name is unique in each layer; two layers of the same parts in the same order have the same names.


# Cells of a table for two layers: above that, the parts are matched as they come.
_MOST_CELLS = 400_000
_SAME, _NEAR, _NUMBER = 4, 2, 1


class Part(NamedTuple):
    """An op of a layer: its name without numbers, its operator, the exporter's number, and its neighbours."""

    name: str
    op: str
    number: str
    around: tuple[str, ...]


def aligned(layers: Sequence[Sequence[Part]]) -> list[list[str]]:
    """For each layer the roles of its parts, in order. The others are compared with the most frequent sequence of
    parts; parts that only they have are added to it."""
    kinds: dict[tuple[tuple[str, ...], ...], list[int]] = {}
    for i, layer in enumerate(layers):
        kinds.setdefault(tuple(part[:2] for part in layer), []).append(i)
    rows: list[list[Part]] = []  # by role: the parts that have it
    order: list[int] = []
    homes: dict[int, list[int]] = {}
    for members in sorted(kinds.values(), key=lambda members: (-len(members), members[0])):
        kind = layers[members[0]]
        home: list[int] = []
        merged: list[int] = []
        at = 0
        for match in _matched([rows[row][0] for row in order], kind):
            if match is None:
                rows.append([])
                home.append(len(rows) - 1)
            else:
                merged += order[at:match]
                home.append(order[match])
                at = match + 1
            merged.append(home[-1])
        order = merged + order[at:]
        for member in members:
            homes[member] = home
            for part, row in zip(layers[member], home):
                rows[row].append(part)
    names = dict(zip(order, _names([rows[row] for row in order])))
    return [[names[row] for row in homes[i]] for i in range(len(layers))]


def _matched(known: Sequence[Part], new: Sequence[Part]) -> list[int | None]:
    """For each new part the corresponding known one, ascending, with as many matches as possible; None: it is new."""
    if not known:
        return [None] * len(new)
    if len(known) * len(new) > _MOST_CELLS:
        return _as_they_come(known, new)
    best = [[0] * (len(known) + 1) for _ in range(len(new) + 1)]
    for i in reversed(range(len(new))):
        row, below, part = best[i], best[i + 1], new[i]
        for j in reversed(range(len(known))):
            alike = _alike(part, known[j])
            skip = max(below[j], row[j + 1])
            row[j] = max(skip, below[j + 1] + alike) if alike else skip
    found: list[int | None] = []
    j = 0
    for i, part in enumerate(new):
        while j < len(known) and best[i][j] == best[i][j + 1]:
            j += 1
        alike = _alike(part, known[j]) if j < len(known) else 0
        if alike and best[i][j] == best[i + 1][j + 1] + alike:
            found.append(j)
            j += 1
        else:
            found.append(None)
    return found


def _alike(a: Part, b: Part) -> int:
    if a.name != b.name or a.op != b.op:
        return 0
    return _SAME + _NEAR * (a.around == b.around) + _NUMBER * (a.number == b.number)


def _as_they_come(known: Sequence[Part], new: Sequence[Part]) -> list[int | None]:
    found: list[int | None] = []
    at = 0
    for part in new:
        match = next((j for j in range(at, len(known)) if known[j][:2] == part[:2]), None)
        found.append(match)
        at = at if match is None else match + 1
    return found


def _names(rows: Sequence[Sequence[Part]]) -> list[str]:
    """A name for each role: that of its parts; if several roles share it, with the exporter's number if all layers
    agree on it, else with its place among them."""
    shared = Counter(row[0].name for row in rows)
    agree: dict[str, list[set[str]]] = {}
    for row in rows:
        agree.setdefault(row[0].name, []).append({part.number for part in row})
    numbered = {
        name: all(len(one) == 1 for one in sets) and len({n for one in sets for n in one}) == len(sets)
        for name, sets in agree.items()
    }
    names: list[str] = []
    seen: Counter[str] = Counter()
    for row in rows:
        name, number = row[0].name, row[0].number
        if shared[name] > 1 and numbered[name]:
            name += f"_{number}" if number else ""
        elif shared[name] > 1:
            seen[name] += 1
            name += f" #{seen[name]}"
        names.append(name)
    # A name may be that of another with its number.
    taken: Counter[str] = Counter()
    for i, name in enumerate(names):
        taken[name] += 1
        while taken[name] > 1 and f"{name} ({taken[name]})" in names:
            taken[name] += 1
        if taken[name] > 1:
            names[i] = f"{name} ({taken[name]})"
    return names
