"""Rows of a cache as spans: which tokens they hold, and how writing, shifting and evicting change that in a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kvviz.ops.transformer.contrib_attention import resident
from kvviz.trace.records import Held, Rows, Span

NO_TOKEN = -1
_END = 1 << 62


def put(held: Sequence[Held], start: int, stop: int, position: int) -> tuple[Held, ...]:
    if stop <= start:
        return tuple(held)
    return joined([*drop(held, start, stop), (start, stop, position)])


def drop(held: Sequence[Held], start: int, stop: int) -> tuple[Held, ...]:
    if stop <= start:
        return tuple(held)
    return (*cut(held, 0, start), *cut(held, stop, _END))


def cut(held: Sequence[Held], start: int, stop: int) -> tuple[Held, ...]:
    return tuple(
        (max(a, start), min(b, stop), _at(p, max(start - a, 0))) for a, b, p in held if max(a, start) < min(b, stop)
    )


def shift(held: Sequence[Held], by: int) -> tuple[Held, ...]:
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


Writes = tuple[Held, ...]
"""Rows that one batch entry gets: (start, stop, number of its first row among the new tokens)."""


class Unknown(Exception):
    """The rows that an op wrote depend on more than the control inputs."""


@dataclass(slots=True)
class Book:
    held: list[tuple[Held, ...]]  # one entry if all batch entries are alike
    given: bool = False  # the cache came from the caller, and only the number of its rows is known yet
    # position of the run's first token; if None, the tokens follow the existing ones
    base: int | None = None
    padding: list[tuple[Span, ...]] | None = None  # positions that are padding, by batch entry
    window: int = 0  # the maximum number of tokens that a query sees, its own included; 0 for no limit
    wrote: list[tuple[Span, ...]] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)

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
    ends = [slice(1)] * array.ndim
    ends[axis] = ends[axis if batch is None else batch] = slice(None)
    if array.size and array[tuple(ends)].all():
        return [((0, array.shape[axis]),)]
    flags = (array != 0).any(axis=tuple(place for place in range(array.ndim) if place not in (batch, axis)))
    found = [spans_of(row) for row in np.atleast_2d(flags)]
    # An empty batch has no rows.
    return (found[:1] or [()]) if len(set(found)) <= 1 else found
