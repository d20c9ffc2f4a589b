"""Blocks: a graph's nodes in parts small enough to read, by module where the model names modules.

Long lists are cut where few values are alive.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kvviz.graph.model import Graph, Node
from kvviz.graph.module_paths import Scope, common_path
from kvviz.graph.topological_order import needs_between, topological


def narrow_sections(needs: Sequence[Sequence[int]], target: float, most: int) -> list[tuple[int, int]]:
    """Sections (start, end) of about equal size with as few values as possible passing from one to the next. ``needs``
    has for each node, in running order, the positions of the nodes whose values it reads; ``most`` is at least 1.5
    times ``target``, or a size that divides the list into equal parts."""
    size, least = len(needs), max(1, int(target) // 2)
    crossing = values_alive(needs)
    # best[i]: the lowest cost of cutting the first i nodes, and where its last section starts.
    best: list[tuple[float, int]] = [(0.0, 0)] + [(math.inf, 0)] * size
    for end in range(least, size + 1):
        for start in range(max(0, end - most), end - least + 1):
            uneven = ((end - start) / target - 1) ** 2
            cost = best[start][0] + (crossing[end] if end < size else 0) + 4 * uneven
            if cost < best[end][0]:
                best[end] = (cost, start)
    cuts = [size]
    while cuts[-1]:
        cuts.append(best[cuts[-1]][1])
    return list(itertools.pairwise(reversed(cuts)))


def values_alive(needs: Sequence[Sequence[int]]) -> list[int]:
    """For each gap (0: before the first node), the number of nodes before it whose values are read after it."""
    last: dict[int, int] = {}
    for i, names in enumerate(needs):
        for j in names:
            last[j] = i
    change = [0] * (len(needs) + 1)
    for first, end in last.items():
        change[first + 1] += 1
        change[end + 1] -= 1
    return list(itertools.accumulate(change))


MOST = 60
"""The maximum number of nodes in a block: what one drawing can show legibly."""

FEW = 8
"""Modules with fewer nodes join their neighbours."""

SECTION = 40
"""Approximate number of nodes in a section of a graph without modules."""

_NUMBERED = re.compile(r"^(.+)\.(\d+)$")
_LAYER_WORDS = frozenset({"layers", "layer", "h", "blocks", "block"})
_NORM = re.compile(r"norm|^ln", re.IGNORECASE)


@dataclass(slots=True)
class Group:
    """Positions of nodes that belong together, and the module names to call them by."""

    members: list[int]
    labels: list[str] = field(default_factory=list)


class Layer(NamedTuple):
    """One of several modules that differ in their number."""

    name: str  # e.g. ``"layer"`` or ``"encoder layer"``
    number: int
    depth: int  # of its module path


class Cutter:
    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.place = {id(node): i for i, node in enumerate(nodes)}
        self.needs = needs_between(nodes)
        self.feeds: list[list[int]] = [[] for _ in nodes]
        for i, needs in enumerate(self.needs):
            for j in needs:
                self.feeds[j].append(i)
        self.totals = Counter(node.scope[:depth] for node in nodes for depth in range(len(node.scope) + 1))
        # If two stacks of layers have the same name, titles must distinguish them.
        self.stacks = Counter(stem for _, stem in {_stack(node.scope) for node in nodes})

    def ordered(self, sets: list[list[int]]) -> list[int]:
        """Sets of nodes in order: dependencies first, then by their first node."""
        by_first = sorted(range(len(sets)), key=lambda k: sets[k][0])
        home = {i: k for k in by_first for i in sets[k]}
        place = {k: i for i, k in enumerate(by_first)}
        needs = [{place[home[j]] for i in sets[k] for j in self.needs[i] if home.get(j, k) != k} for k in by_first]
        order = topological(needs)
        return by_first if order is None else [by_first[place] for place in order]

    def split(self, path: Scope, members: Sequence[int]) -> list[Group]:
        """Groups of the nodes under one module path, each inside one module unless modules are tiny."""
        depth = len(path)
        parts: dict[Scope, list[int]] = {}
        for i in members:
            parts.setdefault(self.nodes[i].scope[: depth + 1], []).append(i)
        inner = [part for part in parts if len(part) > depth]
        stacked = any(_NUMBERED.match(name) for i in members for name in self.nodes[i].scope[depth:])
        layer = bool(path and _NUMBERED.match(path[-1]))
        if not inner or (path and not stacked and len(members) <= (2 * FEW if layer else MOST)):
            return [Group(list(members), [path[-1]] if path else [])]
        units = [(part, self.split(part, parts[part])) for part in inner if len(parts[part]) >= FEW]
        units = [units[k] for k in self.ordered([parts[part] for part, _ in units])]
        large = {i for part, _ in units for i in parts[part]}
        return self._place_rest(path, units, [i for i in members if i not in large], parts)

    def _place_rest(
        self, path: Scope, units: list[tuple[Scope, list[Group]]], rest: list[int], parts: dict[Scope, list[int]]
    ) -> list[Group]:
        """Add the nodes outside of the large modules: each between the modules that it depends on and the next."""
        slots, between = self._slots(path, [parts[part] for part, _ in units], rest)
        home = {i: group for _, inner in units for group in inner for i in group.members}
        pieces: list[list[int]] = [[] for _ in range(len(units) + 1)]
        for i in rest:
            if i in between:
                home[i] = home[max(j for j in self.needs[i] if j in home)]
                home[i].members.append(i)
            else:
                pieces[slots[i]].append(i)
        for _, inner in units:
            for group in inner:
                group.members.sort()
        groups: list[Group] = []
        for slot, piece in enumerate(pieces):
            before = groups[-1] if groups else None
            after = units[slot][1] if slot < len(units) else []
            # A residual sum ends the module before it.
            if before and len(piece) > 1:
                while piece and self.nodes[piece[0]].scope == path and self._joins(before, piece[:1], path):
                    before.members = sorted([*before.members, piece.pop(0)])
            if piece:
                group = Group(piece, self._labels(path, piece))
                if len(piece) < FEW and after and self._joins(after[0], piece, path):
                    after[0].members = sorted([*piece, *after[0].members])
                    after[0].labels = [*group.labels, *after[0].labels]
                elif len(piece) < FEW and before and self._joins(before, piece, path):
                    before.members = sorted([*before.members, *piece])
                    before.labels += group.labels
                else:
                    groups.append(group)
            groups += after
        return groups

    def _slots(self, path: Scope, units: list[list[int]], rest: list[int]) -> tuple[dict[int, int], set[int]]:
        """Place of each node among the large modules: their number, or that of the last one it depends on. The second
        result has nodes that lie between nodes of one module, directly or through each other. They go with the module,
        as they fit neither before nor after it; each needs a node of the module or another such node."""
        slots = {i: slot for slot, unit in enumerate(units, 1) for i in unit}
        inside = set().union(*units)
        for i in rest:
            slots[i] = max((slots.get(j, 0) for j in self.needs[i]), default=0)
        for i in reversed(rest):
            if any(slots[j] <= slots[i] for j in self.feeds[i] if j in inside):
                inside.add(i)
        # A small module stays together, as late as its last node, if its readers allow that.
        latest: dict[str, int] = {}
        for i in rest:
            name = self._child(path, i)
            latest[name] = max(latest.get(name, 0), slots[i])
        for i in reversed(rest):
            if i not in inside and (name := self._child(path, i)):
                readers = [slots[j] - (j in inside) for j in self.feeds[i] if j in slots]
                slots[i] = max(slots[i], min([latest[name], *readers]))
        return slots, inside.intersection(rest)

    def _child(self, path: Scope, i: int) -> str:
        """Module directly below the path that a node is in; empty for the path's own nodes."""
        scope = self.nodes[i].scope
        return scope[len(path)] if len(scope) > len(path) else ""

    def _joins(self, group: Group, piece: list[int], path: Scope) -> bool:
        """Whether a small piece may join a group: not into a layer from outside, and not beyond the size limit."""
        size = len(group.members)
        inside = common_path([self.nodes[i].scope for i in group.members])
        layers = (inside[:k] for k in range(len(path) + 1, len(inside) + 1) if _NUMBERED.match(inside[k - 1]))
        return (size + len(piece) <= MOST or size > MOST) and all(self.totals[layer] < FEW for layer in layers)

    def _labels(self, path: Scope, piece: list[int]) -> list[str]:
        names: Counter[str] = Counter()
        for i in piece:
            child = self._child(path, i)
            # The number of a small module says little; its contents say more.
            names[_stem(self.nodes[i].scope[-1] if _NUMBERED.match(child) else child)] += 1
        direct = names.pop("", 0)
        own = [path[-1]] if path and 2 * direct > len(piece) and not _NUMBERED.match(path[-1]) else []
        return [*own, *names]

    def layer(self, path: Scope) -> Layer | None:
        for i, name in enumerate(path):
            if match := _NUMBERED.match(name):
                word = "layer" if match[1] in _LAYER_WORDS else match[1]
                above = f"{path[i - 1]} " if i and self.stacks[match[1]] > 1 else ""
                return Layer(f"{above}{word}", int(match[2]), i + 1)
        return None

    def title(self, group: Group, path: Scope) -> str:
        prefix, rest = "", path
        if layer := self.layer(path):
            prefix, rest = f"{layer.name} {layer.number}", path[layer.depth :]
        if path and len(group.members) == self.totals[path]:
            labels = list(rest) if prefix else [path[-1]]
        else:
            labels = [
                name for name in dict.fromkeys(group.labels) if not (prefix and name in path[: -len(rest) or None])
            ]
            labels = [name for name in labels if not _NORM.search(name)] or labels
            labels = [", ".join(labels[:3]) + ("…" if len(labels) > 3 else "")] if labels else []
        return " · ".join([prefix, *labels] if prefix else labels)

    def sections(self, members: list[int], *, scoped: bool) -> list[list[int]]:
        """Pieces of at most ``MOST`` nodes, cut where the fewest values cross."""
        if len(members) <= (MOST if scoped else SECTION * 3 // 2):
            return [members]
        target = len(members) / math.ceil(len(members) / MOST) if scoped else SECTION
        place = {i: k for k, i in enumerate(members)}
        needs = [[place[j] for j in self.needs[i] if j in place] for i in members]
        return [members[start:end] for start, end in narrow_sections(needs, target, MOST)]


def _stem(name: str) -> str:
    match = _NUMBERED.match(name)
    return match[1] if match else name


def _stack(scope: Scope) -> tuple[Scope, str]:
    for i, name in enumerate(scope):
        if match := _NUMBERED.match(name):
            return scope[:i], match[1]
    return (), ""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    title: str  # e.g. ``"layer 1 · self_attn"``
    path: Scope  # module path that all its nodes have in common
    nodes: tuple[Node, ...]
    stack: Layer | None = None  # which of several modules with a number each it lies in


def blocks(graph: Graph, order: Sequence[Node] | None = None) -> tuple[Block, ...]:
    """Cut a graph into blocks of at most ``MOST`` nodes, ``order`` being the nodes as a schedule ran them.

    Every node is in exactly one block. Blocks come in the order of their first node, but after those whose values they
    read (except for rare modules that need each other). Layers (numbered modules) are never mixed. A graph without
    module paths is cut where few values are alive.
    """
    nodes = graph.nodes if order is None else tuple(order)
    if not nodes:
        return ()
    cutter = Cutter(nodes)
    found: list[Block] = []
    for group in cutter.split((), range(len(nodes))):
        path = common_path([nodes[i].scope for i in group.members])
        title = cutter.title(group, path)
        layer = cutter.layer(path)
        sections = cutter.sections(group.members, scoped=bool(path or group.labels))
        for count, section in enumerate(sections, 1):
            if title:
                name = title if len(sections) == 1 else f"{title}, part {count} of {len(sections)}"
            elif len(section) == 1:
                name = nodes[section[0]].op_type
            else:
                often = Counter(nodes[i].op_type for i in section).most_common(1)[0][0]
                name = f"nodes {section[0]}–{section[-1]} · {often}…"
            members = tuple(nodes[i] for i in section)
            found.append(Block(name, path, members, layer))
    order_of_blocks = cutter.ordered([[cutter.place[id(node)] for node in block.nodes] for block in found])
    return tuple(found[k] for k in order_of_blocks)
