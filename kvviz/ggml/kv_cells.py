"""The cells of one stream of llama.cpp's KV cache: which token of which sequences each row of K and V stands for.

A cell is told by its position, by what was added to that position since K was rotated last, and by a set of sequences.
Nothing here touches a byte of K or V. Rules as in ``llama-kv-cells.h`` of llama.cpp 0c1e57098.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvviz.errors import KvvizError

EMPTY = -1
"""The position of a cell that stands for no token."""

LIMIT = 1 << 31
"""Behind every position: what a negative end of a range of positions means."""

MOST_SEQUENCES = 256
"""``LLAMA_MAX_SEQ``."""


class Cells:
    """The cells of a stream.

    Attributes
    ----------
    pos : list of int
        Position of each cell's token; -1: the cell is empty.
    shift : list of int
        What was added to each position since the keys were rotated last.
    seqs : list of frozenset of int
        The sequences that hold each cell. A cell that several hold is shared, and not copied.
    tokens : list of int
        Which token each cell stands for, by a number that the caller chose; -1: none.
    used : set of int
        Cells that are not empty.
    has_shift : bool
        Some position was moved since the keys were rotated last, also where that cell is empty by now.

    Examples
    --------
    >>> cells = Cells(4)
    >>> cells.pos_set(2, 7)
    >>> cells.seq_add(2, 0)
    >>> cells.used, cells.pos_max(0), cells.end
    ({2}, 7, 3)
    """

    __slots__ = ("has_shift", "pos", "seqs", "shift", "tokens", "used")

    def __init__(self, size: int) -> None:
        if size < 1:
            raise KvvizError(f"a cache needs at least one cell, not {size}")
        self.pos = [EMPTY] * size
        self.shift = [0] * size
        self.seqs: list[frozenset[int]] = [frozenset()] * size
        self.tokens = [-1] * size
        self.used: set[int] = set()
        self.has_shift = False

    def __len__(self) -> int:
        return len(self.pos)

    @property
    def end(self) -> int:
        """Behind the last used cell; 0 where none is used."""
        return max(self.used, default=-1) + 1

    def is_empty(self, cell: int) -> bool:
        return self.pos[cell] == EMPTY

    def within(self, first: int, stop: int) -> list[int]:
        """Cells with a position from ``first`` up to ``stop``; below 0: from the beginning, to the end."""
        first, stop = max(first, 0), LIMIT if stop < 0 else stop
        return [cell for cell in sorted(self.used) if first <= self.pos[cell] < stop]

    def of(self, seq: int) -> list[int]:
        """Cells that a sequence holds."""
        return [cell for cell in sorted(self.used) if seq in self.seqs[cell]]

    def pos_min(self, seq: int) -> int:
        """The first position of a sequence; -1 where it has none."""
        return min((self.pos[cell] for cell in self.of(seq)), default=EMPTY)

    def pos_max(self, seq: int) -> int:
        """The last position of a sequence; -1 where it has none."""
        return max((self.pos[cell] for cell in self.of(seq)), default=EMPTY)

    def clear(self) -> None:
        """Empty every cell."""
        self.__init__(len(self))  # type: ignore[misc]

    def rm(self, cell: int) -> None:
        """Empty a cell, whoever holds it."""
        self.pos[cell], self.shift[cell] = EMPTY, 0
        self.seqs[cell], self.tokens[cell] = frozenset(), -1
        self.used.discard(cell)

    def pos_set(self, cell: int, pos: int, token: int = -1) -> None:
        """Let an empty cell stand for a token."""
        if not self.is_empty(cell):
            raise KvvizError(f"cell {cell} is not empty: it holds position {self.pos[cell]}")
        self.pos[cell], self.tokens[cell] = pos, token
        self.used.add(cell)

    def seq_add(self, cell: int, seq: int) -> None:
        """Let a sequence hold a cell.

        Raises
        ------
        KvvizError
            If it does already: llama.cpp asserts that, and built for release counts the position twice.
        """
        if seq in self.seqs[cell]:
            raise KvvizError(
                f"sequence {seq} holds cell {cell} (position {self.pos[cell]}) already; remove it there first (seq_rm)"
            )
        self.seqs[cell] |= {seq}

    def seq_rm(self, cell: int, seq: int) -> bool:
        """Let a sequence leave a cell that it holds; true if nobody is left in it and it is empty now."""
        self.seqs[cell] -= {seq}
        if not self.seqs[cell]:
            self.rm(cell)
        return self.is_empty(cell)

    def seq_keep(self, cell: int, seq: int) -> bool:
        """Let all other sequences leave a cell; true if it became empty by that."""
        if seq in self.seqs[cell]:
            self.seqs[cell] = frozenset({seq})
            return False
        was_used = cell in self.used
        self.rm(cell)
        return was_used

    def pos_add(self, cell: int, delta: int) -> bool:
        """Move a cell's position; true if it fell below 0, so that the cell is empty now."""
        self.pos[cell] += delta
        self.shift[cell] += delta
        self.has_shift = True
        if self.pos[cell] >= 0:
            return False
        self.rm(cell)
        return True

    def pos_div(self, cell: int, by: int) -> None:
        """Divide a cell's position.

        The shift grows by what the position lost: llama.cpp adds ``old - new`` here and ``new - old`` in `pos_add`.
        """
        old = self.pos[cell]
        self.pos[cell] = old // by
        self.shift[cell] += old - self.pos[cell]
        self.has_shift = True

    def reset_shift(self) -> None:
        """The keys have been rotated."""
        self.has_shift = False
        self.shift = [0] * len(self)

    def copy(self, cells: Iterable[int]) -> list[tuple[int, int, frozenset[int], int]]:
        """Some cells as they are, for `restore`."""
        return [(cell, self.pos[cell], self.seqs[cell], self.tokens[cell]) for cell in cells]

    def restore(self, copied: Iterable[tuple[int, int, frozenset[int], int]]) -> None:
        """Give cells back what they held."""
        for cell, pos, seqs, token in copied:
            self.pos[cell], self.seqs[cell], self.tokens[cell] = pos, seqs, token
            (self.used.discard if pos == EMPTY else self.used.add)(cell)
