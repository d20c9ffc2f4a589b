"""Hazards: two accesses to shared bytes, one of them a write, and what keeps them in order.

A hazard is named by the order that the graph requires, not by the recorded order. An op that overwrites a value in
place relies on all other readers having run: they must read before it writes (WAR). If a path of the graph ensures
this, the order is certain. If only the schedule does, the hazard is hidden: another legal order would give another
result. If a reader ran after its value was overwritten, the order is broken: still a WAR, and the result is wrong.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from kvviz import public_trace
from kvviz.graph.model import Node
from kvviz.trace.index.accesses import Touch, Touches
from kvviz.trace.index.step_order import Reachability
from kvviz.trace.index.value_index import Index, index_of
from kvviz.trace.recording import Trace
from kvviz.trace.schema.declared import Access
from kvviz.trace.schema.events import NEW, POOL
from kvviz.trace.schema.regions import KNOWN, LEVELS, Level, confidence, overlap
from kvviz.trace.trace_data import noted
from kvviz.trace.units import short, size

# Up to this many touches are compared one by one, more of them together.
_FEW = 16

_LEVEL_OF: dict[str, Level] = {"exact": "exact", "range": "range", "root": "root", "name": "root"}
_DOUBT = {
    "certain": "",
    "likely": " (likely: a name alone says whose memory it is)",
    "unknown": " (not certain: it is not known which bytes they touch)",
}
_SURE = tuple(_DOUBT)


@dataclass(frozen=True, slots=True)
class Hazard:
    """A pair of steps of one run that touch the same bytes, one of them writing.

    Attributes
    ----------
    kind : str
        By the required order. ``"RAW"``: one step must read what the other wrote. ``"WAR"``: one must read before the
        other overwrites what it reads. ``"WAW"``: both write, and it matters whose bytes stay.
    first, second : int
        Steps, in the order in which they ran.
    storage : int
    root : str
        Name of the value that the storage was made for.
    value : str
        The value whose bytes they share: the one that is read, or for WAW the one that is written last.
    bytes : int
        How many bytes they share, at the requested level.
    ordered : bool
        A path of the graph leads from the first step to the second. Otherwise only the schedule has them in order.
    broken : bool
        The recorded order is not the required one: the first step overwrote what the second reads, so the second does
        not read the value that the graph specifies.
    sentence : str
    early, late : Access
        What the first and the second step touch; of several accesses, those that share most.
    exact, range, whole : int
        Bytes that they share exactly, between first and last byte, and if each took the whole root; 0: no conflict.
    known : {"exact", "range", "root"}
        How precisely the touched bytes are known. If not exactly, ``bytes`` is an upper bound.
    confidence : {"certain", "likely", "unknown"}
        How certain it is that they share bytes: likely if only a name says whose memory one of them touches, unknown if
        each may touch other bytes.
    """

    kind: str
    first: int
    second: int
    storage: int
    root: str
    value: str
    bytes: int
    ordered: bool
    broken: bool
    sentence: str
    early: Access
    late: Access
    exact: int
    range: int
    whole: int
    known: Level = "exact"
    confidence: str = "certain"

    @property
    def state(self) -> str:
        """What keeps the two steps in order: the graph, only the schedule, or nothing."""
        return "broken" if self.broken else "ordered" if self.ordered else "hidden"

    def __repr__(self) -> str:
        steps = f"steps {self.first:,} and {self.second:,}"
        return f"<{self.kind} ({self.state}), {steps}, {size(self.bytes)}: {short(self.sentence, 400)}>"

    _repr_html_ = public_trace.hazard_html


def find_hazards(
    trace: Trace, level: Level = "exact", ordered: bool = False, run: int | None = None
) -> tuple[Hazard, ...]:
    """The hazards of a trace, or of one of its runs, in the order of the second step; see `kvviz.hazards`."""
    index = index_of(trace)
    found: list[Hazard] = []
    for part in trace.runs if run is None else [trace.runs[run]]:
        for storage, touches in Touches(index, part.first, part.last):
            since = 0 if ordered else _since(index, storage, touches)
            if any(touch.writes for touch in touches[since:]):
                pairs = _Pairs(index, part.index, storage, touches, level)
                found += pairs.named(pairs.unordered(), False)
                if ordered:
                    found += pairs.named(pairs.ordered(), True)
    return tuple(sorted(found, key=lambda h: (h.second, h.first, h.kind, h.value)))


def _since(index: Index, storage: int, touches: Sequence[Touch]) -> int:
    """The first touch that may be out of order. If edges define values, a storage's maker runs before all users."""
    made = index.trace.log.storages[storage].origin in ("run", "pool")
    return 1 if made and not touches[0].latest else 0


def hidden_pairs(trace: Trace, run: int) -> tuple[Hazard, ...]:
    """All broken and hidden pairs of one run: first those that share bytes, then those that only ranges report, then
    those that only whole roots report."""

    def found() -> tuple[Hazard, ...]:
        pairs = find_hazards(trace, "root", run=run)
        return tuple(sorted(pairs, key=lambda hazard: (not hazard.exact, not hazard.range)))

    return noted(index_of(trace).notes, ("hidden pairs", run), found)


def explaining(broken: Sequence[Hazard], step: int, reads: Iterable[int]) -> Hazard | None:
    """The broken pair because of which a step read other bytes: it ran before a write that it needs, or after one that
    it must not see (the last such write), or two writes into its input ran in the other order. ``reads``: the storages
    that the step reads."""
    early = [pair for pair in broken if pair.kind == "RAW" and pair.first == step]
    late = [pair for pair in broken if pair.kind == "WAR" and pair.second == step]
    swapped = [pair for pair in broken if pair.kind == "WAW" and pair.second < step and pair.storage in reads]
    return next(iter((*early, *reversed(late), *swapped)), None)


def path_between(trace: Trace, first: int, second: int) -> tuple[int, ...]:
    """The steps of a shortest path of the graph from one step of a run to a later one, both included; empty if none."""
    index = index_of(trace)
    return _reachability(index, index.frames[index.rows[second].frame].run).path(first, second)


def _reachability(index: Index, run: int) -> Reachability:
    return noted(index.notes, ("reachability", run), lambda: Reachability(index, run))


_FINEST_FIRST = tuple(reversed(LEVELS))

_Pair = tuple[int, int]
"""Indices of two touches that share bytes."""


class _Pairs:
    """The pairs in one storage. Everything that the graph orders before the write of a value is ordered before all uses
    of the value. So a write is compared only with the touches after its source, and with those not ordered before the
    source."""

    def __init__(self, index: Index, run: int, storage: int, touches: Sequence[Touch], level: Level) -> None:
        self.index = index
        self.run = run
        self.storage = storage
        self.touches = touches
        self.level: Level = level
        self.capacity = index.trace.log.storages[storage].capacity
        self.steps = [touch.step for touch in touches]
        self.writes = [number for number, touch in enumerate(touches) if touch.writes]
        self.bounds = np.array([(touch.low, touch.high) for touch in touches], np.int64).reshape(-1, 2)
        # By write: the earlier touches that the graph may not order before it.
        self.open: dict[int, Sequence[int]] = {}

    def unordered(self) -> Iterator[_Pair]:
        """Pairs that only the schedule orders, or that are broken."""
        for number, touch in enumerate(self.touches):
            if touch.writes or touch.latest:
                yield from self._hidden(number, touch)
            else:
                for early in self._near(self._between(touch.source, number), touch):
                    if touch.made < self.steps[early] < touch.step:
                        yield early, number

    def ordered(self) -> Iterator[_Pair]:
        """Pairs that a path of the graph orders, without those that a write in between covers."""
        for number, touch in enumerate(self.touches):
            found = [early for early in self._older(number, touch) if self.steps[early] < touch.step]
            before = self._before(found, touch)
            yield from ((early, number) for early in found if early in before)

    def _hidden(self, number: int, late: Touch) -> Iterator[_Pair]:
        # Only one write replaces another's bytes, so this runs once for it.
        earlier = self.open.pop(late.source, None) if late.writes else self.open.get(late.source)
        if earlier is None:
            earlier = range(late.source)
        since = range(late.source + 1, number)
        rivals = [early for part in (earlier, since) for early in self._near(part, late)]
        rivals = [early for early in rivals if self.steps[early] < late.step]
        before = self._before(rivals, late)
        if late.writes:
            self.open[number] = self._left(earlier, since, before, late)
        for early in rivals:
            if early not in before and (late.writes or self.touches[early].writes):
                yield early, number

    def _older(self, number: int, late: Touch) -> Iterator[int]:
        """Earlier touches, except those covered by a write between them and the later touch that made its value."""
        source, end, floor = late.source, number, 0
        covering: list[Touch] = []
        while end > floor:
            since: Sequence[int] = range(max(source + 1, floor), end)
            if not late.writes:
                # A value that is read was made by its sources, and does not conflict with its other readers.
                since = self._between(source, end) if late.latest else ()
            for early in self._near([*since, source] if source >= floor else since, late):
                touch = self.touches[early]
                if not any(touch.step < write.step and self._covers(write, touch) for write in covering):
                    yield early
            if source < 0:
                break
            write = self.touches[source]
            covering.append(write)
            if self._covers(write, late):
                floor = max(floor, bisect_left(self.steps, write.step))
            source, end = write.source, source

    def _between(self, source: int, number: int) -> Sequence[int]:
        return self.writes[bisect_right(self.writes, source) : bisect_left(self.writes, number)]

    def _near(self, numbers: Sequence[int], late: Touch) -> Iterator[int]:
        if len(numbers) > _FEW and self.level != "root":
            chosen = np.asarray(numbers)
            low, high = self.bounds[chosen].T
            numbers = chosen[(low < late.high) & (high > late.low)].tolist()
        for number in numbers:
            touch = self.touches[number]
            near = self.level == "root" or (touch.low < late.high and touch.high > late.low)
            if near and overlap(touch.region, late.region, self.level, self.capacity):
                yield number

    def _covers(self, write: Touch, other: Touch) -> bool:
        if write.region.known != "exact":
            return False
        if self.level != "exact" or (write.low <= other.low and write.high >= other.high):
            both = overlap(write.region, other.region, self.level, self.capacity)
            return both == overlap(other.region, other.region, self.level, self.capacity)
        return False

    def _before(self, numbers: Sequence[int], late: Touch) -> set[int]:
        if not numbers:
            return set()
        steps = _reachability(self.index, self.run).before({self.steps[number] for number in numbers}, late.step)
        return {number for number in numbers if self.steps[number] in steps}

    def _left(self, earlier: Sequence[int], since: range, ordered: set[int], late: Touch) -> Sequence[int]:
        """Touches that later ones must still be compared with: those not known to be ordered before the write."""
        gone = {number for number in since if self.steps[number] == late.step} | ordered
        if len(earlier) + len(since) <= _FEW:
            return [number for part in (earlier, since) for number in part if number not in gone]
        joined = np.concatenate([np.asarray(earlier, np.int32), np.asarray(since, np.int32)])
        left: Any = joined[~np.isin(joined, list(gone))] if gone else joined
        return cast(Sequence[int], left)

    def named(self, pairs: Iterable[_Pair], ordered: bool) -> Iterator[Hazard]:
        """Pairs of touches as hazards; bytes that two steps share in several places are summed."""
        found: dict[tuple[str, int, int, str, bool], list[tuple[list[int], Touch, Touch]]] = {}
        for early, later in pairs:
            one, two = self.touches[early], self.touches[later]
            kind, value, broken = self._kind(one, two, ordered)
            shared = [overlap(one.region, two.region, level, self.capacity) for level in _FINEST_FIRST]
            found.setdefault((kind, one.step, two.step, value, broken), []).append((shared, one, two))
        root = _root(self.index, self.storage, self.touches[0]) if found else ""
        for (kind, first, second, value, broken), members in found.items():
            exact, ranged, whole = totals = [sum(counts) for counts in zip(*(shared for shared, _, _ in members))]
            finest = next(place for place, total in enumerate(totals) if total)
            regions = [(one.region, two.region) for shared, one, two in members if shared[finest]]
            coarse = max(KNOWN.index(region.known) for both in regions for region in both)
            sure = _SURE[min(_SURE.index(confidence(*both)) for both in regions) if coarse else 0]
            nodes = self.index.rows[first].op.node, self.index.rows[second].op.node
            said = sentence(kind, *nodes, value, ordered, broken) + _DOUBT[sure]
            _, one, two = max(members, key=lambda member: member[0])
            count, known = totals[_FINEST_FIRST.index(self.level)], _LEVEL_OF[KNOWN[coarse]]
            where = (kind, first, second, self.storage, root, value, count, ordered, broken, said)
            yield Hazard(*where, self._access(one), self._access(two), exact, ranged, whole, known, sure)

    def _access(self, touch: Touch) -> Access:
        return Access(self.storage, touch.writes, touch.value, touch.region)

    def _kind(self, early: Touch, late: Touch, ordered: bool) -> tuple[str, str, bool]:
        one, two = self.index.rows[early.step], self.index.rows[late.step]
        if not ordered and not late.writes and not late.latest:
            return "WAR", late.value, True
        broken = not ordered and late.latest and one.frame == two.frame and one.op.position > two.op.position
        before, after = (late, early) if broken else (early, late)
        if before.writes and after.writes:
            return "WAW", after.value, broken
        return ("RAW", after.value, broken) if before.writes else ("WAR", before.value, broken)


def _root(index: Index, storage: int, first: Touch) -> str:
    place = index.places.get((index.rows[first.step].frame, first.value))
    made = first.writes and place is not None and place.how in (NEW, POOL)
    return first.value if made else str(index.trace.storages[storage].name)


def sentence(kind: str, first: Node, second: Node, value: str, ordered: bool, broken: bool) -> str:
    a, b = (f"{node.op_type} {node.name}" if first.name != second.name else node.name for node in (first, second))
    who = "the graph runs" if ordered else "only the schedule runs"
    if kind == "WAR":
        if broken:
            return f"{b} reads {value} after {a} has overwritten it: it does not see what the graph says"
        return f"{b} overwrites {value}, which {a} reads: {who} {a} first"
    if kind == "RAW":
        if broken:
            return f"{a} reads {value} before {b} has written it: it does not see what the graph says"
        return f"{b} reads {value}, which {a} writes: {who} {a} first"
    if broken:
        return f"{a} and {b} write the same bytes, and {b}, whose bytes stay, should have been first"
    if ordered:
        return f"{a} and {b} write the same bytes: {who} {a} first"
    return f"{a} and {b} write the same bytes: only the schedule says whose stay"
