"""Beam search throws beams away and doubles others: their caches follow, by copying them or by a table of blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvviz.device.block_table import BlockTable
from kvviz.errors import KvvizError
from kvviz.lessons.serving.forward_pass import Rows


def reorder(rows: Rows, parents: Sequence[int]) -> tuple[Rows, int]:
    """The caches of the beams that go on: beam ``i`` is what ``parents[i]`` was.

    Returns the caches, and the bytes that were copied for it: all of them.
    """
    if not rows:
        raise KvvizError("there are no caches to reorder")
    _check(parents, len(next(iter(rows.values()))))
    made = {name: np.take(array, list(parents), axis=0) for name, array in rows.items()}
    return made, sum(array.nbytes for array in made.values())


def reorder_blocks(table: BlockTable, parents: Sequence[int], position: int) -> int:
    """The same in a table of blocks: blocks are shared, and copied only where several beams write their next row.

    ``position``: of that row.

    Returns how many blocks were copied: one for each beam too many that writes into a shared block, none where the row
    begins a new block.

    Raises `KvvizError`: if no block is free for one of them; the table is then as it was.
    """
    _check(parents, len(table.rows))
    before = [list(row) for row in table.rows], list(table.copies)
    try:
        return _reorder(table, parents, position)
    except KvvizError:
        table.rows[:], table.copies[:] = before
        raise


def _reorder(table: BlockTable, parents: Sequence[int], position: int) -> int:
    table.rows[:] = [list(table.rows[parent]) for parent in parents]
    copied = 0
    for beam, row in enumerate(table.rows):
        if position // table.block_size == len(row):
            if not table.free:
                raise KvvizError(f"beam {beam} needs a block for row {position}, but no block is free")
            row.append(table.free[0])
        copied += table.own(beam, position) is not None
    return copied


def _check(parents: Sequence[int], beams: int) -> None:
    wrong = [parent for parent in parents if not 0 <= parent < beams]
    if wrong or len(parents) != beams:
        raise KvvizError(f"parents {list(parents)} for {beams} beams: give one for each beam, from 0 to {beams - 1}")
