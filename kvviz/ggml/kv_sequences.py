"""What callers do to sequences: remove, copy, keep, move and divide them. Cells change now, bytes only at an update.

Source: ``llama_kv_cache::seq_*`` of llama.cpp 0c1e57098.
"""

from __future__ import annotations

from typing import NamedTuple

from kvviz.errors import KvvizError
from kvviz.ggml.kv_cells import MOST_SEQUENCES, Cells
from kvviz.ggml.swa_mask import checked_window


class Streams:
    """The cells of all streams of a cache, where each search begins, and the copies that wait for an update.

    Parameters
    ----------
    size : int
        Cells of a stream.
    n_seq_max : int
        Sequences that there may be.
    unified : bool
        One stream for all of them; else one for each.
    """

    def __init__(
        self, size: int, n_seq_max: int = 1, unified: bool = True, n_swa: int = 0, swa_type: str = "none"
    ) -> None:
        if not 1 <= n_seq_max <= MOST_SEQUENCES:
            raise KvvizError(f"n_seq_max is {n_seq_max}; llama.cpp allows 1 to {MOST_SEQUENCES} sequences")
        checked_window(n_swa, swa_type)
        self.size = size
        self.n_seq_max = n_seq_max
        self.n_stream = 1 if unified else n_seq_max
        self.n_swa = n_swa
        self.swa_type = swa_type
        self.cells = [Cells(size) for _ in range(self.n_stream)]
        self.heads = [0] * self.n_stream
        self.waiting: list[tuple[int, int]] = []  # streams to copy, from and to

    def stream_of(self, seq: int) -> int:
        """The stream that a sequence lives in."""
        if not 0 <= seq < self.n_seq_max:
            raise KvvizError(f"there is no sequence {seq}: n_seq_max is {self.n_seq_max}")
        return 0 if self.n_stream == 1 else seq

    @property
    def has_shift(self) -> bool:
        """Some position was moved since the keys were rotated last."""
        return any(cells.has_shift for cells in self.cells)


class Changed(NamedTuple):
    """Cells that a call changed, each as (stream, cell), and those of them that are free now."""

    cells: tuple[tuple[int, int], ...] = ()
    freed: tuple[tuple[int, int], ...] = ()


def seq_rm(kv: Streams, seq: int, first: int = -1, stop: int = -1) -> Changed:
    """Let a sequence (-1: all of them) leave the cells at positions ``first`` up to ``stop``; the bytes stay.

    Where a cell before the head became free, the next search begins there.
    """
    streams = range(kv.n_stream) if seq == -1 else (kv.stream_of(seq),)
    changed, freed = [], []
    for stream in streams:
        cells = kv.cells[stream]
        for cell in cells.within(first, stop):
            if seq == -1:
                cells.rm(cell)
            elif seq not in cells.seqs[cell]:
                continue
            else:
                cells.seq_rm(cell, seq)
            changed.append((stream, cell))
            if cells.is_empty(cell):
                freed.append((stream, cell))
        _lower_head(kv, stream, freed)
    return Changed(tuple(changed), tuple(freed))


def seq_cp(kv: Streams, source: int, target: int, first: int = -1, stop: int = -1) -> Changed:
    """Give the cells of a sequence to another one too.

    In one stream they are shared. From stream to stream, which goes only for all of a sequence, the cells of the
    target are set now, and the bytes are copied at the next update.
    """
    here, there = kv.stream_of(source), kv.stream_of(target)
    if here == there:
        cells = kv.cells[here]
        shared = [] if source == target else [c for c in cells.within(first, stop) if source in cells.seqs[c]]
        for cell in shared:
            cells.seq_add(cell, target)
        return Changed(tuple((here, cell) for cell in shared))
    if (first > 0 and first + 1 < kv.size) or (stop > 0 and stop + 1 < kv.size):
        raise KvvizError(
            f"from stream {here} to stream {there} only a whole sequence is copied: leave out {first} and {stop}"
        )
    kv.waiting.append((here, there))
    old, new = kv.cells[here], kv.cells[there]
    freed = tuple((there, cell) for cell in sorted(new.used) if source not in old.seqs[cell])
    new.clear()
    for cell in old.of(source):
        new.pos_set(cell, old.pos[cell] - old.shift[cell], old.tokens[cell])
        new.seq_add(cell, target)
        if old.shift[cell]:
            new.pos_add(cell, old.shift[cell])
    kv.heads[there] = kv.heads[here]
    return Changed(tuple((there, cell) for cell in sorted(new.used)) + freed, freed)


def seq_keep(kv: Streams, seq: int) -> Changed:
    """Let all other sequences leave the stream of one."""
    stream = kv.stream_of(seq)
    cells = kv.cells[stream]
    changed = [cell for cell in sorted(cells.used) if cells.seqs[cell] != {seq}]
    freed = [(stream, cell) for cell in range(kv.size) if cells.seq_keep(cell, seq)]
    _lower_head(kv, stream, freed)
    return Changed(tuple((stream, cell) for cell in changed), tuple(freed))


def seq_add(kv: Streams, seq: int, first: int, stop: int, delta: int) -> Changed:
    """Move positions of a sequence, in cells that others share too; keys are rotated at the next update.

    A cell whose position falls below 0 is freed. The next search begins at the first of these, else at cell 0.
    """
    stream = kv.stream_of(seq)
    if delta == 0 or max(first, 0) == stop:
        return Changed()
    cells = kv.cells[stream]
    moved = [cell for cell in cells.within(first, stop) if seq in cells.seqs[cell]]
    freed = [cell for cell in moved if cells.pos_add(cell, delta)]
    kv.heads[stream] = freed[0] if freed else 0
    return Changed(tuple((stream, cell) for cell in moved), tuple((stream, cell) for cell in freed))


def seq_div(kv: Streams, seq: int, first: int, stop: int, by: int) -> Changed:
    """Divide positions of a sequence, as self-extension does."""
    stream = kv.stream_of(seq)
    if by < 1:
        raise KvvizError(f"positions can be divided by 1 or more, not by {by}")
    if by == 1 or max(first, 0) == stop:
        return Changed()
    cells = kv.cells[stream]
    moved = [cell for cell in cells.within(first, stop) if seq in cells.seqs[cell]]
    for cell in moved:
        cells.pos_div(cell, by)
    return Changed(tuple((stream, cell) for cell in moved))


def _lower_head(kv: Streams, stream: int, freed: list[tuple[int, int]]) -> None:
    first = next((cell for at, cell in freed if at == stream), kv.size)
    kv.heads[stream] = min(kv.heads[stream], first)
