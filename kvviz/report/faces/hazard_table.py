"""The hazards of a trace as a tuple that is displayed as a table, and grouped where layers and runs repeat them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvviz.errors import InputError
from kvviz.graph.layers import places
from kvviz.other_names import with_other_names
from kvviz.report.faces.steps_table import Table
from kvviz.trace.index.hazards import Hazard, find_hazards
from kvviz.trace.index.value_index import Index, index_of
from kvviz.trace.model_or_trace import TraceLike, as_trace
from kvviz.trace.recording import Trace
from kvviz.trace.schema.regions import LEVELS, Level
from kvviz.trace.units import count, size

_COLUMNS = (
    ("kind", "kind", False, 6),
    ("state", "order", False, 8),
    ("first", "first", True, 9),
    ("second", "second", True, 9),
    ("bytes", "bytes", True, 12),
    ("value", "value", False, 36),
    ("sentence", "what happens", False, 240),
)


class Hazards(tuple[Hazard, ...]):
    """Hazards in the order of their second step, displayed as a table."""

    __slots__ = ()

    def table(self) -> Table:
        """The hazards as a table, one row for each pair."""
        return Table([{name: getattr(hazard, name) for name, *_ in _COLUMNS} for hazard in self], _COLUMNS)

    def __repr__(self) -> str:
        return repr(self.table()) if self else "no hazards"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


@with_other_names
def hazards(trace: TraceLike, level: Level = "exact", ordered: bool = False, run: int | None = None) -> Hazards:
    """The hazards of a trace, or of one of its runs, in the order of the second step.

    Parameters
    ----------
    trace : Trace, or ggml.ComputeGraph, or any object with a ``trace``, or the path of a saved trace
        A graph is read as its list of nodes, whether it has been run or not.
    level : {"exact", "range", "root"}
        What counts as the same bytes: the bytes themselves, ranges from the first to the last byte of a value, or all
        of a storage.
    ordered : bool
        Include the pairs that a path of the graph keeps in order. Otherwise only the hidden and the broken pairs are
        returned.
    run : int, optional

    Raises
    ------
    InputError
        If there is no such level.

    Notes
    -----
    Runs are ordered by their caller. Two values that a pool put into the same storage one after the other are ordered
    by the pool, and are not a hazard. An ordered pair is left out if a write in between, from which the later access
    has its value, covers all bytes of one of the two: a chain of writes is listed pair by pair.

    Examples
    --------
    >>> [h.sentence for h in hazards(trace) if h.broken]                    # doctest: +SKIP
    ['ReduceSum reads past after TensorScatter has overwritten it: it does not see what the graph says']
    """
    if level not in LEVELS:
        raise InputError(f"there is no level {level!r}; choose one of {', '.join(LEVELS)}")
    return Hazards(find_hazards(as_trace(trace, "kvviz.hazards"), level, ordered, run))


_SURE = {"certain": "", "likely": "likely", "unknown": "not certain"}
_NUMBER = re.compile(r"\d+")


def doubts(pairs: Iterable[Hazard]) -> str:
    """How many pairs are not certain: `` (8 likely, 4 not certain)``, or nothing."""
    found = Counter(pair.confidence for pair in pairs)
    doubtful = ", ".join(f"{found[name]:,} {word}" for name, word in _SURE.items() if word and found[name])
    return f" ({doubtful})" if doubtful else ""


class _Alike(NamedTuple):
    kind: str
    broken: bool
    ops: tuple[str, str]
    root: str
    exact: bool
    range: bool
    known: Level
    confidence: str


def folded(trace: Trace, pairs: Sequence[Hazard]) -> tuple[list[int], list[str]]:
    """Group pairs that differ only in layer and run: the group of each pair, and a title for each group."""
    index = index_of(trace)
    groups: dict[_Alike, list[Hazard]] = {}
    keys = [_alike(index, pair) for pair in pairs]
    for key, pair in zip(keys, pairs):
        groups.setdefault(key, []).append(pair)
    number = {key: at for at, key in enumerate(groups)}
    return [number[key] for key in keys], [_title(index, *group) for group in groups.items()]


def _alike(index: Index, pair: Hazard) -> _Alike:
    nodes = index.rows[pair.first].op.node, index.rows[pair.second].op.node
    ops, root = (nodes[0].op_type, nodes[1].op_type), _NUMBER.sub("#", pair.root)
    return _Alike(pair.kind, pair.broken, ops, root, pair.exact > 0, pair.range > 0, pair.known, pair.confidence)


def _title(index: Index, alike: _Alike, group: Sequence[Hazard]) -> str:
    shared = [pair.exact or pair.range or pair.whole for pair in group]
    each = " each" if len(group) > 1 else ""
    sizes = size(shared[0]) if min(shared) == max(shared) else f"{size(min(shared))} to {size(max(shared))}"
    sizes = sizes if alike.known == "exact" else f"at most {sizes}"
    sure = _SURE[alike.confidence]
    wrong = (sure and f", {sure}") if alike.exact else ", no byte of them shared"
    root = _common([pair.root for pair in group])
    times = _times(index, group)
    return f"{alike.kind}{times}: {alike.ops[0]} → {alike.ops[1]} {root}: {sizes}{each}{wrong}"


def _times(index: Index, group: Sequence[Hazard]) -> str:
    if len(group) == 1:
        return ""
    rows = [index.rows[pair.second] for pair in group]
    frames = [index.frames[row.frame] for row in rows]
    layers = {places(frame.program.graph)[row.op.node.index].layer for row, frame in zip(rows, frames)}
    runs = {frame.run for frame in frames}
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
    split = [_NUMBER.split(name) for name in all_of]
    numbers = [_NUMBER.findall(name) for name in all_of]
    differ = [len({number[i] for number in numbers}) > 1 for i in range(len(numbers[0]))]
    pieces = [("…" if other else number) + text for other, number, text in zip(differ, numbers[0], split[0][1:])]
    return split[0][0] + "".join(pieces)
