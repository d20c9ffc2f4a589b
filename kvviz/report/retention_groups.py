"""Storages held too long, in groups: the same value in many layers and runs is one group, small ones are summed.

Invariant: every storage of the list is in exactly one group or in the rest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kvviz.explain.retention import Held
from kvviz.trace.recording import Trace
from kvviz.trace.units import count, size

# Share of the peak beside the weights below which a group is negligible.
_WORTH = 1 / 200
# A part of a path that is only a number, as exporters write layers: `present.3.key`, `/model/layers.3/mlp/Mul`; in
# llama.cpp `cache_k_l3`.
_LAYER = re.compile(r"(?<=[./])\d+(?=[./])|(?<=_l)\d+\b")


@dataclass(frozen=True, slots=True)
class HeldGroup:
    """Storages that one reason kept for one value, in one or many layers and runs.

    ``worst``: the one with the most byte-steps.
    ``layers``: number of values that differ only in their layer number.
    ``times``: number of storages.
    ``bytes``: of all of them.
    """

    worst: Held
    times: int
    bytes: int
    layers: int = 1


@dataclass(frozen=True, slots=True)
class Rest:
    """Storages that are too small to be listed; ``str()`` of it is the line."""

    times: int
    bytes: int
    largest: int

    def __str__(self) -> str:
        each = f", none above {size(self.largest)}" if self.times > 1 else ""
        return f"{count(self.times, 'small storage')}, {size(self.bytes)} in all{each}"


def held_groups(trace: Trace, held: Sequence[Held]) -> tuple[tuple[HeldGroup, ...], Rest | None]:
    """The storages grouped by value and reason across layers, in the order of the list, and the sum of negligible ones.

    ``held``: the result of `kvviz.explain.retention.held_too_long`.
    """
    weights = sum(storage.capacity for storage in trace.storages if storage.origin == "weights")
    least = (trace.peak_bytes - weights) * _WORTH
    found: dict[tuple[str, str], list[Held]] = {}
    small: list[Held] = []
    for one in held:
        if one.bytes < least:
            small.append(one)
        else:
            found.setdefault((_LAYER.sub("#", one.name), _LAYER.sub("#", one.reason)), []).append(one)
    groups = tuple(
        HeldGroup(same[0], len(same), sum(one.bytes for one in same), len({one.name for one in same}))
        for same in found.values()
    )
    if not small:
        return groups, None
    return groups, Rest(len(small), sum(one.bytes for one in small), max(one.bytes for one in small))
