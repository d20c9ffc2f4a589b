"""The history of a KV cache as a trace: each call a run, each op with the rows of cells and of K that it touches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from kvviz.ggml.cell_map import AHEAD, ASTRAY, CELL_STATES, DIRTY, FREE, LIVE, SHIFTED, CellMap
from kvviz.ggml.kv_history import Change, RowOp
from kvviz.trace.element_types import nbytes
from kvviz.trace.recording import Trace
from kvviz.trace.records import Cache, CacheRun, Held, Owned, Rows, Span
from kvviz.trace.writer import Writer

# A cell's own memory: position, shift, and 256 bits for its sequences.
_CELL = (10, "int32")
_ABOUT = "cells change at once, keys at updates and by the graph"


def to_trace(history: Sequence[Change], size: int, name: str, dtype: str, width: int) -> Trace:
    """A trace of changes.

    Parameters
    ----------
    history : sequence of Change
    size : int
        Cells of a stream.
    name, dtype, width
        Of K: its name, and type and number of the elements of a row.
    """
    rows = size * len(history[0].cells.heads)
    story = _Story(Writer(f"cells of {name}", "llama.cpp", _ABOUT), rows, name, dtype, width)
    for change in history:
        story.tell(change)
    trace = story.writer.finish([])
    storage = story.writer.storage_of(story.keys)
    row_bytes = nbytes((width,), dtype)
    wrote: dict[int, str] = {}
    runs = []
    for change in history:
        stored = {row for op in change.ops if op.kind in ("SET_ROWS", "COPY") for row in op.keys_written}
        wrote |= dict.fromkeys(stored, change.call)
        runs.append(_cache_run(change, size, storage, row_bytes, wrote))
    trace.caches.append(Cache(name, name, name, "static", 0, runs))
    return trace


class _Story:
    """A trace while it is written."""

    def __init__(self, writer: Writer, rows: int, name: str, dtype: str, width: int) -> None:
        self.writer = writer
        self.rows, self.name, self.dtype, self.width = rows, name, dtype, width
        self.keys = writer.value(
            name, (rows, width), dtype, writer.storage(nbytes((rows, width), dtype), origin="donated")
        )
        held = writer.storage(nbytes((rows, _CELL[0]), _CELL[1]), origin="donated")
        self.cells = writer.value("kv_cells", (rows, _CELL[0]), _CELL[1], held)
        self.masks: list[int] = []  # of the run
        self.latest = self.cells  # the cells by the name under which they were written last
        writer.bind(self.keys, "donated")
        writer.bind(self.cells, "donated")

    def tell(self, change: Change) -> None:
        """The ops of a change as a run."""
        self.writer.begin_run(change.call or "new")
        self.latest, self.masks = self.cells, []
        made: list[int] = []
        for op in change.ops:
            made.append(self._op(op, made))
        for value in made:
            storage = self.writer.storage_of(value)
            if storage not in (self.writer.storage_of(self.keys), self.writer.storage_of(self.cells)):
                self.writer.free(storage)

    def _op(self, op: RowOp, made: list[int]) -> int:
        """Write one op; gives what the next ones may take of it."""
        writer = self.writer
        if op.kind == "FIND_SLOT":
            places = writer.value("k_idxs", (op.tokens,), "int64")
            self._on_cells(op, [places])
            return places
        if op.kind == "KQ_MASK":
            mask = writer.value("kq_mask", (op.tokens, len(op.cells_read)), "float32")
            writer.op(op.kind, [self.latest], [mask], reads=[self.latest], rows={self.latest: op.cells_read})
            self.masks = [mask]
            return mask
        if op.kind == "MUL_MAT":
            # The reader's view is made of the buffer: no edge leads from the write to it.
            view = self._view(f"{self.name} (view)")
            writer.op("VIEW", [self.keys], [view], reads=[])
            scores = writer.value("kq", (op.tokens, len(op.keys_read)), "float32")
            writer.op(op.kind, [view, *self.masks], [scores], rows={view: op.keys_read})
            return scores
        if op.kind == "SET_ROWS":
            fresh = writer.value("Kcur", (op.tokens, self.width), "float32")
            writer.op("ROPE", [], [fresh])
            made.append(fresh)
            stored = self._view(f"{self.name} (view)")
            inputs = [fresh, *made[:1]]
            writer.op(
                op.kind, [*inputs, self.keys], [stored], reads=inputs, writes=[stored], rows={stored: op.keys_written}
            )
            return stored
        if op.kind in ("COPY", "ROPE") or op.keys_written:
            return self._on_keys(op)
        self._on_cells(op)
        return self.latest

    def _on_cells(self, op: RowOp, outputs: Sequence[int] = ()) -> None:
        before, after = self.latest, self.writer.value("kv_cells", (self.rows, _CELL[0]), *_CELL[1:], self._cells_at)
        writes = [after] if op.cells_written else []
        self.writer.op(
            op.kind,
            [before],
            [*outputs, after],
            reads=[before] if op.cells_read else [],
            writes=[*outputs, *writes],
            rows={before: op.cells_read, after: op.cells_written},
        )
        self.latest = after

    def _on_keys(self, op: RowOp) -> int:
        after = self._view(self.name)
        cells = self.writer.value("kv_cells", (self.rows, _CELL[0]), *_CELL[1:], self._cells_at)
        reads = [self.keys] * bool(op.keys_read) + [self.latest] * bool(op.cells_read)
        writes = [after] * bool(op.keys_written) + [cells] * bool(op.cells_written)
        touched = {self.keys: op.keys_read, self.latest: op.cells_read, after: op.keys_written, cells: op.cells_written}
        outputs = [after, *([cells] if op.cells_written else [])]
        copied = nbytes((len(op.keys_written), self.width), self.dtype) if op.kind == "COPY" else 0
        self.writer.op(
            op.kind, [self.keys, self.latest], outputs, reads=reads, writes=writes, rows=touched, copied=copied
        )
        self.latest = cells if op.cells_written else self.latest
        return after

    @property
    def _cells_at(self) -> int:
        return self.writer.storage_of(self.cells)

    def _view(self, name: str) -> int:
        return self.writer.value(name, (self.rows, self.width), self.dtype, self.writer.storage_of(self.keys))


def _cache_run(change: Change, size: int, storage: int, row_bytes: int, wrote: Mapping[int, str]) -> CacheRun:
    """The cells after a change as rows of a cache, a stream a batch entry; ``wrote``: what stored each row's key."""
    items = []
    for stream, states in enumerate(change.cells.states):
        first = stream * size
        inside = [
            None if rows is None else [row - first for row in rows if first <= row < first + size]
            for rows in (change.written, change.seen)
        ]
        held = _held(states, change.cells.pos[stream])
        read = None if inside[1] is None else _spans(inside[1])
        items.append(
            Rows(
                held,
                _spans(inside[0] or ()),
                read,
                0,
                _notes(change.cells, stream, first, wrote),
                _owners(change.cells, stream),
            )
        )
    live = change.cells.pos >= 0
    copied = sum(len(op.keys_written) for op in change.ops if op.kind == "COPY")
    written = sum(len(op.keys_written) for op in change.ops)
    return CacheRun(
        capacity=size,
        valid=int(live.sum(axis=1).max()),
        bytes_copied=copied * row_bytes,
        bytes_written=written * row_bytes,
        storage=storage,
        rows_written=len(change.written),
        rows_read=max((len(op.keys_read) for op in change.ops), default=0),
        stale=int((change.cells.states == DIRTY).sum(axis=1).max()),
        items=tuple(items),
    )


def _held(states: np.ndarray, positions: np.ndarray) -> tuple[Held, ...]:
    """What the rows hold: the token of their cell, or something that is no live token of it."""
    spans: list[Held] = []
    for row, (state, pos) in enumerate(zip(states.tolist(), positions.tolist())):
        if state == FREE:
            continue
        token = -1 if state in (DIRTY, AHEAD) else pos
        if spans and spans[-1][1] == row and (spans[-1][2] + row - spans[-1][0] if spans[-1][2] >= 0 else -1) == token:
            spans[-1] = (spans[-1][0], row + 1, spans[-1][2])
        else:
            spans.append((row, row + 1, token))
    return tuple(spans)


def _notes(cells: CellMap, stream: int, first: int, wrote: Mapping[int, str]) -> tuple[tuple[int, int, str], ...]:
    """Whose each cell is, and what its row has to do with it."""
    notes: list[tuple[int, int, str]] = []
    for cell, state in enumerate(cells.states[stream].tolist()):
        if state == FREE:
            continue
        off = int(cells.pos[stream, cell] - cells.turned[stream, cell])
        said = {
            DIRTY: "freed: the old bytes are still there",
            AHEAD: "ahead of data: the key comes with the next update",
            SHIFTED: f"shift pending: the key is not moved by {off} yet",
            ASTRAY: f"astray: the key is rotated {-off:+d} from the cell's position",
        }
        seqs = sorted(cells.seqs[stream][cell])
        parts = [f"sequence{'s' * (len(seqs) > 1)} {', '.join(map(str, seqs))}" if seqs else "of no sequence"]
        parts += [said[state]] if state in said else []
        parts += [f"key stored by {wrote[first + cell]}"] if first + cell in wrote else []
        text = " · ".join(parts)
        if notes and notes[-1][1:] == (cell, text):
            notes[-1] = (notes[-1][0], cell + 1, text)
        else:
            notes.append((cell, cell + 1, text))
    return tuple(notes)


def _owners(cells: CellMap, stream: int) -> tuple[Owned, ...]:
    """The sequences of all cells that are not empty, and how cell and row disagree."""
    found: list[Owned] = []
    for cell, state in enumerate(cells.states[stream].tolist()):
        if state == FREE:
            continue
        told = tuple(sorted(cells.seqs[stream][cell])), "" if state == LIVE else CELL_STATES[state][0]
        if found and found[-1][1:] == (cell, *told):
            found[-1] = (found[-1][0], cell + 1, *told)
        else:
            found.append((cell, cell + 1, *told))
    return tuple(found)


def _spans(rows: Iterable[int]) -> tuple[Span, ...]:
    found: list[Span] = []
    for row in sorted(rows):
        if found and found[-1][1] == row:
            found[-1] = (found[-1][0], row + 1)
        else:
            found.append((row, row + 1))
    return tuple(found)
