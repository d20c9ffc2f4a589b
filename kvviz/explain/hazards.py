"""Hazards: two ops that touch the same bytes, one of them writing, and that only the schedule keeps in order.

A hazard is named by the order that the graph's meaning asks for, not by the order that was recorded. An op that
overwrites a value in place relies on all its other readers having run: they must read before it writes (WAR). Where a
path of the graph says so, the order is certain; where only the schedule does, another legal order would give another
result. If a reader came after its value was overwritten, that order is broken: still a WAR, and the result is wrong.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from kvviz.trace.accesses import Touch, Touches, overlap
from kvviz.trace.step_order import Reachability
from kvviz.trace.value_index import Index, index_of

# So many touches are looked at one by one, more of them together.
_FEW = 16


@dataclass(frozen=True, slots=True)
class Hazard:
    """A pair of steps of one run that only the schedule keeps in order, or did not keep.

    Attributes
    ----------
    kind : str
        By the order that is required. ``"WAR"``: one step must read before the other overwrites what it reads.
        ``"WAW"``: both write, and it matters whose bytes stay. That a step must read what another one wrote (RAW) is
        what the edges of a graph say, and no hazard.
    first, second : int
        Steps, in the order in which they ran.
    storage : int
    value : str
        The value whose bytes they share: the one that is read, or for WAW the one that is written last.
    sentence : str
    broken : bool
        The recorded order is not the required one: the first step overwrote what the second reads, which so does not
        see what the graph says.
    """

    kind: str
    first: int
    second: int
    storage: int
    value: str
    sentence: str
    broken: bool = False


def hazards(trace: Any, run: int | None = None) -> tuple[Hazard, ...]:
    """Every hazard of a trace, or of one of its runs, in the order of the second step.

    Parameters
    ----------
    trace : Trace
    run : int, optional

    Notes
    -----
    Two runs are ordered by their caller. Two values to which a pool gave the same storage one after the other are
    ordered by the pool, and no hazard.

    Examples
    --------
    >>> [h.sentence for h in hazards(trace) if h.broken]                    # doctest: +SKIP
    ['ReduceSum reads past after TensorScatter has overwritten it: it does not see what the graph says']
    """
    index = index_of(trace)
    found: set[Hazard] = set()
    for part in trace.runs if run is None else [trace.runs[run]]:
        for storage, touches in Touches(index, part.first, part.last):
            # Who made the storage comes before all who use it.
            if any(touch.writes for touch in touches[1:]):
                found.update(_Pairs(index, part.index, storage, touches))
    return tuple(sorted(found, key=lambda h: (h.second, h.first, h.kind, h.value)))


def is_ordered(trace: Any, first: int, second: int) -> bool:
    """Whether a path of the graph leads from one step of a run to a later one."""
    index = index_of(trace)
    return _reachability(index, index.frames[index.rows[second].frame].run).ordered(first, second)


def _reachability(index: Index, run: int) -> Reachability:
    known: dict[int, Reachability] = index.notes.setdefault("reachability", {})
    if run not in known:
        known[run] = Reachability(index, run)
    return known[run]


class _Pairs:
    """The hazards in one storage.

    What the graph has before the write that made a value, it has before all that use the value. So a write is compared
    with what came after its source, and with what was not ordered before the source; not with all of the past.
    """

    def __init__(self, index: Index, run: int, storage: int, touches: Sequence[Touch]) -> None:
        self.index = index
        self.run = run
        self.storage = storage
        self.touches = touches
        self.writes = [number for number, touch in enumerate(touches) if touch.writes]
        self.bounds = np.array([touch.region[:2] for touch in touches], np.int64).reshape(-1, 2)
        # Of a write: the earlier touches that the graph may not have before it.
        self.open: dict[int, Sequence[int]] = {}

    def __iter__(self) -> Iterator[Hazard]:
        for number, touch in enumerate(self.touches):
            if touch.writes:
                yield from self._write(number, touch)
            else:
                yield from self._read(number, touch)

    def _read(self, number: int, late: Touch) -> Iterator[Hazard]:
        """Writes between the one that made a value and one that reads it."""
        between = self.writes[bisect_right(self.writes, late.source) : bisect_right(self.writes, number)]
        for early in self._near(between, late):
            if late.made < self.touches[early].step < late.step:
                yield _broken(self.index, self.storage, self.touches[early], late)

    def _write(self, number: int, late: Touch) -> Iterator[Hazard]:
        # Only one write takes over what another one made, so this is asked for once.
        earlier = self.open.pop(late.source, None)
        if earlier is None:
            earlier = range(late.source)
        since = range(late.source + 1, number)
        rivals = [*self._near(earlier, late), *self._near(since, late)]
        rivals = [rival for rival in rivals if self.touches[rival].step < late.step]
        steps = {self.touches[rival].step for rival in rivals}
        before = _reachability(self.index, self.run).before(steps, late.step) if steps else set()
        self.open[number] = self._left(earlier, since, {r for r in rivals if self.touches[r].step in before}, late)
        for rival in rivals:
            early = self.touches[rival]
            if early.step not in before:
                yield _hidden(self.index, self.storage, early, late)

    def _near(self, numbers: Sequence[int], late: Touch) -> Iterable[int]:
        """Those of the touches that have bytes in common with another one."""
        if len(numbers) > _FEW:
            chosen = np.asarray(numbers)
            low, high = self.bounds[chosen].T
            numbers = chosen[(low < late.region.high) & (high > late.region.low)].tolist()
        for number in numbers:
            region = self.touches[number].region
            if region.low < late.region.high and region.high > late.region.low and overlap(region, late.region):
                yield number

    def _left(self, earlier: Sequence[int], since: range, ordered: set[int], late: Touch) -> Sequence[int]:
        """What a write leaves to those that come after it: all that it is not known to come after."""
        gone = {number for number in since if self.touches[number].step == late.step} | ordered
        if len(earlier) + len(since) <= _FEW:
            return [number for part in (earlier, since) for number in part if number not in gone]
        joined = np.concatenate([np.asarray(earlier, np.int32), np.asarray(since, np.int32)])
        left: Any = joined[~np.isin(joined, list(gone))] if gone else joined
        return cast(Sequence[int], left)


def _hidden(index: Index, storage: int, early: Touch, late: Touch) -> Hazard:
    a, b = _called(index, early, late)
    if early.writes:
        text = f"{a} and {b} write the same bytes: only the schedule says whose stay"
        return Hazard("WAW", early.step, late.step, storage, late.value, text)
    text = f"{b} overwrites {early.value}, which {a} reads: only the schedule runs {a} first"
    return Hazard("WAR", early.step, late.step, storage, early.value, text)


def _broken(index: Index, storage: int, early: Touch, late: Touch) -> Hazard:
    a, b = _called(index, early, late)
    text = f"{b} reads {late.value} after {a} has overwritten it: it does not see what the graph says"
    return Hazard("WAR", early.step, late.step, storage, late.value, text, broken=True)


def _called(index: Index, early: Touch, late: Touch) -> tuple[str, str]:
    one, two = index.rows[early.step].op.node, index.rows[late.step].op.node
    if one.name == two.name:
        return one.name, two.name
    return f"{one.op_type} {one.name}", f"{two.op_type} {two.name}"
