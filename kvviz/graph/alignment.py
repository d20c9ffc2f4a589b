"""Layers side by side: which op of one layer is which of another, by name, neighbours and order.

Invariant: a name stands once in each layer; two layers of the same parts in the same order have the same names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

# Cells of a table for two layers: above that, the parts are matched as they come.
_MOST_CELLS = 400_000
_SAME, _NEAR, _NUMBER = 4, 2, 1


class Part(NamedTuple):
    """An op of a layer: its name without numbers, its operator, the exporter's number, and who is around it."""

    name: str
    op: str
    number: str
    around: tuple[str, ...]


def aligned(layers: Sequence[Sequence[Part]]) -> list[list[str]]:
    """For each layer the roles of its parts, in order.

    The most frequent sequence of parts is what the others are compared with; what only they have is added to it.
    """
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
    """For each new part the known one that it is, ascending, so that as much as possible agrees; None: it is new."""
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
    """A name for each role: that of its parts; where several roles share it, with the exporter's number if all layers
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
