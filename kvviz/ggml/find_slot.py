"""Where llama.cpp puts the next tokens: the search for cells, and what taking them does to those who held them.

Source: ``llama_kv_cache::find_slot``, ``apply_ubatch`` and ``prepare`` of llama.cpp 0c1e57098.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvviz.errors import KvvizError
from kvviz.ggml.kv_cells import Cells
from kvviz.ggml.kv_sequences import Streams, seq_rm
from kvviz.ggml.swa_mask import is_masked_swa
from kvviz.ggml.ubatch_split import UBatch


class Slot(NamedTuple):
    """Cells for a micro-batch: streams, and for each of them the cells of its tokens; they need not lie together."""

    streams: tuple[int, ...]
    cells: tuple[tuple[int, ...], ...]

    def rows(self, size: int) -> tuple[int, ...]:
        """Rows of K for streams of so many cells: the values of ``k_idxs``."""
        return tuple(stream * size + cell for stream, cells in zip(self.streams, self.cells) for cell in cells)

    def elements(self, size: int, width: int) -> tuple[int, ...]:
        """Elements of a transposed V with so many in a row: the values of ``v_idxs`` without flash attention.

        >>> Slot((0,), ((5, 2),)).elements(8, 3)
        (5, 13, 21, 2, 10, 18)
        """
        starts = (stream * size * width + cell for stream, cells in zip(self.streams, self.cells) for cell in cells)
        return tuple(start + size * column for start in starts for column in range(width))


class Evicted(NamedTuple):
    """What a micro-batch drove out of a stream: the cells that it took over, and the positions purged elsewhere."""

    cells: tuple[int, ...] = ()
    purged: tuple[tuple[int, int, int], ...] = ()  # sequence, first and last position


def find_slot(kv: Streams, batch: UBatch, contiguous: bool = False) -> Slot | None:
    """Cells for a micro-batch, or None where there are not enough.

    From the head on, cell by cell and round the end: a cell will do if it is empty, or if one sequence alone holds it
    and its window hides it from that sequence's next token. Where much is free in front of the head the search begins
    at cell 0.
    """
    per_stream = len(batch.tokens) // len(batch.seqs) if kv.n_stream > 1 else len(batch.tokens)
    seqs = batch.seqs if kv.n_stream > 1 else batch.seqs[:1]
    if per_stream * len(seqs) != len(batch.tokens):
        raise KvvizError(f"{len(batch.tokens)} tokens of {len(seqs)} sequences: streams need the same number of each")
    found = [_search(kv, kv.stream_of(seq), per_stream, contiguous) for seq in seqs]
    if not all(found):
        return None
    return Slot(tuple(kv.stream_of(seq) for seq in seqs), tuple(found))


def apply_ubatch(kv: Streams, slot: Slot, batch: UBatch) -> list[Evicted]:
    """Let cells stand for the tokens of a micro-batch, stream by stream; K and V are written later, by the graph.

    A sequence that lost cells loses all that is not after them, so that its positions stay without holes.
    """
    lost: dict[int, int] = {}  # the last position taken from each sequence
    taken: list[tuple[int, ...]] = []
    at = iter(batch.tokens)
    for stream, chosen in zip(slot.streams, slot.cells):
        cells = kv.cells[stream]
        taken.append(tuple(cell for cell in chosen if not cells.is_empty(cell)))
        for cell in chosen:
            if not cells.is_empty(cell):
                (seq,) = cells.seqs[cell]
                lost[seq] = max(lost.get(seq, -1), cells.pos[cell])
                cells.rm(cell)
            token = next(at)
            cells.pos_set(cell, token.pos, token.id)
            for seq in token.seqs:
                cells.seq_add(cell, seq)
    purged: dict[int, list[tuple[int, int, int]]] = {}
    for seq in sorted(lost):
        stream = kv.stream_of(seq)
        first = kv.cells[stream].pos_min(seq)
        if first <= lost[seq]:
            gone = seq_rm(kv, seq, first, lost[seq] + 1)
            if gone.cells:
                purged.setdefault(stream, []).append((seq, first, lost[seq]))
    for stream, chosen in zip(slot.streams, slot.cells):
        kv.heads[stream] = chosen[-1] + 1
    return [Evicted(cells, tuple(purged.get(stream, ()))) for stream, cells in zip(slot.streams, taken)]


def prepare(kv: Streams, batches: Sequence[UBatch]) -> list[Slot] | None:
    """Cells for all micro-batches of a batch, one after the other, or None; cells and heads are as before then.

    As in llama.cpp only the cells of the slots are given back: what was purged beside them stays purged. The window
    hides it anyway.
    """
    found: list[Slot] = []
    undo = []
    for batch in batches:
        slot = find_slot(kv, batch)
        if slot is None:
            break
        found.append(slot)
        undo.append(([kv.cells[s].copy(chosen) for s, chosen in zip(slot.streams, slot.cells)], list(kv.heads)))
        apply_ubatch(kv, slot, batch)
    for slot, (copies, heads) in zip(reversed(found), reversed(undo)):
        for stream, copied in zip(slot.streams, copies):
            kv.cells[stream].restore(copied)
            kv.heads[stream] = heads[stream]
    return found if len(found) == len(batches) else None


def reusable(kv: Streams, cells: Cells) -> list[bool]:
    """Which cells of a stream a search may take."""
    last = {seq: cells.pos_max(seq) for seq in frozenset().union(*cells.seqs)}
    return [
        cells.is_empty(cell)
        or (
            len(cells.seqs[cell]) == 1
            and is_masked_swa(kv.n_swa, kv.swa_type, cells.pos[cell], last[min(cells.seqs[cell])] + 1)
        )
        for cell in range(len(cells))
    ]


def _search(kv: Streams, stream: int, wanted: int, contiguous: bool) -> tuple[int, ...]:
    cells, size = kv.cells[stream], kv.size
    head = kv.heads[stream]
    if head > len(cells.used) + 2 * wanted:
        head = 0
    if wanted > size:
        return ()
    usable = reusable(kv, cells)
    found: list[int] = []
    tested, at_once = 0, wanted if contiguous else 1
    while len(found) < wanted:
        if head + at_once > size:
            tested += size - head
            head = 0
            continue
        for _ in range(at_once):
            cell, head, tested = head, head + 1, tested + 1
            if usable[cell]:
                found.append(cell)
            elif contiguous:
                break
        if len(found) == wanted:
            break
        if contiguous:
            found = []
        if tested >= size:
            return ()
    return tuple(found)
