"""Changes that help together: the fewest with the fewest bytes copied, and the fewest with the lowest peak.

Every set is tried as a whole. For few changes, all sets are tried. For more, changes are added one by one, and then
those that the others make unnecessary are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

from kvviz.errors import KvvizError
from kvviz.fixes.changes import Change
from kvviz.fixes.fix import Fix, made_fix, replays_of
from kvviz.fixes.replays import Replays
from kvviz.trace.index.value_index import Index
from kvviz.trace.outcome import copied_in_all
from kvviz.trace.units import count, size

Unit = tuple[Change, ...]
"""The changes for one kind of miss in all layers, used together or not at all."""

Cost = tuple[int, int]

_STEPS = 200_000  # in all trials together
_UNITS = 12  # only the first ones are tried
# A set is worthwhile if it saves this share more than each of its changes.
_WORTH = 1 / 100
_GOALS: dict[str, tuple[Callable[[Any], Cost], str]] = {
    "copies": (lambda trace: (copied_in_all(trace), trace.peak_bytes), "copy"),
    "peak": (lambda trace: (trace.peak_bytes, copied_in_all(trace)), "have a peak of"),
}


def together(index: Index, units: Sequence[Unit]) -> tuple[Fix, ...]:
    """Fixes of several changes that are better than each alone: for the fewest bytes copied, and for the lowest peak.
    ``units``: changes that were tried one by one; those that save most come first."""
    units = list(dict.fromkeys(units))[:_UNITS]
    if len(units) < 2:
        return ()
    try:
        tries = _Tries(replays_of(index, False), len(index.rows), len(units))
        now = tries.made(())
    except KvvizError:
        return ()
    found = []
    for goal, (cost, verb) in _GOALS.items():
        chosen, exact = _fewest(tries, units, cost)
        after = tries.of(chosen)
        if after is None or len(chosen) < 2:
            continue
        before, best = cost(now), cost(after)
        alone = [cost(one) for unit in units if (one := tries.of((unit,))) is not None]
        if best[0] < min(alone)[0] - before[0] * _WORTH:
            found.append(_fix(index, goal, verb, chosen, exact, before, best))
    return tuple(found)


class _Tries:
    """Totals of a trace with sets of units applied, each tried once."""

    def __init__(self, replays: Replays, steps: int, units: int) -> None:
        self.replays = replays
        self.all_sets = 2**units * steps <= _STEPS
        self.most = _STEPS // (4 * units)
        self.known: dict[frozenset[Unit], Any] = {}

    def made(self, changes: Unit) -> Any:
        return self.replays.totals(changes, self.most)

    def of(self, units: Sequence[Unit]) -> Any:
        """The totals after some units; None if the changes contradict each other."""
        key = frozenset(units)
        if key not in self.known:
            try:
                self.known[key] = self.made(tuple(dict.fromkeys(change for unit in units for change in unit)))
            except KvvizError:
                self.known[key] = None
        return self.known[key]


def _fewest(tries: _Tries, units: Sequence[Unit], cost: Callable[[Any], Cost]) -> tuple[tuple[Unit, ...], bool]:
    def least(chosen: Sequence[Unit]) -> float:
        found = tries.of(chosen)
        return float("inf") if found is None else cost(found)[0]

    if tries.all_sets:
        sets = [some for length in range(len(units) + 1) for some in combinations(units, length)]
        return min(sets, key=lambda some: (least(some), len(some))), True
    chosen: list[Unit] = []
    for unit in units:
        if least([*chosen, unit]) <= least(chosen):
            chosen.append(unit)
    reached = least(chosen)
    for unit in list(chosen):
        rest = [other for other in chosen if other != unit]
        if least(rest) <= reached:
            chosen = rest
    return tuple(chosen), False


def _fix(index: Index, goal: str, verb: str, chosen: Sequence[Unit], exact: bool, before: Cost, after: Cost) -> Fix:
    trace = index.trace
    changes = tuple(dict.fromkeys(change for unit in chosen for change in unit))
    other = after[1] - before[1]
    least = "no fewer of those that were found do" if exact else "none of them can be left out"
    text = f"Together {count(len(chosen), 'change')} {verb} {size(after[0])} instead of {size(before[0])}; {least}."
    if goal == "copies" and other > 0:
        text += f" The peak is {size(other)} higher."
    elif goal == "peak" and other > 0:
        text += f" {size(other)} more are copied."
    peak = before[goal == "copies"] - after[goal == "copies"]
    return made_fix(trace, changes, text, before[0] - after[0], peak, kind="together")
