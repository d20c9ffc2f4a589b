"""What was done to a KV cache, call by call, with the cells after each and the rows that it touched."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kvviz.ggml.cell_map import CellMap
from kvviz.ggml.find_slot import Evicted, Slot
from kvviz.ggml.ubatch_split import UBatch


class RowOp(NamedTuple):
    """An op of a change: rows of the cells' own memory and rows of K that it touches, and how many tokens it is for."""

    kind: str
    cells_read: tuple[int, ...] = ()
    cells_written: tuple[int, ...] = ()
    keys_read: tuple[int, ...] = ()
    keys_written: tuple[int, ...] = ()
    tokens: int = 0


class Change(NamedTuple):
    """One call, and how it left the cells.

    ``call``: as one would write it, ``seq_rm(0, 1, 3)``.
    ``text``: what it did.
    ``cells``: all of them, afterwards.
    ``written``: rows of K that it wrote.
    ``seen``: rows that its tokens may see; None of a change without tokens.
    """

    call: str
    text: str
    cells: CellMap
    written: tuple[int, ...] = ()
    seen: tuple[int, ...] | None = None
    ops: tuple[RowOp, ...] = ()


class Decoded(NamedTuple):
    """A micro-batch that went through: its tokens, its cells, how many cells attention was given, and the mask."""

    ubatch: UBatch
    slot: Slot
    rows: tuple[int, ...]
    n_kv: int
    mask: np.ndarray
    evicted: tuple[Evicted, ...]


def decode_ops(decoded: Decoded, size: int) -> tuple[RowOp, ...]:
    """The ops of a micro-batch: search, write of the keys, mask, and the read of all cells up to ``n_kv``."""
    streams, rows = decoded.slot.streams, decoded.rows
    searched = tuple(stream * size + cell for stream in streams for cell in range(size))
    # The reader's view goes from the first to the last stream of the micro-batch.
    every = range(min(streams), max(streams) + 1)
    given = tuple(stream * size + cell for stream in every for cell in range(decoded.n_kv))
    return (
        RowOp("FIND_SLOT", searched, rows, tokens=len(rows)),
        RowOp("SET_ROWS", keys_written=rows, tokens=len(rows)),
        RowOp("KQ_MASK", given, tokens=len(rows)),
        RowOp("MUL_MAT", keys_read=given, tokens=len(rows)),
    )


def seen_rows(decoded: Decoded, size: int) -> tuple[int, ...]:
    """Rows that at least one token of a micro-batch may see."""
    open_to = np.isfinite(decoded.mask).any(axis=1)
    return tuple(
        stream * size + int(cell) for stream, row in zip(decoded.slot.streams, open_to) for cell in np.flatnonzero(row)
    )
