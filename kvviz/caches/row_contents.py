"""Rows of a cache as spans: which tokens they hold, and how writing, shifting and evicting change that in a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kvviz.ops.transformer.contrib_attention import resident
from kvviz.trace.records import Held, Rows, Span

NO_TOKEN, EMPTY = -1, -2
Cells = np.ndarray
"""The rows of a cache: the position of the token in each, `NO_TOKEN` for other data, `EMPTY` if it was never written.
Rows after the last one are empty."""

NOTHING: Cells = np.empty(0, np.int64)


def put(cells: Cells, *held: Held) -> Cells:
    """A copy in which some spans hold other tokens, or all `NO_TOKEN` or `EMPTY`."""
    beyond = max((stop for _, stop, _ in held), default=0) - len(cells)
    found = np.concatenate([cells, np.full(max(beyond, 0), EMPTY)])
    for start, stop, position in held:
        found[start:stop] = position if position < 0 else np.arange(position, position + stop - start)
    return found


def held_in(cells: Cells) -> tuple[Held, ...]:
    """The rows that are not empty, as spans of consecutive tokens or of other data."""
    goes_on = cells[1:] == cells[:-1] + (cells[:-1] >= 0)
    edges = [0, *(np.flatnonzero(~goes_on) + 1).tolist(), len(cells)]
    spans = zip(edges, edges[1:], cells[edges[:-1]].tolist() if len(cells) else ())
    return tuple(span for span in spans if span[2] != EMPTY)


def without(cells: Cells, positions: Sequence[Span]) -> Cells:
    """Mark the rows of the tokens at these positions as holding no live token: they are padding."""
    for low, high in positions:
        cells = np.where((cells >= low) & (cells < high), NO_TOKEN, cells)
    return cells


def count(spans: Iterable[Sequence[int]]) -> int:
    return sum(span[1] - span[0] for span in spans)


def tally(items: Sequence[Rows]) -> dict[str, int]:
    """The rows of a cache that are valid, stale and written in a run, as `CacheRun` names them; the largest number of
    any batch entry."""
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
    """Sorted spans, merged if they overlap or touch."""
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
    if flags.all():
        return ((0, len(flags)),) if len(flags) else ()
    padded = np.zeros(len(flags) + 2, np.bool_)
    padded[1:-1] = flags
    edges = np.flatnonzero(padded[1:] != padded[:-1]).tolist()
    return tuple(zip(edges[::2], edges[1::2]))


Writes = tuple[Held, ...]
"""Rows that one batch entry gets: (start, stop, number of its first row among the new tokens)."""


class Unknown(Exception):
    """The rows that an op wrote depend on more than the control inputs."""


@dataclass(slots=True)
class Book:
    held: list[Cells]  # one entry if all batch entries are alike
    given: bool = False  # the cache came from the caller, and only the number of its rows is known yet
    # position of the run's first token; if None, the tokens follow the existing ones
    base: int | None = None
    padding: list[tuple[Span, ...]] | None = None  # positions that are padding, by batch entry
    window: int = 0  # the maximum number of tokens that a query sees, its own included; 0 for no limit
    wrote: list[tuple[Span, ...]] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not any((cells != EMPTY).any() for cells in self.held)

    def spread(self, entries: int) -> None:
        """Give each of so many batch entries its own account. Raises `Unknown` if an op cut or joined the batch."""
        if entries > 1 and len(self.held) not in (1, entries):
            raise Unknown
        for name in ("held", "wrote", "lost"):
            kept = getattr(self, name)
            if len(kept) == 1 and entries > 1:
                setattr(self, name, kept * entries)


def store(book: Book, writes: list[Writes], start: int, *, circular: int = 0, base: int | None = None) -> None:
    """Put new tokens into their rows, by batch entry or equally for all. ``start``: position of the first new token if
    the cache holds none. ``circular``: the capacity of a circular cache. ``base``: position of the first new token if
    the book has none; by default new tokens follow the held ones."""
    book.spread(len(writes))
    for entry, rows in enumerate(writes * len(book.held) if len(writes) == 1 else writes):
        cells = book.held[entry]
        after = int(cells.max(initial=EMPTY)) + 1 if (cells >= 0).any() else start
        first = book.base if book.base is not None else after if base is None else base
        seen = book.window or circular
        oldest = first - seen + 1 if seen else 0
        for a, b, number in rows:
            old = cells[a:b]
            book.lost[entry] += int(np.count_nonzero((old >= max(oldest, 0)) & (old < first)))
            cells = put(cells, (a, b, NO_TOKEN if number == NO_TOKEN else first + number))
        book.held[entry] = cells
        book.wrote[entry] = union([*book.wrote[entry], *rows])
    if book.base is not None:
        # A loop may write more than once in a run.
        book.base += max(count(rows) for rows in writes)


def store_at(book: Book, starts: list[int], new: int, capacity: int, circular: bool) -> None:
    """Write ``new`` rows from a start row on, with one start per batch entry; a circular cache wraps to row 0."""
    book.spread(len(starts))
    if book.given and book.is_empty:
        firsts = (starts * len(book.held))[: len(book.held)]
        book.held = [put(NOTHING, *_rows_before(start, capacity, circular)) for start in firsts]
    writes: list[Writes] = []
    for start in starts:
        first = start % capacity if circular and capacity else start
        fitting = min(new, capacity - first)
        rest = ((0, new - fitting, fitting),) if new > fitting else ()
        writes.append(((first, first + fitting, 0), *rest))
    # Writing a linear cache from an earlier row on replaces the tokens from there.
    base = starts[0] if not circular and len(set(starts)) == 1 else None
    store(book, writes, starts[0], circular=capacity if circular else 0, base=base)


def _rows_before(start: int, capacity: int, circular: bool) -> tuple[Held, ...]:
    """What a caller's cache holds before it is written from ``start`` on: the earlier tokens that fit."""
    if not circular or start <= capacity:
        return ((0, min(start, capacity), 0),)
    first = start % capacity
    return (0, first, start - first), (first, capacity, start - capacity)


def store_rows(book: Book, rows: list[int]) -> None:
    first = min(rows, default=0)
    if book.given and book.is_empty:
        book.held = [put(NOTHING, (0, first, 0))] * len(book.held)
    writes = tuple((row, row + 1, number) for number, row in enumerate(rows))
    store(book, [writes], 0, base=first if rows else None)


def store_window(book: Book, starts: list[int], valid: list[int], capacity: int, window: int) -> None:
    """A window that is kept in order: when it overflows, rows move to the front, and the rows they leave are stale."""
    for entry in range(len(book.held)):
        before, after = starts[entry], valid[entry]
        had, left = resident(before, capacity, window), resident(after, capacity, window)
        cells = book.held[entry]
        if book.given and not (cells != EMPTY).any():
            cells = put(NOTHING, (0, had, before - had))
        if had + after - before == left:
            first, cells = had, put(cells, (had, left, before))
        else:
            # All resident rows are rewritten.
            first, gone = 0, np.minimum(cells[:capacity], NO_TOKEN)
            cells = put(gone, (0, left, after - left))
        book.held[entry] = cells
        book.wrote[entry] = ((first, left),) if left > first else ()


def renumber(book: Book, by: int, rows: int) -> None:
    """Move rows; those that leave the cache are dropped."""
    ahead = np.full(max(by, 0), EMPTY)
    book.held = [np.concatenate([ahead, cells[max(-by, 0) :]])[:rows] for cells in book.held]
    book.wrote = [union((max(a + by, 0), min(b + by, rows)) for a, b in wrote) for wrote in book.wrote]


def pick_rows(book: Book, rows: Sequence[int]) -> None:
    """Row i becomes the former row ``rows[i]``."""
    last = max(rows, default=0)
    book.held = [put(cells, (last + 1, last + 1, EMPTY))[list(rows)] for cells in book.held]


def pick_entries(book: Book, entries: Sequence[int]) -> None:
    """Batch entry i becomes the former entry ``entries[i]``."""
    if len(book.held) > 1:
        if max(entries, default=-1) >= len(book.held) or not entries:
            raise Unknown
        for name in ("held", "wrote", "lost"):
            kept = getattr(book, name)
            setattr(book, name, [kept[entry] for entry in entries])


def batch_axis(shape: Sequence[int], axis: int) -> int | None:
    """The batch axis: the first, or the one after the two halves of a combined cache; None if the rows come first."""
    if axis == 0:
        return None
    return 1 if len(shape) == 5 and axis == 3 else 0


def filled(array: np.ndarray, axis: int) -> list[tuple[Span, ...]]:
    """Rows that are not all zeros, by batch entry; one entry if all are alike."""
    batch = batch_axis(array.shape, axis)
    ends = [slice(1)] * array.ndim
    ends[axis] = ends[axis if batch is None else batch] = slice(None)
    if array.size and array[tuple(ends)].all():
        return [((0, array.shape[axis]),)]
    flags = (array != 0).any(axis=tuple(place for place in range(array.ndim) if place not in (batch, axis)))
    found = [spans_of(row) for row in np.atleast_2d(flags)]
    # An empty batch has no rows.
    return (found[:1] or [()]) if len(set(found)) <= 1 else found
