"""The caches of a trace as the bytes that the cache view reads: the state of every row after every run, and meters.

Invariant: caches whose rows have the same history are sent once. Rows are sent as spans, so that 4,096 of them cost no
more than ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kvviz.caches.cache_facts import rows_given
from kvviz.caches.cache_warnings import cache_warnings
from kvviz.caches.stored_rows import row_steps
from kvviz.trace.recording import Trace
from kvviz.trace.units import run_label
from kvviz.view.charts.cell_plot import page_looks
from kvviz.view.charts.heat_cells import STATES, Cell, cells, entries_of, heads_of, notes, owners
from kvviz.view.page_data.packed_columns import Columns, pack
from kvviz.view.page_data.payload import FORMAT


class Meter(NamedTuple):
    """A number for every run of a cache. ``sums``: it adds up over runs. ``bad``: more than 0 is a loss."""

    name: str
    label: str
    about: str
    sums: bool = False
    bad: bool = False


METERS = (
    Meter("capacity", "capacity", "rows that there is room for"),
    Meter("valid", "valid", "rows that hold live tokens"),
    Meter("slack", "slack", "capacity less valid"),
    Meter("rows_written", "rows written", "by this run", sums=True),
    Meter("rows_read", "rows read", "rows that attention of this run may see"),
    Meter("stale", "stale", "rows that attention is given and that hold no live token", bad=True),
    Meter("lost", "lost", "rows overwritten although attention still needs them", sums=True, bad=True),
    Meter("bytes_copied", "copied", "bytes that kernels only moved", sums=True, bad=True),
    Meter("bytes_written", "written", "bytes that kernels stored", sums=True),
    Meter("bytes_moved_outside", "moved outside", "bytes that the caller moved to make room", sums=True, bad=True),
    Meter("reallocations", "reallocations", "how often it came into other storage", sums=True),
    Meter("generations", "generations", "storages with a version of it alive at once, at most"),
)
_CacheRun = tuple[tuple[Cell, ...], tuple[tuple[int, int, str], ...], tuple[Any, ...]]


def cache_payload(trace: Trace, level: int = 6) -> bytes:
    """The caches as compressed bytes, empty if there are none; see `kvviz.view.page_data.packed_columns.unpack`.

    ``level``: of zlib.

    Returns a header with ``caches`` (for each: ``heads``, ``unit`` (bytes of a row), ``streams``, one number for each
      batch entry, and ``given``: rows with tokens, and reserved rows, before the first run), ``runs`` (labels),
      ``states``, ``meters`` and ``warnings``. Columns ``cell.*`` hold the cells of all streams back to back; those of
      stream ``s`` after run ``r`` start at ``cell.at[s * (runs + 1) + r]``. Columns ``store.*`` have, in the same way
      by cache and run, which rows are stored after which step of the trace. ``meter.*`` has one value for each cache
      and run. If a producer has notes on rows, columns ``note.*`` hold them in the same way, and ``note.text`` are
      indices into ``notes``. If sequences share a cache, columns ``owner.*`` give the owners of rows, and ``owner.of``
      are indices into ``owners.table``: sequences, and a word on what is wrong.
    """
    if not trace.caches:
        return b""
    runs = len(trace.runs)
    streams: dict[tuple[_CacheRun, ...], int] = {}
    caches = []
    for cache in trace.caches:
        numbers = []
        for entry in range(entries_of(cache)):
            rows = tuple(
                (cells(cache, run, entry), notes(cache, run, entry), owners(cache, run, entry)) for run in range(runs)
            )
            numbers.append(streams.setdefault(rows, len(streams)))
        given = rows_given(trace, cache)
        caches.append({"heads": heads_of(trace, cache), "unit": _row_bytes(cache), "streams": numbers, "given": given})
    columns = Columns()
    held, noted, owned = ([[of_run[part] for of_run in stream] for stream in streams] for part in range(3))
    _add_spans(columns, "cell", "start stop state fresh token", held)
    note_texts: dict[str, int] = {}
    _add_spans(columns, "note", "start stop text", _numbered(noted, note_texts))
    whose: dict[tuple[Any, ...], int] = {}
    _add_spans(columns, "owner", "start stop of", _numbered(owned, whose))
    _add_spans(columns, "store", "step start stop", _stores(trace))
    for meter in METERS:
        values = [_meter(cache, run, meter.name) for cache in trace.caches for run in range(runs)]
        columns.floats(f"meter.{meter.name}", values)
    header = {
        "format": FORMAT,
        "states": STATES,
        "meters": [meter._asdict() for meter in METERS],
        "runs": [run_label(trace, run) for run in range(runs)],
        "caches": caches,
        "warnings": _warnings(trace),
        **({"notes": list(note_texts)} if note_texts else {}),
        **({"owners": {"table": list(whose), **page_looks()}} if whose else {}),
    }
    return pack(header, columns, level)


def _add_spans(columns: Columns, name: str, fields: str, streams: Sequence[Sequence[Sequence[tuple]]]) -> None:
    """Add spans of all streams back to back, and where those of each stream and run start; notes and owners only if
    there are some."""
    every: list[tuple] = []
    at = []
    for stream in streams:
        for spans in stream:
            at.append(len(every))
            every += spans
        at.append(len(every))
    if every or name in ("cell", "store"):
        columns.ints(f"{name}.at", at)
        columns.rows(name, ", ".join(f"{field} i" for field in fields.split()), every)


def _numbered(streams: Sequence[Sequence[Sequence[Any]]], table: dict[Any, int]) -> list[list[list[tuple]]]:
    """The same spans with numbers for the fields after the rows, which refer to entries added to ``table``."""
    return [
        [
            [
                (start, stop, table.setdefault(what[0] if len(what) == 1 else tuple(what), len(table)))
                for start, stop, *what in spans
            ]
            for spans in stream
        ]
        for stream in streams
    ]


def _stores(trace: Trace) -> list[list[list[tuple]]]:
    by_run = [row_steps(trace, run) for run in range(len(trace.runs))]
    return [
        [[(one.step, *rows) for one in of_run[cache] for rows in one.rows] for of_run in by_run]
        for cache in range(len(trace.caches))
    ]


def _meter(cache: Any, run: int, name: str) -> float:
    if run >= len(cache.runs):
        return 0.0
    after = cache.runs[run]
    if name == "lost":
        return float(max((item.lost for item in after.items), default=0))
    return float(getattr(after, name))


def _row_bytes(cache: Any) -> int:
    """Bytes of one row, from the first run whose new bytes are a whole number of rows."""
    for after in cache.runs:
        fresh = after.bytes_written - after.bytes_copied
        if after.rows_written and fresh > 0 and fresh % after.rows_written == 0:
            return int(fresh // after.rows_written)
    return 0


def _warnings(trace: Trace) -> list[dict[str, Any]]:
    at = {cache.input: i for i, cache in enumerate(trace.caches)}
    return [
        {"cache": at[w.cache], "run": w.run, "runs": w.runs, "kind": w.kind, "text": w.sentence}
        for w in cache_warnings(trace)
    ]
