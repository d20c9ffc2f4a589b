"""The rows of a cache as cells: what each row holds after a run, as spans that views can draw.

Invariant: the cells of a cache after a run cover its rows from 0 to its capacity, without gaps and overlaps, and say
of each row what `kvviz.caches.cache_heat` says of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from kvviz.caches.cache_heat import heat
from kvviz.trace.recording import Trace

# In the order of their numbers.
STATES = ("reserved", "valid", "written", "stale", "outside", "wrapped")
RESERVED, VALID, WRITTEN, STALE, OUTSIDE, WRAPPED = range(len(STATES))

Cell = tuple[int, int, int, int, int]
"""First row, row after the last, state, 1 if this run wrote them, and the position of the token in the first row: -1
where there is none."""


def cells(cache: Any, run: int, entry: int = 0) -> tuple[Cell, ...]:
    """What the rows of a cache hold after a run.

    A row that was never written is ``reserved``; one that holds something, but no live token, is ``stale``. One that
    holds a token is ``outside`` where attention cannot see it, else ``written`` where this run wrote it, else
    ``wrapped`` where the token took the place of an older one, else ``valid``.

    ``entry``: of the batch.

    Returns empty for a state, and for a run that has not told its caches. Where it is not known which rows a run
      wrote, the first ones count as valid.
    """
    if run >= len(cache.runs) or cache.axis is None:
        return ()
    told = cache.runs[run]
    if not told.items:
        found = [(0, told.valid, VALID, 0, 0), (told.valid, told.capacity, RESERVED, 0, -1)]
        return tuple(cell for cell in found if cell[0] < cell[1])
    rows = told.items[min(entry, len(told.items) - 1)]
    edges = {0, told.capacity, *(edge for span in rows.held for edge in span[:2])}
    edges |= {edge for span in (*rows.wrote, *(rows.read or ())) for edge in span}
    joined: list[Cell] = []
    for start, stop in pairwise(sorted(edge for edge in edges if 0 <= edge <= told.capacity)):
        token = next((at + start - a if at >= 0 else -1 for a, b, at in rows.held if a <= start < b), None)
        wrote = _within(rows.wrote, start)
        state = _state(cache.protocol, told.capacity, rows, start, token, wrote)
        cell = (start, stop, state, int(wrote), -1 if token is None else token)
        if joined and _goes_on(joined[-1], cell):
            joined[-1] = (joined[-1][0], stop, *joined[-1][2:])
        else:
            joined.append(cell)
    return tuple(joined)


def notes(cache: Any, run: int, entry: int = 0) -> tuple[tuple[int, int, str], ...]:
    """What the producer says of rows after a run: first row, row after the last, and a text; mostly nothing."""
    if run >= len(cache.runs) or cache.axis is None or not cache.runs[run].items:
        return ()
    items = cache.runs[run].items
    told: tuple[tuple[int, int, str], ...] = items[min(entry, len(items) - 1)].notes
    return told


def owners(cache: Any, run: int, entry: int = 0) -> tuple[Any, ...]:
    """Whose rows are after a run, where sequences share a cache; see `kvviz.trace.records.Rows`."""
    if run >= len(cache.runs) or cache.axis is None or not cache.runs[run].items:
        return ()
    items = cache.runs[run].items
    told: tuple[Any, ...] = items[min(entry, len(items) - 1)].owners
    return told


def entries_of(cache: Any) -> int:
    """Batch entries that are told apart."""
    return max((len(told.items) for told in cache.runs), default=1) or 1


def heads_of(trace: Trace, cache: Any) -> int:
    """Heads that share a row; 1 where they are not apart, or not known."""
    runs = zip(trace.runs, cache.runs)
    first = next((i for i, (run, told) in enumerate(runs) if told.items and run.last > run.first), None)
    shown = None if first is None else heat(trace, cache, first)
    return 1 if shown is None else len(shown.states)


def _state(protocol: str, capacity: int, rows: Any, row: int, token: int | None, wrote: bool) -> int:
    if token is None:
        return RESERVED
    if token < 0:
        return STALE
    if rows.read is not None and not _within(rows.read, row):
        return OUTSIDE
    if wrote:
        return WRITTEN
    # In a cache that is written round and round a row's first token has the row's own number.
    turned = protocol == "window" and token >= capacity and token % capacity == row
    return WRAPPED if turned else VALID


def _within(spans: Sequence[tuple[int, int]], row: int) -> bool:
    return any(start <= row < stop for start, stop in spans)


def _goes_on(before: Cell, cell: Cell) -> bool:
    tokens = before[4] == cell[4] == -1 or (before[4] >= 0 and before[4] + cell[0] - before[0] == cell[4])
    return before[2:4] == cell[2:4] and tokens
