"""Pairs of steps that only the schedule keeps in order, with the result at each precision and the bytes touched.

A pair that shares no byte is included if ranges or roots alone would report it, which shows where a coarser level is
wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kvviz.errors import KvvizError
from kvviz.explain.hazards import Hazard, find_hazards, hidden_by_level
from kvviz.graph.layers import places
from kvviz.trace.accesses import accesses_of
from kvviz.trace.declared import Access
from kvviz.trace.model_or_trace import TraceLike, as_trace
from kvviz.trace.recording import Trace
from kvviz.trace.regions import LEVELS, Level, overlap
from kvviz.trace.units import count, size
from kvviz.trace.value_index import Index, index_of

_ONLY = "Nothing but the order of the list keeps"
HEADLINES = {
    ("RAW", False): f"{_ONLY} this read behind that write",
    ("WAR", False): f"{_ONLY} this write behind that read",
    ("WAW", False): f"{_ONLY} this write behind that one",
    ("RAW", True): "This read comes before the write that it needs",
    ("WAR", True): "This read comes after its bytes were overwritten",
    ("WAW", True): "These two writes are in the wrong order: the wrong bytes stay",
}
"""By kind, and whether the recorded order is broken."""
# Whether the earlier and the later step write.
_WRITES = {
    ("RAW", False): (True, False),
    ("RAW", True): (False, True),
    ("WAR", False): (False, True),
    ("WAR", True): (True, False),
}
_LAYER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class HiddenPair:
    """A hazard that no path of the graph orders, and its two sides.

    Attributes
    ----------
    hazard : Hazard
        At the finest level that has it.
    exact, range, root : int
        Bytes that the two share at each level; 0: no conflict at that level.
    early, late : Access
        What the earlier and the later step touch.
    layer : int, optional
        Of the later step.
    run : int
    ops, names : tuple of str
        The operators and the node names of both steps.
    """

    hazard: Hazard
    exact: int
    range: int
    root: int
    early: Access
    late: Access
    layer: int | None
    run: int
    ops: tuple[str, str]
    names: tuple[str, str]

    @property
    def shared(self) -> str:
        """Bytes that the two share, in words."""
        return size(self.exact) if self.hazard.known == "exact" else f"at most {size(self.exact)}"

    @property
    def headline(self) -> str:
        """The finding in one sentence."""
        if self.hazard.ordered:
            return "A path of the graph keeps these two in order"
        if not self.exact:
            coarse = "ranges" if self.range else "whole roots"
            return f"No byte is shared: only a look at {coarse} takes these two for a conflict"
        if self.hazard.confidence == "unknown":
            return "These two may touch the same bytes, and nothing but the order of the list keeps them in order"
        return HEADLINES[self.hazard.kind, self.hazard.broken]

    def says(self, level: Level) -> str:
        """The result at one level, in words."""
        shared = {"exact": self.exact, "range": self.range, "root": self.root}[level]
        if not shared:
            return "no conflict"
        if LEVELS.index(level) > LEVELS.index(self.hazard.known):
            return f"not known: at most {size(self.exact)}"
        return f"conflict: {size(shared)}" if self.exact else f"conflict: {size(shared)}, which is wrong"


def hidden_pairs(trace: Trace, run: int) -> tuple[HiddenPair, ...]:
    """All pairs of one run: broken and hidden ones first, then those that only ranges report, then only roots."""
    index = index_of(trace)
    known: dict[int, tuple[HiddenPair, ...]] = index.notes.setdefault("hidden pairs", {})
    if run not in known:
        found = [_pair(index, hazard, levels) for hazard, levels in _by_level(trace, index, run).values()]
        known[run] = tuple(sorted(found, key=lambda pair: (not pair.exact, not pair.range)))
    return known[run]


def ordered_pairs(trace: Trace, run: int) -> tuple[HiddenPair, ...]:
    """The pairs of one run that share bytes, and that a path of the graph keeps in order."""
    index = index_of(trace)
    known: dict[int, tuple[HiddenPair, ...]] = index.notes.setdefault("ordered pairs", {})
    if run not in known:
        found = [hazard for hazard in find_hazards(trace, ordered=True, run=run) if hazard.ordered]
        known[run] = tuple(_pair(index, hazard, {"exact": hazard.bytes}) for hazard in found)
    return known[run]


def hidden_pair(trace: TraceLike, hazard: Hazard) -> HiddenPair:
    """A hazard of a trace with its two accesses.

    Raises
    ------
    KvvizError
        If the trace has no such steps, or they do not touch the storage.
    """
    trace = as_trace(trace, "hidden_pair")
    index = index_of(trace)
    if not 0 <= hazard.first < hazard.second < len(index.rows):
        raise KvvizError(f"steps {hazard.first} and {hazard.second} of the hazard are not steps of this trace")
    known = _by_level(trace, index, index.frames[index.rows[hazard.second].frame].run).get(_key(hazard))
    if known is not None:
        return _pair(index, *known)
    early, late = _sides(index, hazard)
    capacity = index.trace.log.storages[hazard.storage].capacity
    return _pair(index, hazard, {level: overlap(early.region, late.region, level, capacity) for level in LEVELS})


def _key(hazard: Hazard) -> tuple[Any, ...]:
    return hazard.kind, hazard.first, hazard.second, hazard.storage, hazard.value, hazard.broken


def _by_level(trace: Trace, index: Index, run: int) -> dict[tuple[Any, ...], tuple[Hazard, dict[Level, int]]]:
    known = index.notes.setdefault("hidden by level", {})
    if run not in known:
        found: dict[tuple[Any, ...], tuple[Hazard, dict[Level, int]]] = {}
        for level, of_level in hidden_by_level(trace, run).items():
            for hazard in of_level:
                found.setdefault(_key(hazard), (hazard, {}))[1][level] = hazard.bytes
        known[run] = found
    pairs: dict[tuple[Any, ...], tuple[Hazard, dict[Level, int]]] = known[run]
    return pairs


def _sides(index: Index, hazard: Hazard) -> tuple[Access, Access]:
    """The accesses of the two steps to the storage; of several, the two that share most."""
    writes = _WRITES.get((hazard.kind, hazard.broken), (True, True))
    first, second = (
        [one for one in accesses_of(index, step) if one.storage == hazard.storage and one.writes is write]
        for step, write in zip((hazard.first, hazard.second), writes)
    )
    # The value that the hazard names is what is read, or what is written last.
    named_late = hazard.kind == "WAW" or writes[0]
    if named_late != (hazard.kind == "WAW" and hazard.broken):
        second = [one for one in second if one.value == hazard.value] or second
    else:
        first = [one for one in first if one.value == hazard.value] or first
    both = [(one, two) for one in first for two in second]
    if not both:
        raise KvvizError(f"steps {hazard.first} and {hazard.second} do not both touch storage {hazard.storage}")
    return max(both, key=lambda pair: [overlap(pair[0].region, pair[1].region, level) for level in reversed(LEVELS)])


def _pair(index: Index, hazard: Hazard, levels: dict[Level, int]) -> HiddenPair:
    early, late = _sides(index, hazard)
    one, two = index.rows[hazard.first], index.rows[hazard.second]
    frame = index.frames[two.frame]
    layer = places(frame.program.graph)[two.op.node.index].layer
    shared = (levels.get("exact", 0), levels.get("range", 0), levels.get("root", 0))
    nodes = one.op.node, two.op.node
    ops, names = (nodes[0].op_type, nodes[1].op_type), (nodes[0].name, nodes[1].name)
    return HiddenPair(hazard, *shared, early, late, layer, frame.run, ops, names)


_SURE = {"certain": "", "likely": "likely", "unknown": "not certain"}


def doubts(pairs: Iterable[HiddenPair]) -> str:
    """How many pairs are not certain: `` (8 likely, 4 not certain)``, or nothing."""
    found = Counter(pair.hazard.confidence for pair in pairs)
    doubtful = ", ".join(f"{found[name]:,} {word}" for name, word in _SURE.items() if word and found[name])
    return f" ({doubtful})" if doubtful else ""


def folded(pairs: Sequence[HiddenPair]) -> tuple[list[int], list[str]]:
    """Group pairs that differ only in layer and run: the group of each pair, and a title for each group."""
    at: dict[tuple[Any, ...], int] = {}
    groups = [at.setdefault(_alike(pair), len(at)) for pair in pairs]
    members: list[list[HiddenPair]] = [[] for _ in at]
    for group, pair in zip(groups, pairs):
        members[group].append(pair)
    return groups, [_title(group) for group in members]


def _alike(pair: HiddenPair) -> tuple[Any, ...]:
    hazard = pair.hazard
    root = _LAYER.sub("#", hazard.root)
    return (
        hazard.kind,
        hazard.broken,
        pair.ops,
        root,
        bool(pair.exact),
        bool(pair.range),
        hazard.known,
        hazard.confidence,
    )


def _title(group: Sequence[HiddenPair]) -> str:
    first = group[0]
    shared = [pair.exact or pair.range or pair.root for pair in group]
    each = " each" if len(group) > 1 else ""
    sizes = size(shared[0]) if min(shared) == max(shared) else f"{size(min(shared))} to {size(max(shared))}"
    sizes = sizes if first.hazard.known == "exact" else f"at most {sizes}"
    sure = _SURE[first.hazard.confidence]
    wrong = (sure and f", {sure}") if first.exact else ", no byte of them shared"
    root = _common([pair.hazard.root for pair in group])
    times = _times(group)
    return f"{first.hazard.kind}{times}: {first.ops[0]} → {first.ops[1]} {root}: {sizes}{each}{wrong}"


def _times(group: Sequence[HiddenPair]) -> str:
    if len(group) == 1:
        return ""
    layers, runs = {pair.layer for pair in group}, {pair.run for pair in group}
    parts = []
    if len(group) == len(layers) * len(runs):
        parts = [count(len(layers), "layer")] if len(layers) > 1 else []
        parts += [count(len(runs), "run")] if len(runs) > 1 else []
    return "".join(f" × {part}" for part in parts or [f"{len(group):,}"])


def _common(names: Iterable[str]) -> str:
    """One name for several that differ in numbers: ``cache_k_l…``."""
    all_of = Counter(names)
    if len(all_of) == 1:
        return next(iter(all_of))
    split = [_LAYER.split(name) for name in all_of]
    numbers = [_LAYER.findall(name) for name in all_of]
    differ = [len({number[i] for number in numbers}) > 1 for i in range(len(numbers[0]))]
    pieces = [("…" if other else number) + text for other, number, text in zip(differ, numbers[0], split[0][1:])]
    return split[0][0] + "".join(pieces)
