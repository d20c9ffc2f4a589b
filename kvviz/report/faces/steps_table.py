"""Tables: plain rows, fixed-width text, HTML, and data frames; those of the steps and storages of a trace.

The columns of steps in data frames come from the log's own. No `Step` is made for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np

from kvviz.explain.sentences import sentence
from kvviz.text import needed
from kvviz.trace.outcome import OUTCOMES, Kinds, endings
from kvviz.trace.recording import Trace
from kvviz.trace.records import Step
from kvviz.trace.schema.events import HOW
from kvviz.trace.trace_data import TraceData
from kvviz.trace.units import buffer, short, size

# Key, heading, whether it is a number, and the most characters that text and HTML show of it.
COLUMNS = (
    ("step", "step", True, 8),
    ("run", "run", True, 5),
    ("frame", "frame", False, 28),
    ("op", "op", False, 20),
    ("node", "node", False, 36),
    ("outcome", "outcome", False, 9),
    ("memory", "memory", False, 9),
    ("buffer", "buffer", False, 12),
    ("written", "written", True, 12),
    ("copied", "copied", True, 12),
    ("allocated", "allocated", True, 12),
    ("live", "live", True, 12),
    ("sentence", "what happened", False, 160),
)
# For a recording with times.
_TIMES = (("lane", "lane", False, 16), ("start", "start", True, 12), ("end", "end", True, 12))
# Counts. The numbers of steps and runs are labels.
_COUNTS = {"in_place", "missed", "steps"}
_SHOWN_ROWS = 60
_SIZES = {
    *("written", "copied", "allocated", "live", "peak", "above_weights", "moved_outside"),
    *("missed_bytes", "cannot_bytes", "bytes"),
}


@dataclass(frozen=True, slots=True, repr=False)
class Table:
    """Rows of a table with a display in notebooks and terminals.

    ``rows``: plain values by column key, one dict for each row.
    """

    rows: list[dict[str, Any]]
    columns: tuple[tuple[str, str, bool, int], ...] = COLUMNS
    title: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]

    def __repr__(self) -> str:
        return self.text()

    def text(self, limit: int = _SHOWN_ROWS) -> str:
        """The table in columns of fixed width; a long one is reduced to its first and last rows."""
        lines = [[heading for _, heading, _, _ in self.columns]]
        shown, left_out = _ends(self.rows, limit)
        lines += [[short(cell_text(key, row), most) for key, _, _, most in self.columns] for row in shown]
        widths = [max(map(len, column)) for column in zip(*lines)]
        texts = [
            "  ".join(
                cell.rjust(width) if number else cell.ljust(width)
                for cell, width, (_, _, number, _) in zip(line, widths, self.columns)
            ).rstrip()
            for line in lines
        ]
        if left_out:
            texts.insert(1 + limit // 2, f"… {left_out:,} rows …")
        return "\n".join(texts)

    def html(self, limit: int | None = None) -> str:
        """The table as HTML, without scripts, and with no style but alignment."""
        shown, left_out = _ends(self.rows, limit) if limit else (self.rows, 0)
        head = "".join(f'<th scope="col" style="{_HEAD[number]}">{escape(h)}</th>' for _, h, number, _ in self.columns)
        body = [
            "<tr>"
            + "".join(
                f'<td style="{_align(number, len(text))}">{escape(text)}</td>'
                for key, _, number, most in self.columns
                # if styles are stripped, a number still comes before its unit
                for text in (short(cell_text(key, row), most).replace(" ", "\u00a0" if number else " "),)
            )
            + "</tr>"
            for row in shown
        ]
        if left_out and limit:
            body.insert(limit // 2, f'<tr><td colspan="{len(self.columns)}">… {left_out:,} rows …</td></tr>')
        caption = f"<caption>{escape(short(self.title, 240))}</caption>" if self.title else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"

    def _repr_html_(self) -> str:
        return self.html(_SHOWN_ROWS)

    def to_pandas(self) -> Any:
        """The rows as a ``pandas.DataFrame``. Raises `KvvizError`: if pandas is not installed."""
        return data_frame(*self._columns())

    def to_arrow(self) -> Any:
        """The rows as a ``pyarrow.Table``. Raises `KvvizError`: if pyarrow is not installed."""
        return arrow_table(*self._columns())

    def _columns(self) -> tuple[dict[str, list[Any]], set[str]]:
        numbers = {key for key, _, number, _ in self.columns if number}
        return {key: [row.get(key) for row in self.rows] for key, *_ in self.columns}, numbers


def steps_table(trace: Trace, steps: Iterable[int] | None = None) -> Table:
    """Table of the steps of a trace. ``steps``: which ones, by index; all by default."""
    wanted = range(len(trace.steps)) if steps is None else steps
    columns = (*COLUMNS[:-1], *_TIMES, COLUMNS[-1]) if trace.log.declared.times else COLUMNS
    return Table([step_row(trace, trace.steps[i]) for i in wanted], columns, trace.title)


def step_row(trace: Trace, step: Step) -> dict[str, Any]:
    timing = trace.log.declared.times.get(step.index)
    return {
        "step": step.index,
        "run": step.run,
        "frame": " › ".join(step.frame) or "main",
        "op": step.op_type,
        "node": step.node,
        "outcome": step.outcome,
        "memory": memory_word([out.how for out in step.outs]),
        "buffer": ", ".join(dict.fromkeys(buffer(o.storage, o.generation) for o in step.outs)),
        "written": step.written,
        "copied": step.copied,
        "allocated": step.allocated,
        "live": step.live_bytes,
        **({} if timing is None else timing._asdict()),
        "sentence": sentence(step, trace),
    }


def cell_text(key: str, row: dict[str, Any]) -> str:
    """What a table shows of a row under a key: bytes as sizes, counts with separators."""
    value = row.get(key, "")
    if isinstance(value, int) and key in _SIZES:
        return size(value)
    if isinstance(value, int) and key in _COUNTS:
        return f"{value:,}"
    return "" if value is None else str(value)


def _ends(rows: Sequence[dict[str, Any]], limit: int) -> tuple[Sequence[dict[str, Any]], int]:
    if len(rows) <= limit:
        return rows, 0
    head = limit // 2
    return [*rows[:head], *rows[len(rows) - (limit - head) :]], len(rows) - limit


# Headings wrap: a table of bytes is as wide as its numbers.
_HEAD = {True: "text-align:right;vertical-align:bottom", False: "text-align:left;vertical-align:bottom"}


def _align(number: bool, length: int) -> str:
    # long text wraps, but not into a column of single words
    look = "text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums"
    return look if number else f"text-align:left;min-width:{min(length, 24) / 2:g}em"


# -- data frames ------------------------------------------------------------------------------------------------------


Column = Sequence[Any] | np.ndarray
_STORAGE = ("id", "name", "capacity", "space", "origin", "born", "freed", "arena", "address", "taken")

# Types of entries, and pandas' and Arrow's names for a column of them.
_TYPES_OF = (
    ((int, np.integer), "Int64", "int64"),
    ((int, float, np.number), "Float64", "float64"),
    ((object,), "", "string"),
)


def data_frame(columns: Mapping[str, Column], numbers: Collection[str] = ()) -> Any:
    """Columns as a ``pandas.DataFrame``. An absent number is ``<NA>``, an absent text None.

    ``numbers``: keys of columns that hold numbers, even where all are absent.

    Raises `KvvizError`: if pandas is not installed.
    """
    pandas = needed("pandas", "")
    made = {}
    for key, column in columns.items():
        _, name, _ = _type_of(column, key in numbers)
        absent = any(entry is None for entry in column)
        made[key] = pandas.Series(column, dtype=(name if absent else name.lower()) or None)
    return pandas.DataFrame(made)


def arrow_table(columns: Mapping[str, Column], numbers: Collection[str] = ()) -> Any:
    """Columns as a ``pyarrow.Table``, as `data_frame`. What is absent is null.

    Raises `KvvizError`: if pyarrow is not installed.
    """
    arrow = needed("pyarrow", "")
    made = {}
    for key, column in columns.items():
        *_, name = _type_of(column, key in numbers)
        texts = [None if entry is None else str(entry) for entry in column] if name == "string" else column
        made[key] = arrow.array(texts, getattr(arrow, name)())
    return arrow.table(made)


def _type_of(column: Column, number: bool) -> tuple[tuple[type, ...], str, str]:
    entries = [column.dtype.type()] if isinstance(column, np.ndarray) else column
    there = [entry for entry in entries if entry is not None]
    kinds = _TYPES_OF if there or number else _TYPES_OF[-1:]
    return next(kind for kind in kinds if all(isinstance(entry, kind[0]) for entry in there))


def storage_columns(trace: TraceData) -> dict[str, Column]:
    """One row a storage, with the attributes of `kvviz.trace.records.StorageRecord`. ``freed`` is None at the end."""
    records = [attrgetter(*_STORAGE)(record) for record in trace.storages]
    return dict(zip(_STORAGE, zip(*records))) if records else dict.fromkeys(_STORAGE, ())


def step_columns(trace: TraceData) -> dict[str, Column]:
    """One row a step: the columns of `steps_table` without the sentences."""
    numbers, outs = trace.log.tables()
    frames, nodes, _, allocated, copied, written, live, ends = numbers.T
    known_nodes = [entry.node for entry in trace.log.nodes.entries]
    paths = [" › ".join(frame.path) or "main" for frame in trace.frames]
    runs = np.array([frame.run for frame in trace.frames], np.int64)
    kinds = Kinds(trace.log)
    found = [endings(trace, row) for row in kinds.examples]
    ended = [next(end for end in OUTCOMES if end in each) for each in found]
    places = [tuple(part) for part in outs[:, :3].tolist()]
    parts = [[place for place in places[a:b] if place[0] >= 0] for a, b in pairwise((0, *ends.tolist()))]
    columns: dict[str, Column] = {
        "step": np.arange(len(numbers)),
        "run": runs[frames],
        "frame": [paths[frame] for frame in frames],
        "op": [known_nodes[node].op_type for node in nodes],
        "node": [known_nodes[node].name for node in nodes],
        "outcome": [ended[kind] for kind in kinds.kind],
        "memory": [memory_word([HOW[how] for *_, how in part]) for part in parts],
        "buffer": [", ".join(dict.fromkeys(buffer(storage, made) for storage, made, _ in part)) for part in parts],
        "written": written,
        "copied": copied,
        "allocated": allocated,
        "live": live,
    }
    if times := trace.log.declared.times:
        timed = [times.get(step) for step in range(len(numbers))]
        columns |= {key: [one and getattr(one, key) for one in timed] for key in ("lane", "start", "end")}
    return columns


def memory_word(hows: Sequence[str]) -> str:
    """One word for where the outputs are: ``in place``, ``append``, ``view``, ``new`` …"""
    return next((how for how in ("append", "in place") if how in hows), hows[0] if hows else "")
