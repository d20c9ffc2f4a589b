"""Rows of a cache as spans: which rows hold which tokens, and how writing, shifting and evicting change that.

A held span is ``(start, stop, position)``: its rows hold the tokens ``position``, ``position + 1``, …; at ``NO_TOKEN``
they hold something other than a live token. Rows in no span were never written. Spans are sorted and do not overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from kvviz.trace.records import Held, Rows, Span

NO_TOKEN = -1
_END = 1 << 62


def put(held: Sequence[Held], start: int, stop: int, position: int) -> tuple[Held, ...]:
    """Let the rows ``start`` to ``stop`` hold the tokens from ``position`` on."""
    if stop <= start:
        return tuple(held)
    return joined([*drop(held, start, stop), (start, stop, position)])


def drop(held: Sequence[Held], start: int, stop: int) -> tuple[Held, ...]:
    """The rows ``start`` to ``stop`` no longer hold anything."""
    if stop <= start:
        return tuple(held)
    return (*cut(held, 0, start), *cut(held, stop, _END))


def cut(held: Sequence[Held], start: int, stop: int) -> tuple[Held, ...]:
    """The contents of the rows ``start`` to ``stop``."""
    return tuple(
        (max(a, start), min(b, stop), _at(p, max(start - a, 0))) for a, b, p in held if max(a, start) < min(b, stop)
    )


def shift(held: Sequence[Held], by: int) -> tuple[Held, ...]:
    """Renumber all rows."""
    return tuple((a + by, b + by, p) for a, b, p in held)


def joined(held: Iterable[Held]) -> tuple[Held, ...]:
    """Merge neighbours that hold consecutive tokens."""
    found: list[Held] = []
    for start, stop, position in sorted(held):
        if found and found[-1][1] == start and _at(found[-1][2], start - found[-1][0]) == position:
            found[-1] = (found[-1][0], stop, found[-1][2])
        else:
            found.append((start, stop, position))
    return tuple(found)


def without(held: Sequence[Held], positions: Sequence[Span]) -> tuple[Held, ...]:
    """Mark the rows of the tokens at these positions as holding no live token: they are padding."""
    found: list[Held] = list(held)
    for low, high in positions:
        for start, stop, position in tuple(found):
            if position == NO_TOKEN or position >= high or position + stop - start <= low:
                continue
            a, b = max(start, start + low - position), min(stop, start + high - position)
            found = list(put(found, a, b, NO_TOKEN))
    return tuple(found)


def count(spans: Iterable[Sequence[int]]) -> int:
    return sum(span[1] - span[0] for span in spans)


def tally(items: Sequence[Rows]) -> dict[str, int]:
    """The rows of a cache that are valid, stale and written in a run, as `CacheRun` names them: of several batch
    entries the largest number."""
    return {
        "valid": max(count(live(item.held)) for item in items),
        "stale": max(count(stale(item.held)) for item in items),
        "rows_written": max(count(item.wrote) for item in items),
    }


def live(held: Iterable[Held]) -> tuple[Span, ...]:
    return union((start, stop) for start, stop, position in held if position != NO_TOKEN)


def stale(held: Iterable[Held]) -> tuple[Span, ...]:
    """Rows that hold something other than a live token."""
    return union((start, stop) for start, stop, position in held if position == NO_TOKEN)


def union(spans: Iterable[Sequence[int]]) -> tuple[Span, ...]:
    """Sorted spans, merged where they overlap or touch."""
    found: list[Span] = []
    for start, stop in sorted((span[0], span[1]) for span in spans if span[0] < span[1]):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return tuple(found)


def both(first: Iterable[Sequence[int]], second: Iterable[Sequence[int]]) -> tuple[Span, ...]:
    others = union(second)
    return tuple((max(a, c), min(b, d)) for a, b in union(first) for c, d in others if max(a, c) < min(b, d))


def minus(spans: Iterable[Sequence[int]], others: Iterable[Sequence[int]]) -> tuple[Span, ...]:
    found = list(union(spans))
    for low, high in union(others):
        found = [
            part
            for start, stop in found
            for part in ((start, min(stop, low)), (max(start, high), stop))
            if part[0] < part[1]
        ]
    return tuple(found)


def spans_of(flags: np.ndarray) -> tuple[Span, ...]:
    """Spans in which a vector of booleans is true."""
    if flags.all():
        return ((0, len(flags)),) if len(flags) else ()
    padded = np.zeros(len(flags) + 2, np.bool_)
    padded[1:-1] = flags
    edges = np.flatnonzero(padded[1:] != padded[:-1]).tolist()
    return tuple(zip(edges[::2], edges[1::2]))


def runs_of(rows: Iterable[int]) -> tuple[Held, ...]:
    """Rows in write order, as spans with the index of their first row in that order."""
    found: list[Held] = []
    for number, row in enumerate(rows):
        if found and found[-1][1] == row and found[-1][2] + row - found[-1][0] == number:
            found[-1] = (found[-1][0], row + 1, found[-1][2])
        else:
            found.append((row, row + 1, number))
    return tuple(found)


def _at(position: int, rows: int) -> int:
    return position if position == NO_TOKEN else position + rows
