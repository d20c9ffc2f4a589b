"""Which blocks of a paged cache hold which sequence, with blocks that sequences share and copy before they write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvviz.errors import KvvizError


class BlockTable:
    """The blocks of every sequence, in order.

    Parameters
    ----------
    rows : sequence of sequence of int
        Numbers of blocks, by sequence.
    blocks : int
        How many the cache has.
    block_size : int
        Rows of one.

    Attributes
    ----------
    copies : list of (int, int, int)
        Sequence, the shared block, and the one that it was copied to.
    """

    def __init__(self, rows: Sequence[Sequence[int]], blocks: int, block_size: int) -> None:
        if blocks < 1 or block_size < 1:
            raise KvvizError(f"a cache has one block at least, of one row at least; not {blocks} of {block_size}")
        self.rows = [list(map(int, row)) for row in rows]
        self.blocks = blocks
        self.block_size = block_size
        self.copies: list[tuple[int, int, int]] = []
        wrong = [block for row in self.rows for block in row if not 0 <= block < blocks]
        if wrong:
            raise KvvizError(f"block {wrong[0]} is in the table, but the cache has blocks 0 to {blocks - 1}")

    @property
    def shared(self) -> dict[int, tuple[int, ...]]:
        """Blocks that several sequences have, and which."""
        users: dict[int, list[int]] = {}
        for sequence, row in enumerate(self.rows):
            for block in dict.fromkeys(row):
                users.setdefault(block, []).append(sequence)
        return {block: tuple(found) for block, found in users.items() if len(found) > 1}

    @property
    def free(self) -> list[int]:
        """Blocks that no sequence has."""
        used = {block for row in self.rows for block in row}
        return [block for block in range(self.blocks) if block not in used]

    def fork(self, sequence: int) -> int:
        """Another sequence with the same past: it shares all blocks. Gives its number."""
        self.rows.append(list(self.rows[sequence]))
        return len(self.rows) - 1

    def block_of(self, sequence: int, position: int) -> int:
        """The block of a position.

        Raises
        ------
        KvvizError
            If the sequence has no block there.
        """
        row, place = self.rows[sequence], position // self.block_size
        if not 0 <= place < len(row):
            raise KvvizError(f"sequence {sequence} has no position {position}, only {len(row)} blocks")
        return row[place]

    def own(self, sequence: int, position: int) -> tuple[int, int] | None:
        """Give a sequence a block of its own where it is to write: (the shared one, its own); None if it has one.

        Raises
        ------
        KvvizError
            If no block is free.
        """
        block = self.block_of(sequence, position)
        if block not in self.shared:
            return None
        if not self.free:
            raise KvvizError(
                f"block {block} is shared and must be copied for sequence {sequence}, but no block is free"
            )
        own = self.free[0]
        self.rows[sequence][position // self.block_size] = own
        self.copies.append((sequence, block, own))
        return block, own

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        longest = max(map(len, self.rows), default=0)
        return np.array([[*row, *[-1] * (longest - len(row))] for row in self.rows], dtype=dtype or np.int32)
