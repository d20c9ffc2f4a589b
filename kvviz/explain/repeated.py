"""How often a thing was missed: the same op in other layers of the model, at other places of a layer, and per token.

Invariant: the bytes of a group are those of its entries, and every entry is in one group.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kvviz.explain.units import count, size

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Repeated:
    """What is the same miss.

    ``layers``: numbered modules that it is in; 0 where the op is in none.
    ``places``: ops, in all layers together.
    ``runs``: of the steps.
    ``tokens``: whether a run is a token.
    ``steps, bytes``: in sum.
    """

    layers: int
    places: int
    runs: int
    tokens: bool
    steps: int
    bytes: int

    def __str__(self) -> str:
        """``3 layers × 2 ops × 5 tokens: 115 kB in 30 steps``; how often the op itself ran where that is all."""
        inside = self.places // self.layers if self.layers and self.places % self.layers == 0 else 0
        parts = [count(self.layers, "layer")] if inside and self.layers > 1 else []
        ops = inside if parts else self.places
        parts += [count(ops, "op")] if ops > 1 or not parts else []
        if self.runs > 1:
            parts.append(count(self.runs, "token" if self.tokens else "run"))
        return f"{' × '.join(parts)}: {size(self.bytes)} in {count(self.steps, 'step')}"


def repeated(trace: Any, entries: Iterable[Any]) -> dict[int, Repeated]:
    """By the first step of each entry of a missed list: the group that it is in.

    Two entries are the same miss where op, module path without its numbers, place among the like of that module, and
    reasons are the same.
    """
    rows, frames = trace.log, trace.frames
    places = _places(trace)
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for entry in entries:
        node = rows[entry.step].op.node
        path = tuple(_NUMBER.sub("", part) for part in (*entry.frame, *node.scope))
        masks = tuple(mask for _, mask in rows[entry.step].masks)
        groups.setdefault((path, node.qualified_op, places[id(node)], masks), []).append(entry)
    found = {}
    for members in groups.values():
        steps = [step for entry in members for step in entry.steps]
        layers = {_layer(rows[entry.step].op.node.scope) for entry in members}
        told = Repeated(
            0 if None in layers else len(layers),
            len(members),
            len({frames[rows[step].frame].run for step in steps}),
            bool(trace.prompt),
            len(steps),
            sum(entry.bytes for entry in members),
        )
        found.update({entry.steps[0]: told for entry in members})
    return found


def _places(trace: Any) -> dict[int, int]:
    """By ``id(node)``: which one it is among those of its op in its module."""
    seen: Counter[tuple[Any, ...]] = Counter()
    places = {}
    for graph in {id(frame.graph): frame.graph for frame in trace.frames}.values():
        for node in graph.nodes:
            key = (id(graph), node.scope, node.qualified_op)
            places[id(node)] = seen[key]
            seen[key] += 1
    return places


def _layer(scope: tuple[str, ...]) -> tuple[str, ...] | None:
    """The numbered module that is innermost."""
    for depth in range(len(scope), 0, -1):
        if _NUMBER.search(scope[depth - 1]):
            return scope[:depth]
    return None
