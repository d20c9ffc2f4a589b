"""Frames and storages of a trace as columns of a payload."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kvviz.trace.schema.declared import HOST
from kvviz.trace.schema.events import BINDINGS, ORIGINS
from kvviz.view.page_data.packed_columns import Columns, Strings
from kvviz.view.page_data.payload_graphs import GraphTable
from kvviz.view.page_data.payload_steps import Values


class FrameColumns:
    """Frames and the values that they start with, as columns; an encoded frame does not change.

    ``number``: places of the frames that are sent, by their ids in the trace.
    """

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
        """Discard the frames of a run and of all later ones."""
        while self._frames and self._frames[-1].run >= run:
            del self.number[self._frames.pop().id], self._rows[-1], self._bind_at[-1]
        del self._bound[self._bind_at[-1] :]

    def add(self, frames: Sequence[Any]) -> None:
        """Add frames, the outer before the inner ones."""
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
        """The storages that the frames start with."""
        return {bound[1] for bound in self._bound}

    def write(self, columns: Columns) -> None:
        """Add the columns of all frames."""
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
    """Add the columns of all storages.

    A storage that is not in ``used``, which no sent step refers to, keeps only its number. A storage in ``later``
    outlives the step that it was written to. Locations are added if any storage lies in an arena or outside of the
    host's memory; an unknown address is -1.
    """
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
