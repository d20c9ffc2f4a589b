"""The cells of llama.cpp's recurrent memory: one state a sequence, copied when a shared one is written.

A cell is a row of ``cache_r`` and ``cache_s`` and not a token. Source: ``llama-memory-recurrent.cpp`` of llama.cpp
0c1e57098, without its snapshots for rolling back (``n_rs_seq``).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kvviz.errors import KvvizError
from kvviz.ggml.kv_cells import LIMIT
from kvviz.ggml.ubatch_split import Token, UBatch, split_equal


@dataclass(slots=True)
class StateCell:
    """A cell.

    Attributes
    ----------
    pos : int
        Position of the last token that went into the state; -1: none did.
    source : int
        The row that holds the state of this cell; -1: it begins with zeros.
    tail : int
        Of the *sequence* with the number of this cell: the cell of its state; -1: none.
    seqs : set of int
        The sequences that share the state.
    """

    pos: int = -1
    source: int = -1
    tail: int = -1
    seqs: set[int] = field(default_factory=set)


class StateSlot(NamedTuple):
    """The rows of a micro-batch's states: ``head`` and the following ones, and from where each is copied first.

    ``copies``: the values of ``rs_s_copy``.
    ``zero``: the row that is set to 0 before, for sequences without a past; -1: none is (``rs_z``).
    """

    head: int
    copies: tuple[int, ...]
    zero: int


class RecurrentMemory:
    """States of sequences.

    Parameters
    ----------
    size : int
        Cells; llama.cpp has one for each sequence.
    n_ubatch : int
        Tokens that go through the graph at once.

    Attributes
    ----------
    cells : list of StateCell
    head : int
    history : list of str
        What happened.

    Examples
    --------
    Sequence 1 shares the state of sequence 0 until one of them goes on:

    >>> memory = RecurrentMemory(3)
    >>> memory.append(4, seq=0)
    [StateSlot(head=0, copies=(0,), zero=0)]
    >>> memory.seq_cp(0, 1)
    >>> memory.cells[0].seqs
    {0, 1}
    >>> memory.append(1, seq=1)
    [StateSlot(head=1, copies=(0,), zero=1)]
    >>> memory.history[-1]
    'state 1 of sequence 1 begins as a copy of row 0'
    """

    def __init__(self, size: int, n_ubatch: int = 512) -> None:
        if size < 1:
            raise KvvizError(f"a memory needs at least one state, not {size}")
        self.size, self.n_ubatch = size, n_ubatch
        self.cells = [StateCell() for _ in range(size)]
        self.head = self.used = 0
        self.history: list[str] = []

    def pos_min(self, seq: int) -> int:
        """Position of a sequence's state: states of earlier tokens are gone."""
        return self.pos_max(seq)

    def pos_max(self, seq: int) -> int:
        """Position of a sequence's state; -1 where it has none."""
        return max((cell.pos for cell in self.cells if seq in cell.seqs), default=-1)

    def append(self, tokens: int, seq: int = 0) -> list[StateSlot]:
        """Let the next tokens of a sequence go into its state."""
        first = self.pos_max(seq) + 1
        return self.decode([(first + i, (seq,)) for i in range(tokens)])

    def decode(self, tokens: Sequence[Any]) -> list[StateSlot]:
        """Let tokens go into the states of their sequences; one slot for each micro-batch."""
        batch = [Token(pos, tuple(seqs), place) for place, (pos, seqs, *_) in enumerate(tokens)]
        for token in batch:
            for seq in token.seqs:
                self._known(seq)
        return [self._place(piece) for piece in split_equal(batch, self.n_ubatch)]

    def seq_rm(self, seq: int, first: int = -1, stop: int = -1) -> bool:
        """Remove the state of a sequence (-1: all) at positions ``first`` up to ``stop``; False: a part cannot be."""
        first, stop = max(first, 0), LIMIT if stop < 0 else stop
        if seq >= 0:
            tail = self.cells[self._known(seq)].tail
            if tail >= 0:
                pos = self.cells[tail].pos
                if 0 < first <= pos < stop:
                    self.history.append(f"seq_rm({seq}, {first}): refused, the state of position {first - 1} is gone")
                    return False
                if first <= pos < stop:
                    self.cells[seq].tail = -1
        elif first != stop and (first, stop) != (0, LIMIT):
            return False
        freed = []
        for number, cell in enumerate(self.cells):
            if first <= cell.pos < stop and (seq < 0 or seq in cell.seqs):
                cell.seqs = set() if seq < 0 else cell.seqs - {seq}
                if not cell.seqs:
                    self._drop(cell)
                    freed.append(number)
        self.head = min(self.head, *freed) if freed else self.head
        self.history.append(f"seq_rm({seq}): frees {freed}" if freed else f"seq_rm({seq}): frees nothing")
        return True

    def seq_cp(self, source: int, target: int, first: int = -1, stop: int = -1) -> None:
        """Let a sequence share the state of another one; positions do not count."""
        here, there = self.cells[self._known(source)], self.cells[self._known(target)]
        if source == target:
            return
        self._leave(target)
        if here.tail >= 0:
            self.cells[here.tail].seqs.add(target)
            there.tail = here.tail
        self.history.append(f"seq_cp({source}, {target}): both share state {here.tail}")

    def seq_keep(self, seq: int) -> None:
        """Let all other sequences leave."""
        self._known(seq)
        freed = []
        for number, cell in enumerate(self.cells):
            if number != seq:
                cell.tail = -1
            if seq in cell.seqs:
                cell.seqs = {seq}
            else:
                self._drop(cell)
                cell.seqs = set()
                freed.append(number)
        self.head = min(self.head, *freed) if freed else self.head
        self.history.append(f"seq_keep({seq})")

    def seq_add(self, seq: int, first: int, stop: int, delta: int) -> None:
        """Move the position of a sequence's state; nothing has to be rotated."""
        first, stop = max(first, 0), LIMIT if stop < 0 else stop
        tail = self.cells[self._known(seq)].tail
        if tail >= 0 and first <= self.cells[tail].pos < stop:
            self.cells[tail].pos += delta
        self.history.append(f"seq_add({seq}, {delta})")

    def _known(self, seq: int) -> int:
        if not 0 <= seq < self.size:
            raise KvvizError(f"there is no sequence {seq}: the memory has {self.size} states")
        return seq

    def _drop(self, cell: StateCell) -> None:
        self.used -= cell.pos >= 0
        cell.pos = cell.source = -1

    def _leave(self, seq: int) -> None:
        """Let a sequence give up its state."""
        entry = self.cells[seq]
        if entry.tail >= 0:
            cell = self.cells[entry.tail]
            cell.seqs.discard(seq)
            entry.tail = -1
            if not cell.seqs:
                self._drop(cell)

    def _empty_from(self, start: int) -> int:
        """The first empty cell from one on, round the end."""
        turns = (start + i for i in range(self.size))
        return next((at % self.size for at in turns if not self.cells[at % self.size].seqs), start % self.size)

    def _place(self, batch: UBatch) -> StateSlot:
        """Give every sequence of a micro-batch a state of its own, side by side and in their order."""
        cells, seqs = self.cells, batch.seqs
        if self.head > self.used + 2 * len(seqs):
            self.head = 0
        free = self._empty_from(self.head)
        for at, seq in enumerate(seqs):
            entry = cells[seq]
            if entry.tail >= 0 and len(cells[entry.tail].seqs) == 1:
                continue
            fresh = cells[free]
            if fresh.seqs:
                raise KvvizError(f"no state is free for sequence {seq}")
            if entry.tail >= 0:
                shared = cells[entry.tail]
                fresh.pos, fresh.source = shared.pos, shared.source
                shared.seqs.discard(seq)
                fresh.seqs.add(seq)
            entry.tail = free
            if at + 1 < len(seqs):
                free = self._empty_from(free + 1)
        tails = [cells[seq].tail for seq in seqs]
        low, high = min(tails), max(tails)
        for at, seq in enumerate(seqs):
            self._swap(low + at, cells[seq].tail)
        each = len(batch.tokens) // len(seqs)
        for at, seq in enumerate(seqs):
            cell = cells[low + at]
            cell.pos, cell.seqs = batch.tokens[(at + 1) * each - 1].pos, {seq}
            cells[seq].tail = low + at
        return self._stage(low, high, seqs)

    def _swap(self, one: int, two: int) -> None:
        """Exchange two cells; where states lie in memory stays as it is."""
        if one == two:
            return
        first, second = self.cells[one], self.cells[two]
        first.pos, second.pos = second.pos, first.pos
        first.source, second.source = second.source, first.source
        first.seqs, second.seqs = second.seqs, first.seqs
        for cell in self.cells:
            cell.tail = {one: two, two: one}.get(cell.tail, cell.tail)

    def _stage(self, low: int, high: int, seqs: tuple[int, ...]) -> StateSlot:
        """From which rows the states come: a row that no cell refers to serves as the zeros of those without a past."""
        sources = [cell.source for cell in self.cells]
        zero = next((row for row in range(low, high + 1) if row not in sources), -1)
        copies = []
        for row in range(low, high + 1):
            cell = self.cells[row]
            begins = cell.source < 0
            copies.append(zero if begins else cell.source)
            if copies[-1] != row and row - low < len(seqs):
                how = "with zeros" if begins else f"as a copy of row {copies[-1]}"
                self.history.append(f"state {row} of sequence {seqs[row - low]} begins {how}")
            cell.source = row
        self.head = low
        self.used = sum(bool(cell.seqs) for cell in self.cells)
        return StateSlot(low, tuple(copies), zero)

    def snapshot(self) -> list[StateCell]:
        """The cells as they are now."""
        return deepcopy(self.cells)
