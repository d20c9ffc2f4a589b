"""Which tokens the rows of a cache hold after a run, which rows it wrote, and which its attention could read."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.caches.control_values import Known
from kvviz.caches.row_contents import Book, Unknown
from kvviz.caches.row_spans import NO_TOKEN, both, drop, minus, put, union
from kvviz.caches.row_writes import replay
from kvviz.caches.value_flow import Way
from kvviz.caches.visible_rows import sight_of, window_of
from kvviz.trace.records import Cache, Rows, Span

_END = 1 << 62


@dataclass(frozen=True, slots=True)
class Tokens:
    shape: tuple[int, ...]  # of the cache after the run
    axis: int  # its sequence axis
    returned: bool  # the run gave it back; else it is as it came in
    content: list[tuple[Span, ...]] | None  # of a cache from the caller: rows that are not all zeros, by batch entry
    base: int | None  # position of the run's first token; None where the tokens follow those in the cache
    padding: list[tuple[Span, ...]] | None  # positions that are padding, by batch entry


def occupancy(known: Known, cache: Cache, way: Way, tokens: Tokens, before: tuple[Rows, ...]) -> tuple[Rows, ...]:
    """The rows of a cache after a run, by batch entry; empty where that follows from more than the control inputs.
    ``before`` is the same after the run before; empty for the first."""
    axis = tokens.axis
    past = known.shape(0, cache.input)
    if past is not None and axis >= len(past):
        return ()
    windows = [window_of(reader) for reader in way.readers]
    book = Book(
        held=[item.held for item in before] or [()],
        given=tokens.content is not None,
        base=tokens.base,
        padding=tokens.padding,
        window=max(windows) if windows and all(windows) else 0,
    )
    try:
        if tokens.returned:
            replay(known, way, book, cache.output, axis, past[axis] if past else 0)
        else:
            book.held, book.wrote, book.lost = [((0, tokens.shape[axis], 0),)], [()], [0]
        if book.given and tokens.content is not None:
            _compare(book, tokens.content, tokens.shape[axis])
        read = _read(known, way, axis)
        book.spread(1 if read is None else len(read))
    except Unknown:
        return ()
    reads: list[tuple[Span, ...] | None] = [None] if read is None else [*read]
    reads = reads * (len(book.held) // len(reads))
    items = [Rows(*entry) for entry in zip(book.held, book.wrote, reads, book.lost)]
    return tuple(items[:1] if len(set(items)) == 1 else items)


def _compare(book: Book, content: list[tuple[Span, ...]], rows: int) -> None:
    """Compare what a cache from the caller should hold with its contents: rows of zeros were never written. Where all
    of it is zeros the lengths are believed: somebody tries the graph with no numbers of their own."""
    book.spread(len(content))
    for entry, (held, wrote) in enumerate(zip(book.held, book.wrote)):
        here = content[entry if len(content) > 1 else 0]
        untouched = minus([(0, rows)], wrote)
        if both(both(untouched, here), held):
            for start, stop in minus(untouched, here):
                held = drop(held, start, stop)
        for start, stop in minus(both(untouched, here), held):
            held = put(held, start, stop, NO_TOKEN)
        book.held[entry] = held


def _read(known: Known, way: Way, axis: int) -> list[tuple[Span, ...]] | None:
    """Rows that attention may see, by batch entry; None where a mask is not known, or nobody reads."""
    seen: list[tuple[Span, ...]] = []
    for reader in way.readers:
        if known.step(reader.frame, reader.node.index) is None:
            continue
        sight = sight_of(known, reader, axis)
        if sight is None:
            return None
        more = sight.rows()
        entries = max(len(seen), len(more))
        wide = [one * entries if len(one) == 1 else one for one in (seen or [()], more)]
        seen = [union([*a, *b]) for a, b in zip(*wide, strict=True)]
    # Rows that have left the cache in this very run have no number in it.
    return [both(spans, [(0, _END)]) for spans in seen] or None
