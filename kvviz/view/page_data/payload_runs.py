"""Which runs are sent with their steps, what is sent for every run, and the columns of frames and storages.

Invariant: the totals, words and caches of all runs are sent, whether or not their steps are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kvviz.caches.cache_facts import rows_given
from kvviz.caches.path_search import attention_ops
from kvviz.trace.recording import Trace
from kvviz.trace.records import meter_in_turn
from kvviz.trace.schema.declared import HOST
from kvviz.trace.schema.events import BINDINGS, ORIGINS
from kvviz.trace.units import run_label
from kvviz.view.page_data.packed_columns import Columns, Strings
from kvviz.view.page_data.payload_graphs import GraphTable
from kvviz.view.page_data.payload_steps import Values

# The default maximum of steps in a payload; 60,000 are about 1.5 MB, and a second of work for the page.
BUDGET = 60_000
# Of a longer recording, the first runs, the last one, and this many in between are sent.
_BETWEEN = 6


def few_runs(runs: Sequence[Any], budget: int | None = None) -> frozenset[int] | None:
    """The runs whose steps are sent if there are too many: the first two, the last one, and some in between; None: all
    fit. Those in between are multiples of a power of two, so that they stay the same while a recording grows.
    ``budget``: steps."""
    budget = BUDGET if budget is None else budget
    if sum(run.last - run.first for run in runs) <= budget or len(runs) < 2:
        return None
    stride = 1
    while len(runs) > stride * _BETWEEN:
        stride *= 2
    last = len(runs) - 1
    chosen = [0, last]
    left = budget - sum(runs[i].last - runs[i].first for i in chosen)
    for i in dict.fromkeys((1, *range(stride, last, stride))):
        if 0 < i < last and (left := left - (runs[i].last - runs[i].first)) >= 0:
            chosen.append(i)
    return frozenset(chosen)


def runs_header(trace: Trace, kept: Sequence[int]) -> list[dict[str, Any]]:
    """Totals of every run. ``kept``: numbers of the steps that are sent, ascending. ``first`` and ``last`` are places
    among them, equal for a run whose steps are not sent; ``from`` is the number of its first step, and ``steps`` how
    many were recorded."""
    return [
        {
            "first": bisect_left(kept, run.first),
            "last": bisect_left(kept, run.last),
            "from": run.first,
            "steps": run.last - run.first,
            "label": run_label(trace, run.index),
            "token": run.token,
            "text": run.text,
            "peak": run.peak_bytes,
            "copied": run.bytes_copied,
            "written": run.bytes_written,
            "allocated": run.bytes_allocated,
        }
        for run in trace.runs
    ]


def story_header(trace: Trace) -> list[dict[str, Any]]:
    tokens = [*trace.prompt, *trace.known("tokens")]
    words = list(trace.words or ())
    words += [str(token) for token in tokens[len(words) :]]
    makers = [run.index for run in trace.runs if run.token is not None]
    return [
        {
            "text": word,
            "run": makers[i - len(trace.prompt)] if 0 <= i - len(trace.prompt) < len(makers) else None,
            "prompt": i < len(trace.prompt),
        }
        for i, word in enumerate(words[: len(tokens)])
    ]


def caches_header(trace: Trace) -> list[dict[str, Any]]:
    """The cache meters that all panes show, by run; `kvviz.view.page_data.payload_cache_rows` has more."""
    meter_in_turn(trace.caches)
    places = [_layer_and_role(cache.name) for cache in trace.caches]
    return [
        {
            "name": cache.name,
            "layer": layer,
            "role": role,
            "input": cache.input,
            "output": cache.output,
            "protocol": cache.protocol,
            "axis": cache.axis,
            "capacity": [r.capacity for r in cache.runs],
            "valid": [r.valid for r in cache.runs],
            "given": rows_given(trace, cache),
            "copied": [r.bytes_copied for r in cache.runs],
            "written": [r.bytes_written for r in cache.runs],
            "storage": [r.storage for r in cache.runs],
            "attention": attention_ops(trace, cache),
        }
        for cache, (layer, role) in zip(trace.caches, places)
    ]


def _layer_and_role(name: str) -> tuple[int, str]:
    """Split ``0.key`` into layer 0 and ``key``; a name without a leading number has no layer (-1)."""
    layer, _, role = name.partition(".")
    return (int(layer), role) if layer.isdecimal() and role else (-1, name)


class FrameColumns:
    """Frames and the values that they start with, as columns; an encoded frame does not change. ``number``: places of
    the frames that are sent, by their ids in the trace."""

    def __init__(self, tables: Mapping[int, GraphTable], strings: Strings, values: Values) -> None:
        self.number: dict[int, int] = {}
        self._tables = tables
        self._strings = strings
        self._values = values
        self._frames: list[Any] = []
        self._rows: list[tuple] = []
        self._bound: list[tuple] = []
        self._bind_at = [0]

    def rewind(self, run: int) -> None:
        while self._frames and self._frames[-1].run >= run:
            del self.number[self._frames.pop().id], self._rows[-1], self._bind_at[-1]
        del self._bound[self._bind_at[-1] :]

    def add(self, frames: Sequence[Any]) -> None:
        for frame in frames:
            table = self._tables[id(frame.graph)]
            parent, node = -1, -1
            if frame.parent is not None:
                parent = self.number[frame.parent]
                node = self._tables[id(self._frames[parent].graph)].node_at[id(frame.node)]
            iteration = -1 if frame.iteration is None else frame.iteration
            label = self._strings(frame.path[-1] if frame.path else "main")
            self.number[frame.id] = len(self._rows)
            self._frames.append(frame)
            self._rows.append((table.index, parent, node, iteration, frame.run, label))
            for b in frame.bindings:
                info, nbytes, _ = self._values(b.shape, b.dtype)
                how = BINDINGS.index(b.how)
                self._bound.append((table.value(b.name), b.storage, b.generation, how, b.offset, nbytes, info))
            self._bind_at.append(len(self._bound))

    def storages(self) -> set[int]:
        return {bound[1] for bound in self._bound}

    def write(self, columns: Columns) -> None:
        columns.rows("frame", "graph i, parent i, node i, iteration i, run i, label i", self._rows)
        columns.ints("frame.bind", self._bind_at)
        columns.rows("bind", "value i, storage i, gen i, how i, offset d, bytes d, info i", self._bound)


def storage_columns(
    storages: Sequence[Any],
    kept: Sequence[int],
    used: Collection[int] | None,
    later: Collection[int],
    strings: Strings,
    columns: Columns,
) -> None:
    """Add the columns of all storages. A storage that is not in ``used``, which no sent step refers to, keeps only its
    number. A storage in ``later`` outlives the step that it was written to. Locations are added if any storage lies in
    an arena or outside of the host's memory; an unknown address is -1."""
    steps = len(kept)
    whole = used is None

    def moved(step: int) -> int:
        # Events of steps that were left out count for the next step that was kept.
        return step if whole else bisect_left(kept, step)

    unknown = (0, ORIGINS.index("run"), strings(""), steps, steps)
    columns.rows(
        "storage",
        "capacity d, origin i, name i, born i, freed i",
        [
            unknown
            if used is not None and s.id not in used
            else (
                s.capacity,
                ORIGINS.index(s.origin),
                strings(s.name),
                -1 if s.born < 0 else moved(s.born),
                -1 if s.freed is None else moved(s.freed + (s.id in later)),
            )
            for s in storages
        ],
    )
    if any(s.arena or s.space != HOST.space for s in storages):
        places = [(strings(s.space), strings(s.arena), -1 if s.address is None else s.address) for s in storages]
        columns.rows("storage", "space i, arena i, address d", places)
    if any(s.taken is not None for s in storages):
        columns.floats("storage.taken", [s.capacity if s.taken is None else s.taken for s in storages])
    grew = [(s.id, moved(step), more) for s in storages if used is None or s.id in used for step, more in s.grew]
    columns.rows("grow", "storage i, step i, bytes d", grew)
