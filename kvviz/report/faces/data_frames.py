"""Columns as a ``pandas.DataFrame`` or a ``pyarrow.Table``, and those of the steps and storages of a trace.

The columns of steps come from the log's own, without `Step` records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np

from kvviz.text import needed
from kvviz.trace.outcome import OUTCOMES, Kinds, endings
from kvviz.trace.schema.events import HOW
from kvviz.trace.trace_data import TraceData
from kvviz.trace.units import buffer

Column = Sequence[Any] | np.ndarray
_STORAGE = ("id", "name", "capacity", "space", "origin", "born", "freed", "arena", "address", "taken")

_KINDS = (
    ((int, np.integer), "Int64", "int64"),
    ((int, float, np.number), "Float64", "float64"),
    ((object,), "", "string"),
)


def data_frame(columns: Mapping[str, Column], numbers: Collection[str] = ()) -> Any:
    """Columns as a ``pandas.DataFrame``. An absent number is ``<NA>``, an absent text None; ``numbers``: keys of
    columns of numbers, even if all are absent. Raises `KvvizError`: if pandas is not installed."""
    pandas = needed("pandas", "")
    made = {}
    for key, column in columns.items():
        _, name, _ = _kind(column, key in numbers)
        absent = any(entry is None for entry in column)
        made[key] = pandas.Series(column, dtype=(name if absent else name.lower()) or None)
    return pandas.DataFrame(made)


def arrow_table(columns: Mapping[str, Column], numbers: Collection[str] = ()) -> Any:
    """Columns as a ``pyarrow.Table``, with null for absent entries. Raises `KvvizError`: if pyarrow is not
    installed."""
    arrow = needed("pyarrow", "")
    made = {}
    for key, column in columns.items():
        *_, name = _kind(column, key in numbers)
        texts = [None if entry is None else str(entry) for entry in column] if name == "string" else column
        made[key] = arrow.array(texts, getattr(arrow, name)())
    return arrow.table(made)


def _kind(column: Column, number: bool) -> tuple[tuple[type, ...], str, str]:
    entries = [column.dtype.type()] if isinstance(column, np.ndarray) else column
    there = [entry for entry in entries if entry is not None]
    kinds = _KINDS if there or number else _KINDS[-1:]
    return next(kind for kind in kinds if all(isinstance(entry, kind[0]) for entry in there))


def storage_columns(trace: TraceData) -> dict[str, Column]:
    """One row per storage, with the attributes of `kvviz.trace.records.StorageRecord`. ``freed`` is None at the end."""
    records = [attrgetter(*_STORAGE)(record) for record in trace.storages]
    return dict(zip(_STORAGE, zip(*records))) if records else dict.fromkeys(_STORAGE, ())


def step_columns(trace: TraceData) -> dict[str, Column]:
    """One row per step: the columns of `kvviz.report.faces.steps_table` without the sentences."""
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
