"""llama.cpp's ``find_slot`` as a small model: which cells of a KV cache the next tokens get, and what others hold.

A cell is one row of K and V. It has a position and the sequences that hold it; the bytes themselves are not modelled,
only the position that the key in each row is rotated for. There is one stream for all sequences (``kv_unified``), and
no sliding window. Source: ``llama_kv_cache`` and ``llama_kv_cells`` of llama.cpp 0c1e57098.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

import numpy as np

from kvviz import public_trace
from kvviz.caches.row_contents import NO_TOKEN, NOTHING, held_in, put, tally
from kvviz.caches.stored_rows import stored_caches
from kvviz.errors import KvvizError
from kvviz.trace.recording import Trace
from kvviz.trace.records import CacheRun, Held, Owned, Rows
from kvviz.trace.schema.element_types import nbytes
from kvviz.trace.units import count
from kvviz.trace.writer import Writer

EMPTY = -1
"""The position of a cell without a token, and of a row that was never written."""

FREE, LIVE, SHIFTED, DIRTY = range(4)
CELL_STATES = (
    ("empty", "never written"),
    ("live", "the row holds the cell's token"),
    ("shift pending", "the position has moved, the key is not rotated yet"),
    ("freed, dirty", "no sequence holds it, the old bytes are still there"),
)
"""Names of the states by their numbers, and what they mean."""

_MOST_SEQUENCES = 256  # LLAMA_MAX_SEQ
_LISTED = 6  # runs of cells that a sentence lists


@dataclass(frozen=True, slots=True)
class CellMap:
    """All cells after one call.

    ``pos``: the position of each cell's token, -1 if empty.
    ``seqs``: the sequences that hold each cell; a cell of several is shared, not copied.
    ``turned``: the position that the key in each row is rotated for, -1 where none was written.
    ``states``: `FREE`, `LIVE`, `SHIFTED` or `DIRTY`.
    ``head``: where the next search begins.
    """

    pos: np.ndarray
    seqs: tuple[frozenset[int], ...]
    turned: np.ndarray
    states: np.ndarray
    head: int

    def text(self) -> str:
        """One character per cell, as llama.cpp prints them: the sequence, ``M`` for several, ``.`` where it is
        empty."""
        return "".join("." if not seqs else "M" if len(seqs) > 1 else str(min(seqs)) for seqs in self.seqs)


class Change(NamedTuple):
    """One call: how it is written, what it did in words, the cells afterwards, and the rows of K that it wrote."""

    call: str
    text: str
    cells: CellMap
    written: tuple[int, ...] = ()


class KVCache:
    """Cells and the head of the search, over time.

    Parameters
    ----------
    size : int
        Cells. llama.cpp takes multiples of 256; smaller caches are easier to look at.
    n_seq_max : int
        The maximum number of sequences.
    name : str
        The name of the tensor whose rows the cells are.

    Attributes
    ----------
    history : list of Change
        Every call since the cache was made, which is the first entry.

    Examples
    --------
    >>> cache = KVCache(8, n_seq_max=2)
    >>> cache.append(4, seq=0), cache.append(2, seq=1)
    ((0, 1, 2, 3), (4, 5))
    >>> cache.seq_rm(0, 1, 3)
    'frees cells 1, 2; their bytes stay; head 6 → 1'
    >>> cache.find_slot(3, contiguous=True) is None, cache.append(3, seq=1)
    (True, (1, 2, 6))
    >>> cache.seq_add(0, 3, -1, -2)
    'moves the position of cell 3 by -2; its key is rotated before the next tokens; head 7 → 0'
    """

    def __init__(self, size: int, n_seq_max: int = 1, name: str = "cache_k_l0") -> None:
        if size < 1:
            raise KvvizError(f"a cache needs at least one cell, not {size}")
        if not 1 <= n_seq_max <= _MOST_SEQUENCES:
            raise KvvizError(f"n_seq_max is {n_seq_max}; llama.cpp allows 1 to {_MOST_SEQUENCES} sequences")
        self.size, self.n_seq_max, self.name = size, n_seq_max, name
        self.pos = [EMPTY] * size
        self.seqs: list[frozenset[int]] = [frozenset()] * size
        self.turned = [EMPTY] * size
        self.head = 0
        self.history = [Change("", count(size, "empty cell"), self.cells)]

    @property
    def cells(self) -> CellMap:
        """The current cells."""
        pos, turned = np.array(self.pos, np.int32), np.array(self.turned, np.int32)
        empty = pos == EMPTY
        states = np.select([empty & (turned == EMPTY), empty, turned != pos], [FREE, DIRTY, SHIFTED], LIVE)
        return CellMap(pos, tuple(self.seqs), turned, states.astype(np.uint8), self.head)

    @property
    def trace(self) -> Trace:
        """The history as a trace: every call is a run, which writes cells and, for tokens, rows of K.

        The rows of ``trace.caches[0]`` are the cells, with their sequences.
        """
        return _to_trace(self)

    def __repr__(self) -> str:
        return f"<KVCache of {count(self.size, 'cell')}: {self.cells.text()[:80]}>"

    _repr_html_ = public_trace.cells_html

    def find_slot(self, tokens: int, *, contiguous: bool = False) -> tuple[int, ...] | None:
        """The cells that so many tokens would get, or None if there are not enough; nothing changes.

        The search starts at the head, wraps at the end, and takes empty cells. If many cells are free
        before the head it starts at cell 0.

        Parameters
        ----------
        contiguous : bool
            Only cells that lie side by side, as llama.cpp needed them before #14285 (July 2025).
        """
        used = self.size - self.pos.count(EMPTY)
        head = 0 if self.head > used + 2 * tokens else self.head
        turn = [*range(head, self.size), *range(head)]
        if not contiguous:
            found = [cell for cell in turn if self.pos[cell] == EMPTY][:tokens]
            return tuple(found) if len(found) == tokens else None
        for first in turn:
            cells = range(first, first + tokens)
            if cells.stop <= self.size and all(self.pos[cell] == EMPTY for cell in cells):
                return tuple(cells)
        return None

    def append(self, tokens: int, seq: int = 0) -> tuple[int, ...]:
        """Take cells for the next tokens of a sequence, and write their rows; returns the cells."""
        if tokens < 1:
            raise KvvizError(f"a batch cannot have {tokens} tokens; give at least one")
        first = self.pos_max(self._known(seq)) + 1
        return self.decode([(first + place, (seq,)) for place in range(tokens)])

    def decode(self, tokens: Sequence[tuple[int, Iterable[int]]]) -> tuple[int, ...]:
        """Take cells for the tokens of one micro-batch, and write their rows; returns the cells.

        Keys whose positions have moved are rotated first. ``tokens``: position and sequences of each.

        Raises
        ------
        KvvizError
            If there are not enough cells, which then do not change.
        """
        batch = [(pos, frozenset(map(self._known, seqs))) for pos, seqs in tokens]
        for pos, seqs in batch:
            if pos < 0 or not seqs:
                raise KvvizError(f"a token has position {pos} and {count(len(seqs), 'sequence')}; it needs both")
        slot = self.find_slot(len(batch))
        if slot is None:
            free = self.pos.count(EMPTY)
            raise KvvizError(
                f"no cells for {count(len(batch), 'token')}: {free} of {self.size} are empty; remove positions "
                "(seq_rm) or make the cache larger"
            )
        moved = [cell for cell, state in enumerate(self.cells.states) if state == SHIFTED]
        for cell in moved:
            self.turned[cell] = self.pos[cell]
        for cell, (pos, seqs) in zip(slot, batch):
            self.pos[cell], self.seqs[cell], self.turned[cell] = pos, seqs, pos
        self.head = slot[-1] + 1
        text = f"find_slot {count(len(batch), 'token')} → {range_text(slot)}; head {self.head}"
        text += f"; rotates the keys of {range_text(moved)} first" if moved else ""
        change = Change(f"decode {count(len(batch), 'token')}", text, self.cells, tuple(sorted({*slot, *moved})))
        self.history.append(change)
        return slot

    def pos_min(self, seq: int) -> int:
        """The first position of a sequence; -1 if it has none."""
        return min((pos for pos, seqs in zip(self.pos, self.seqs) if seq in seqs), default=EMPTY)

    def pos_max(self, seq: int) -> int:
        """The last position of a sequence; -1 if it has none."""
        return max((pos for pos, seqs in zip(self.pos, self.seqs) if seq in seqs), default=EMPTY)

    def seq_rm(self, seq: int, first: int = -1, stop: int = -1) -> str:
        """Remove a sequence (-1: all) from the cells at positions ``first`` up to ``stop`` (-1: to the end).

        The bytes stay. If a cell before the head became free, the next search begins there.
        """
        before, touched = self.head, self._within(seq, first, stop)
        for cell in touched:
            self._hold(cell, frozenset() if seq == -1 else self.seqs[cell] - {seq})
        return self._freed(f"seq_rm({seq}, {first}, {stop})", touched, before)

    def seq_cp(self, source: int, target: int, first: int = -1, stop: int = -1) -> str:
        """Share the cells of a sequence with another one; no byte is copied."""
        shared = self._within(self._known(source), first, stop) if self._known(target) != source else []
        for cell in shared:
            self.seqs[cell] |= {target}
        text = f"shares {range_text(shared)} of sequence {source} with sequence {target}" if shared else ""
        return self._note(f"seq_cp({source}, {target}, {first}, {stop})", [text], self.head)

    def seq_keep(self, seq: int) -> str:
        """Remove all other sequences from their cells."""
        before, kept = self.head, frozenset({self._known(seq)})
        touched = [cell for cell in self._within(-1) if self.seqs[cell] != kept]
        for cell in touched:
            self._hold(cell, self.seqs[cell] & kept)
        return self._freed(f"seq_keep({seq})", touched, before)

    def seq_add(self, seq: int, first: int, stop: int, delta: int) -> str:
        """Move positions of a sequence, also in shared cells; the keys are rotated before the next tokens.

        A cell whose position falls below 0 is freed. The next search begins at the first of these, else at cell 0.
        """
        call, before = f"seq_add({seq}, {first}, {stop}, {delta})", self.head
        touched = self._within(self._known(seq), first, stop)
        if not delta or max(first, 0) == stop:
            return self._note(call, [], before)
        for cell in touched:
            self.pos[cell] += delta
            self._hold(cell, self.seqs[cell] if self.pos[cell] >= 0 else frozenset())
        kept, gone = self._parted(touched)
        self.head = gone[0] if gone else 0
        below = f"frees {range_text(gone)}, now before position 0" if gone else ""
        return self._note(call, [_moved(kept, f"by {delta}"), below], before)

    def seq_div(self, seq: int, first: int, stop: int, by: int) -> str:
        """Divide positions of a sequence, as self-extension does; the head stays."""
        if by < 1:
            raise KvvizError(f"positions can be divided by 1 or more, not by {by}")
        touched = self._within(self._known(seq), first, stop) if by > 1 and max(first, 0) != stop else []
        for cell in touched:
            self.pos[cell] //= by
        return self._note(f"seq_div({seq}, {first}, {stop}, {by})", [_moved(touched, f"down to 1/{by}")], self.head)

    def _known(self, seq: int) -> int:
        if not 0 <= seq < self.n_seq_max:
            raise KvvizError(f"there is no sequence {seq}: n_seq_max is {self.n_seq_max}")
        return seq

    def _within(self, seq: int, first: int = -1, stop: int = -1) -> list[int]:
        """Cells of a sequence (-1: any) at positions from ``first`` up to ``stop``; values below 0 set no limit."""
        held = (cell for cell, seqs in enumerate(self.seqs) if (seqs if seq == -1 else self._known(seq) in seqs))
        return [cell for cell in held if first <= self.pos[cell] and (stop < 0 or self.pos[cell] < stop)]

    def _hold(self, cell: int, seqs: frozenset[int]) -> None:
        self.seqs[cell] = seqs
        if not seqs:
            self.pos[cell] = EMPTY

    def _parted(self, touched: Iterable[int]) -> tuple[list[int], list[int]]:
        """Cells that are still held, and those that are free now."""
        kept = [cell for cell in touched if self.seqs[cell]]
        return kept, [cell for cell in touched if not self.seqs[cell]]

    def _freed(self, call: str, touched: Sequence[int], before: int) -> str:
        kept, gone = self._parted(touched)
        self.head = min([self.head, *gone])
        stay = f"frees {range_text(gone)}; {'its' if len(gone) == 1 else 'their'} bytes stay" if gone else ""
        return self._note(call, [stay, f"leaves {range_text(kept)} to others" if kept else ""], before)

    def _note(self, call: str, parts: Iterable[str], before: int) -> str:
        head = f"head {before} → {self.head}" if before != self.head else ""
        text = "; ".join(filter(None, [*parts, head])) or "changes nothing"
        self.history.append(Change(call, text, self.cells))
        return self.history[-1].text


_CELL, _KEY = (10, "int32"), (8, "float16")
"""Elements and type of a cell (position, shift, 256 bits for sequences), and of the key in a row."""


def _to_trace(cache: KVCache) -> Trace:
    writer = Writer(f"cells of {cache.name}", "llama.cpp", "find_slot decides which rows are written")
    places = [writer.storage(cache.size * nbytes((width,), dtype), origin="donated") for width, dtype in (_CELL, _KEY)]

    def cells() -> int:
        return writer.value("kv_cells", (cache.size, _CELL[0]), _CELL[1], places[0])

    def keys(name: str) -> int:
        return writer.value(name, (cache.size, _KEY[0]), _KEY[1], places[1])

    before, k = cells(), keys(cache.name)
    writer.bind(before, "donated")
    writer.bind(k, "donated")
    for change in cache.history:
        writer.begin_run(change.call or "new")
        writer.use(k)
        after = cells()
        kind = change.call.replace("(", " ").split(" ")[0].upper() or "CLEAR"
        writer.op(kind, [before], [after], reads=[], writes=[after])
        before = after
        if change.written:
            stored = keys(f"{cache.name} (view)")
            writer.op("SET_ROWS", [after, k], [stored], reads=[], writes=[stored], rows={stored: change.written})
    trace = writer.finish([])
    trace.caches = stored_caches(trace)
    for one in trace.caches:
        one.runs = [_with_cells(run, change.cells) for run, change in zip(one.runs, cache.history)]
    return trace


def _with_cells(run: CacheRun, cells: CellMap) -> CacheRun:
    held: list[Held] = []
    owners: list[Owned] = []
    for cell, (state, pos, seqs) in enumerate(zip(cells.states.tolist(), cells.pos.tolist(), cells.seqs)):
        if state == FREE:
            continue
        held.append((cell, cell + 1, pos if state != DIRTY else NO_TOKEN))
        whose = tuple(sorted(seqs)), "" if state == LIVE else CELL_STATES[state][0]
        if owners and owners[-1][1:] == (cell, *whose):
            owners[-1] = (owners[-1][0], cell + 1, *whose)
        else:
            owners.append((cell, cell + 1, *whose))
    notes = tuple((start, stop, _note(of, state)) for start, stop, of, state in owners)
    rows = Rows(held_in(put(NOTHING, *held)), run.items[0].wrote, None, notes=notes, owners=tuple(owners))
    return replace(run, items=(rows,), **tally((rows,)))


def _note(seqs: tuple[int, ...], state: str) -> str:
    whose = f"sequence{'s' * (len(seqs) > 1)} {', '.join(map(str, seqs))}" if seqs else "of no sequence"
    return f"{whose} · {state}: {dict(CELL_STATES)[state]}" if state else whose


def _moved(cells: Sequence[int], how: str) -> str:
    if not cells:
        return ""
    whose, keys = ("position", "its key is") if len(cells) == 1 else ("positions", "their keys are")
    return f"moves the {whose} of {range_text(cells)} {how}; {keys} rotated before the next tokens"


def range_text(cells: Iterable[int]) -> str:
    """``cell 3``, ``cells 1, 2, 6``, ``cells 0 to 41``, ``cells 0 to 7, 9 and 30 more``."""
    every = sorted(cells)
    # Consecutive cells have the same distance from their places; a few are listed one by one.
    spans = groupby(enumerate(every), lambda pair: pair[1] - pair[0] if len(every) > 3 else pair[1])
    runs = [[cell for _, cell in span] for _, span in spans]
    parts = [", ".join(map(str, run)) if len(run) < 3 else f"{run[0]} to {run[-1]}" for run in runs[:_LISTED]]
    left = sum(map(len, runs[_LISTED:]))
    return f"cell{'s' * (len(every) != 1)} {', '.join(parts)}" + (f" and {left} more" if left else "")
