"""What was done to a KV cache, call by call, with the cells after each and the rows that it touched."""

from __future__ import annotations

from typing import NamedTuple

from kvviz.ggml.cell_map import CellMap


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
