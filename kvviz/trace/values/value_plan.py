"""What of the values goes into a byte budget, decided before anything is computed.

Everything that could be kept stands in one order, and what is kept is the beginning of it: numbers of all values,
histograms, attention, one picture of each value, pictures of the other heads. So a larger budget keeps all that a
smaller one does, and more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from kvviz.errors import InputError
from kvviz.trace.values.value_numbers import BINS, Axes, axes_of

NUMBERS, HISTOGRAM, ATTENTION, PICTURE = 44, 4 + 4 * BINS, 24, 60
"""Bytes of one of each; attention and pictures have their cells beside."""
_UNITS = {"": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20}


class Seen(NamedTuple):
    """A value that could be kept.

    ``at``: the step that made it; ``-1 - run`` for what a run was given.
    ``slot``: which output of the step, or which binding of the run's main frame.
    ``rank``: what is smaller comes first; among equals what has more bytes.
    """

    at: int
    slot: int
    rank: int
    nbytes: int
    shape: tuple[int, ...]


class Plan(NamedTuple):
    """What is kept of each value, by (at, slot).

    ``attention``: how many of the rows of attention are kept.
    ``heads``: how many pictures of a value.
    """

    numbers: frozenset[tuple[int, int]]
    histograms: frozenset[tuple[int, int]]
    attention: int
    heads: dict[tuple[int, int], int]


def plan(values: Sequence[Seen], attention: Sequence[int], budget: int) -> Plan:
    """What to keep within a number of bytes; ``attention`` are the cells (2 bytes each) of the rows of attention."""
    order = sorted(values, key=lambda seen: (seen.rank, -seen.nbytes, seen.at, seen.slot))
    left = budget
    counts = []
    for costs in (
        [NUMBERS] * len(order),
        [HISTOGRAM] * len(order),
        [ATTENTION + 2 * cells for cells in attention],
    ):
        taken, left = _first(costs, left)
        counts.append(taken)
    forms = [(seen, axes) for seen in order if (axes := axes_of(seen.shape)) is not None]
    taken, left = _first([_picture(axes) for _, axes in forms], left)
    heads = {(seen.at, seen.slot): 1 for seen, _ in forms[:taken]}
    for seen, axes in forms:
        more, left = _first([_picture(axes)] * (axes.heads - 1), left)
        if more:
            heads[seen.at, seen.slot] = 1 + more
    keys = [(seen.at, seen.slot) for seen in order]
    return Plan(frozenset(keys[: counts[0]]), frozenset(keys[: counts[1]]), counts[2], heads)


def _first(costs: Sequence[int], left: int) -> tuple[int, int]:
    """How many of these come into what is left, and what is left then: nothing, where not all of them do."""
    for taken, cost in enumerate(costs):
        if cost > left:
            return taken, 0
        left -= cost
    return len(costs), left


def _picture(axes: Axes) -> int:
    return PICTURE + axes.rows * axes.columns


def as_bytes(budget: int | str) -> int:
    """A number of bytes, from one or from a text such as ``"64 kB"``.

    Raises `InputError`: it is neither, or negative.
    """
    if isinstance(budget, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKMG]?i?B?)\s*", budget)
        if found is None or found[2] not in _UNITS:
            raise InputError(f"a budget is a number of bytes or a text such as '64 kB', not {budget!r}")
        return int(float(found[1]) * _UNITS[found[2]])
    if isinstance(budget, bool) or budget != int(budget) or budget < 0:
        raise InputError(f"a budget is a number of bytes or a text such as '64 kB', not {budget!r}")
    return int(budget)
