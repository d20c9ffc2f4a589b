"""All cells of a cache as they are after one change: what each says, what its row holds, and what that makes of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvviz.ggml.key_rows import NEVER, KeyRows
from kvviz.ggml.kv_sequences import Streams

FREE, LIVE, SHIFTED, ASTRAY, DIRTY, AHEAD = range(6)
CELL_STATES = (
    ("empty", "never written"),
    ("live", "the row holds the cell's token"),
    ("shift pending", "the position has moved, the key is not rotated yet"),
    ("astray", "the key is rotated for another position than the cell's"),
    ("freed, dirty", "no sequence holds it, the old bytes are still there"),
    ("ahead of data", "the cell stands for a token that the row does not hold yet"),
)
"""Names of the states by their numbers, and what they mean."""


@dataclass(frozen=True, slots=True)
class CellMap:
    """Cells by stream and number.

    Attributes
    ----------
    pos, shift : ndarray of int32
        ``(streams, size)``; position -1: empty.
    seqs : tuple of tuple of frozenset of int
        Sequences, by stream and cell.
    turned : ndarray of int32
        The position that the key in each row is rotated for; -1 where none was written.
    states : ndarray of uint8
        `FREE`, `LIVE`, `SHIFTED`, `ASTRAY`, `DIRTY` or `AHEAD`.
    heads : tuple of int
        Where the next search begins.
    """

    pos: np.ndarray
    shift: np.ndarray
    seqs: tuple[tuple[frozenset[int], ...], ...]
    turned: np.ndarray
    states: np.ndarray
    heads: tuple[int, ...]

    def text(self, stream: int = 0) -> str:
        """One character a cell, as llama.cpp prints them: the sequence, ``M`` for several, ``.`` where it is empty."""
        shown = (("." if not seqs else "M" if len(seqs) > 1 else str(min(seqs))) for seqs in self.seqs[stream])
        return "".join(shown)


def cell_map(kv: Streams, rows: KeyRows) -> CellMap:
    """The cells as they are now."""
    pos = np.array([cells.pos for cells in kv.cells], np.int32)
    shift = np.array([cells.shift for cells in kv.cells], np.int32)
    tokens = np.array([cells.tokens for cells in kv.cells], np.int64)
    held, rotated = rows.tokens.reshape(pos.shape), rows.positions.reshape(pos.shape)
    empty = pos < 0
    states = np.select(
        [empty & (held == NEVER), empty, tokens != held, shift != 0, rotated != pos],
        [FREE, DIRTY, AHEAD, SHIFTED, ASTRAY],
        LIVE,
    ).astype(np.uint8)
    seqs = tuple(tuple(cells.seqs) for cells in kv.cells)
    return CellMap(pos, shift, seqs, rotated.astype(np.int32), states, tuple(kv.heads))
