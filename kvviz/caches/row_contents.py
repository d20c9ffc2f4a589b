"""The contents of a cache's rows during a run: storing new tokens, moving rows, losing old ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kvviz.caches.row_spans import NO_TOKEN, count, cut, put, runs_of, shift, spans_of, union
from kvviz.ops.transformer.contrib_attention import resident
from kvviz.trace.records import Held, Span

Writes = tuple[Held, ...]
"""Rows that one batch entry gets: (start, stop, number of its first row among the new tokens)."""


class Unknown(Exception):
    """The rows that an op wrote depend on more than the control inputs."""


@dataclass(slots=True)
class Book:
    """The contents of a cache's rows during a run, by batch entry."""

    held: list[tuple[Held, ...]]  # one entry if all batch entries are alike
    given: bool = False  # the cache came from the caller, and only the number of its rows is known yet
    # position of the run's first token; if None, the tokens follow the existing ones
    base: int | None = None
    padding: list[tuple[Span, ...]] | None = None  # positions that are padding, by batch entry
    window: int = 0  # the maximum number of tokens that a query sees, its own included; 0 for no limit
    wrote: list[tuple[Span, ...]] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)

    def spread(self, entries: int) -> None:
        """Give each of so many batch entries its own account.

        Raises `Unknown`: if there are accounts of another number of entries, because an op cut or joined the batch.
        """
        if entries > 1 and len(self.held) not in (1, entries):
            raise Unknown
        for name in ("held", "wrote", "lost"):
            kept = getattr(self, name)
            if len(kept) == 1 and entries > 1:
                setattr(self, name, kept * entries)


def store(book: Book, writes: list[Writes], start: int, *, circular: int = 0, base: int | None = None) -> None:
    """Put new tokens into their rows, by batch entry or alike for all.

    ``start``: position of the first new token if the cache holds none.
    ``circular``: the capacity of a circular cache.
    ``base``: position of the first new token if the book has none; by default new tokens follow those that are held.
    """
    book.spread(len(writes))
    for entry, rows in enumerate(writes * len(book.held) if len(writes) == 1 else writes):
        held = book.held[entry]
        after = max((p + b - a for a, b, p in held if p != NO_TOKEN), default=start)
        first = book.base if book.base is not None else after if base is None else base
        seen = book.window or circular
        oldest = first - seen + 1 if seen else 0
        for a, b, number in rows:
            for low, high, position in cut(held, a, b):
                if position != NO_TOKEN:
                    book.lost[entry] += max(min(position + high - low, first) - max(position, oldest), 0)
            held = put(held, a, b, NO_TOKEN if number == NO_TOKEN else first + number)
        book.held[entry] = held
        book.wrote[entry] = union([*book.wrote[entry], *rows])
    if book.base is not None:
        # A loop may write more than once in a run.
        book.base += max(count(rows) for rows in writes)


def store_at(book: Book, starts: list[int], new: int, capacity: int, circular: bool) -> None:
    """Write ``new`` rows from a start row on, with one start per batch entry; a circular cache wraps to row 0."""
    book.spread(len(starts))
    if book.given and not any(book.held):
        book.held = [_rows_before(start, capacity, circular) for start in (starts * len(book.held))[: len(book.held)]]
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
        return ((0, min(start, capacity), 0),) if start else ()
    first = start % capacity
    around = ((first, capacity, start - capacity),)
    return ((0, first, start - first), *around) if first else around


def store_rows(book: Book, rows: list[int]) -> None:
    """Write rows by number, in this order."""
    first = min(rows, default=0)
    if book.given and not any(book.held):
        book.held = [((0, first, 0),) if first else ()] * len(book.held)
    store(book, [runs_of(rows)], 0, base=first if rows else None)


def store_window(book: Book, starts: list[int], valid: list[int], capacity: int, window: int) -> None:
    """A window that is kept in order: when it overflows, rows move to the front, and the rows they leave are stale."""
    for entry in range(len(book.held)):
        before, after = starts[entry], valid[entry]
        had, left = resident(before, capacity, window), resident(after, capacity, window)
        held = book.held[entry]
        if book.given and not held and had:
            held = ((0, had, before - had),)
        if had + after - before == left:
            first, held = had, put(held, had, left, before)
        else:
            # All resident rows are rewritten.
            first, gone = 0, cut(held, left, capacity)
            held = ((0, left, after - left),) if left else ()
            for a, b, _ in gone:
                held = put(held, a, b, NO_TOKEN)
        book.held[entry] = held
        book.wrote[entry] = ((first, left),) if left > first else ()


def renumber(book: Book, by: int, rows: int) -> None:
    """Move rows; those that leave the cache are dropped."""
    if by or any(held and held[-1][1] > rows for held in book.held):
        book.held = [cut(shift(held, by), 0, rows) for held in book.held]
        book.wrote = [union((max(a + by, 0), min(b + by, rows)) for a, b in wrote) for wrote in book.wrote]


def pick_rows(book: Book, rows: Sequence[int]) -> None:
    """Row i becomes the former row ``rows[i]``."""
    picked = []
    for held in book.held:
        found: tuple[Held, ...] = ()
        for place, row in enumerate(rows):
            for _, _, position in cut(held, row, row + 1):
                found = put(found, place, place + 1, position)
        picked.append(found)
    book.held = picked


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
    flags = (array != 0).any(axis=tuple(place for place in range(array.ndim) if place not in (batch, axis)))
    found = [spans_of(row) for row in np.atleast_2d(flags)]
    # An empty batch has no rows.
    return (found[:1] or [()]) if len(set(found)) <= 1 else found
