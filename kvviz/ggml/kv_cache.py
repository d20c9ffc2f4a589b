"""llama.cpp's KV cache as a small exact model: the cells, the keys behind them, and what every call does to both.

Rules as in ``llama-kv-cache.cpp`` of llama.cpp 0c1e57098 (2026-10).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kvviz.errors import KvvizError
from kvviz.ggml import kv_sequences as sequences
from kvviz.ggml.cell_map import CELL_STATES, CellMap, cell_map
from kvviz.ggml.change_words import numbers, placed_text, range_text
from kvviz.ggml.find_slot import Slot, apply_ubatch, find_slot, prepare
from kvviz.ggml.key_rows import KeyRows
from kvviz.ggml.kq_mask import kq_mask, n_kv
from kvviz.ggml.kv_cache_trace import to_trace
from kvviz.ggml.kv_history import Change, Decoded, RowOp, decode_ops, seen_rows
from kvviz.ggml.token_batch import checked, numbered
from kvviz.ggml.ubatch_split import Token, UBatch, split_equal, split_simple, ubatch
from kvviz.late import late
from kvviz.trace.recording import Trace


class KVCache:
    """Cells, heads and keys over time.

    Parameters
    ----------
    size : int
        Cells of a stream. llama.cpp takes multiples of 256; smaller ones are easier to look at.
    n_seq_max : int
        Sequences that there may be.
    unified : bool
        One stream for all sequences (``kv_unified``); else one for each.
    n_swa : int
        Positions of the sliding window.
    swa_type : str
        ``"none"``, ``"standard"``, ``"chunked"`` or ``"symmetric"``; see `kvviz.ggml.swa_mask.is_masked_swa`.
    n_ubatch : int
        Tokens that go through the graph at once.
    n_pad : int
        What ``n_kv`` is a multiple of where that is more than 256.
    name : str
    **keys
        Of `kvviz.ggml.key_rows.KeyRows`: ``head_dim``, ``n_head``, ``dtype``, ``base``, ``neox``, ``fill``.

    Attributes
    ----------
    history : list of Change
        The empty cache, and then every call.

    Examples
    --------
    Two sequences share eight cells; one loses its middle, and the next tokens fill the holes:

    >>> cache = KVCache(8, n_seq_max=2)
    >>> _ = cache.append(4, seq=0), cache.append(2, seq=1)
    >>> cache.seq_rm(0, 1, 3)
    'frees cells 1, 2; their bytes stay; head 6 → 1'
    >>> cache.cells.text()
    '0..011..'
    >>> print(cache.find_slot(3, seq=1, contiguous=True))
    None
    >>> cache.append(3, seq=1)[0].slot.cells
    ((1, 2, 6),)
    >>> cache.history[-1].text
    'find_slot 3 tokens → cells 1, 2, 6; head 7'

    A position that moves is a matter of the cells; the key is rotated at the next update:

    >>> cache.seq_add(0, 3, -1, -2)
    'moves positions of cell 3 by -2; its key is not rotated yet; head 7 → 0'
    >>> cache.state(3)
    'shift pending'
    >>> cache.update()
    'rotates the keys of cell 3'
    >>> cache.state(3)
    'live'
    """

    def __init__(
        self,
        size: int,
        n_seq_max: int = 1,
        unified: bool = True,
        n_swa: int = 0,
        swa_type: str | None = None,
        *,
        n_ubatch: int = 512,
        n_pad: int = 1,
        name: str = "cache_k_l0",
        **keys: Any,
    ) -> None:
        if n_ubatch < 1:
            raise KvvizError(f"a micro-batch cannot have {n_ubatch} tokens; give n_ubatch=1 or more")
        kind = swa_type if swa_type is not None else "standard" if n_swa else "none"
        self.streams = sequences.Streams(size, n_seq_max, unified, n_swa, kind)
        self.keys = KeyRows(self.streams.n_stream, size, **keys)
        self.n_ubatch, self.n_pad, self.name = n_ubatch, n_pad, name
        self._tokens = 0
        whole = self._whole(range(self.n_stream))
        first = RowOp("CLEAR", cells_written=whole, keys_written=whole)
        self.history = [Change("", f"{size} empty cells, K is set to {keys.get('fill', 0)}", self.cells, ops=(first,))]

    @property
    def size(self) -> int:
        """Cells of a stream."""
        return self.streams.size

    @property
    def n_stream(self) -> int:
        return self.streams.n_stream

    @property
    def cells(self) -> CellMap:
        """The cells as they are now."""
        return cell_map(self.streams, self.keys)

    @property
    def trace(self) -> Trace:
        """What happened so far as a trace: every call is a run, its ops tell which rows they read and wrote.

        The cells of ``trace.caches`` are rows: valid, written, stale where freed bytes are left, outside where no token
        of a call sees them. A stream is a batch entry.
        """
        return to_trace(self.history, self.size, self.name, str(self.keys.data.dtype), self.keys.data.shape[1])

    def state(self, cell: int, stream: int = 0) -> str:
        """The state of a cell now, in words; see `kvviz.ggml.cell_map.CELL_STATES`."""
        return CELL_STATES[int(self.cells.states[stream, cell])][0]

    def __repr__(self) -> str:
        return f"<KVCache of {numbers(self.size, 'cell')}: {self.cells.text()[:80]}>"

    def _repr_html_(self) -> str:
        """The cells over all calls, for a notebook."""
        page: str = late("view.cell_table:html")(self)
        return page

    def pos_min(self, seq: int) -> int:
        """The first position of a sequence; -1 where it has none."""
        return self.streams.cells[self.streams.stream_of(seq)].pos_min(seq)

    def pos_max(self, seq: int) -> int:
        """The last position of a sequence; -1 where it has none."""
        return self.streams.cells[self.streams.stream_of(seq)].pos_max(seq)

    def find_slot(self, tokens: int | Sequence[Any], seq: int = 0, *, contiguous: bool = False) -> Slot | None:
        """Cells that the next tokens would get, or None; nothing changes.

        Parameters
        ----------
        tokens : int or sequence of Token
            So many tokens of ``seq``, or these.
        contiguous : bool
            Only cells that lie side by side, as caches before llama.cpp #14285 needed them.
        """
        return find_slot(self.streams, ubatch(self._next(tokens, seq)), contiguous)

    def append(self, tokens: int, seq: int = 0) -> list[Decoded]:
        """Decode so many tokens at the next positions of a sequence."""
        return self.decode(self._next(tokens, seq))

    def decode(self, tokens: Sequence[Any], keys: np.ndarray | None = None) -> list[Decoded]:
        """What ``llama_decode`` does to the cache: update, cut, find cells for all, then take and write them in turn.

        Parameters
        ----------
        tokens : sequence of Token
            Or of ``(position, sequences)``.
        keys : ndarray, optional
            A row for each token, rotated for its position; made up by default.

        Returns
        -------
        list of Decoded
            One for each micro-batch.

        Raises
        ------
        KvvizError
            If positions do not follow those that the cache holds, or there are not enough cells.
        """
        batch = self.batch(tokens)
        if keys is not None and len(keys) != len(batch):
            raise KvvizError(f"{len(keys)} rows of keys for {len(batch)} tokens; give one row for each token")
        self.begin()
        pieces = (split_simple if self.n_stream == 1 else split_equal)(batch, self.n_ubatch)
        slots = self.prepare(pieces)
        if slots is None:
            raise KvvizError(self.no_room(len(batch)))
        given = {} if keys is None else {token.id: key for token, key in zip(batch, keys)}
        return [
            self.place(slot, piece, np.stack([given[token.id] for token in piece.tokens]) if given else None)
            for piece, slot in zip(pieces, slots)
        ]

    def batch(self, tokens: Sequence[Any]) -> list[Token]:
        """Tokens with numbers, whose positions go on from those in the cache: what ``llama_decode`` lets through."""
        batch = checked(self.streams, self._next(tokens, 0))
        self._tokens += len(batch)
        return batch

    def begin(self) -> None:
        """Do what waits, if anything does."""
        if self.streams.waiting or self.streams.has_shift:
            self.update()

    def prepare(self, pieces: Sequence[UBatch]) -> list[Slot] | None:
        """Cells for micro-batches one after the other, or None; see `kvviz.ggml.find_slot.prepare`."""
        return prepare(self.streams, pieces)

    def no_room(self, tokens: int) -> str:
        """Why so many tokens get no cells."""
        free = sum(len(cells) - len(cells.used) for cells in self.streams.cells)
        return (
            f"no cells for {numbers(tokens, 'token')}: {free} of {self.n_stream * self.size} are empty; "
            "remove positions (seq_rm) or make the cache larger"
        )

    def place(self, slot: Slot, batch: UBatch, keys: np.ndarray | None = None) -> Decoded:
        """Take cells and write their rows, as one change of the history."""
        decoded = self.apply(slot, batch)
        self.write(decoded, keys)
        taken, written = self.history[-2:]
        self.history[-2:] = [written._replace(call=taken.call, text=taken.text, ops=decode_ops(decoded, self.size))]
        return decoded

    def apply(self, slot: Slot, batch: UBatch) -> Decoded:
        """Let the cells of a slot stand for a micro-batch. Their rows still hold what was there: `write` comes next."""
        if any(token.id < 0 for token in batch.tokens):
            batch = batch._replace(tokens=tuple(self._next(batch.tokens, 0)))
            self._tokens += len(batch.tokens)
        evicted = apply_ubatch(self.streams, slot, batch)
        length = n_kv(self.streams, slot.streams, self.n_pad)
        mask = kq_mask(self.streams, batch, length, len(slot.streams))
        rows = slot.rows(self.size)
        decoded = Decoded(batch, slot, rows, length, mask, tuple(evicted))
        seen = seen_rows(decoded, self.size)
        text = placed_text(slot, evicted)
        op = decode_ops(decoded, self.size)[0]
        self._note(f"decode {numbers(len(rows), 'token')}", text, (), seen, (op,))
        return decoded

    def write(self, decoded: Decoded, keys: np.ndarray | None = None) -> None:
        """Store the keys of a micro-batch in the rows of its cells, as its SET_ROWS does."""
        tokens = decoded.ubatch.tokens
        positions = [token.pos for token in tokens]
        if keys is None:
            plain = np.stack([self.keys.made_up(token.id) for token in tokens])
            keys = self.keys.rotated(plain, positions)
        self.keys.write(decoded.rows, keys, [token.id for token in tokens], positions)
        ops = decode_ops(decoded, self.size)[1:]
        text = f"SET_ROWS: K at {range_text(decoded.rows, 'row')}"
        self._note("set_rows", text, decoded.rows, seen_rows(decoded, self.size), ops)

    def seq_rm(self, seq: int, first: int = -1, stop: int = -1) -> str:
        """Let a sequence (-1: all) leave the cells at positions ``first`` up to ``stop`` (-1: to the end)."""
        before = list(self.streams.heads)
        changed = sequences.seq_rm(self.streams, seq, first, stop)
        left = [one for one in changed.cells if one not in changed.freed]
        parts = [self._freed(changed)] if changed.freed else []
        parts += [f"leaves {self._cells(left)} to others"] if left else []
        return self._told(f"seq_rm({seq}, {first}, {stop})", parts, before, changed)

    def seq_cp(self, source: int, target: int, first: int = -1, stop: int = -1) -> str:
        """Give the cells of a sequence to another one; from stream to stream the bytes follow at the next update."""
        before = list(self.streams.heads)
        changed = sequences.seq_cp(self.streams, source, target, first, stop)
        held = [one for one in changed.cells if one not in changed.freed]
        if self.streams.stream_of(source) == self.streams.stream_of(target):
            parts = [f"shares {self._cells(held)} of sequence {source} with sequence {target}"] if held else []
        else:
            parts = [f"sets {self._cells(held)}; the bytes are copied at the next update"]
        return self._told(f"seq_cp({source}, {target}, {first}, {stop})", parts, before, changed)

    def seq_keep(self, seq: int) -> str:
        """Let all other sequences leave the stream of one."""
        before = list(self.streams.heads)
        changed = sequences.seq_keep(self.streams, seq)
        parts = [self._freed(changed)] if changed.freed else []
        return self._told(f"seq_keep({seq})", parts, before, changed)

    def seq_add(self, seq: int, first: int, stop: int, delta: int) -> str:
        """Move positions of a sequence; the keys are rotated at the next update."""
        before = list(self.streams.heads)
        changed = sequences.seq_add(self.streams, seq, first, stop, delta)
        kept = [one for one in changed.cells if one not in changed.freed]
        keys = "its key is" if len(kept) == 1 else "their keys are"
        parts = [f"moves positions of {self._cells(kept)} by {delta}; {keys} not rotated yet"] if kept else []
        parts += [f"frees {self._cells(changed.freed)}, now before position 0"] if changed.freed else []
        return self._told(f"seq_add({seq}, {first}, {stop}, {delta})", parts, before, changed)

    def seq_div(self, seq: int, first: int, stop: int, by: int) -> str:
        """Divide positions of a sequence; the keys are rotated at the next update."""
        before = list(self.streams.heads)
        changed = sequences.seq_div(self.streams, seq, first, stop, by)
        parts = [f"divides positions of {self._cells(changed.cells)} by {by}"] if changed.cells else []
        return self._told(f"seq_div({seq}, {first}, {stop}, {by})", parts, before, changed)

    def clear(self, data: bool = True) -> str:
        """Empty all cells, and set all bytes to 0 unless ``data`` is false."""
        whole = self._whole(range(self.n_stream))
        for cells in self.streams.cells:
            cells.clear()
        self.streams.heads = [0] * self.n_stream
        if data:
            self.keys.data[:] = 0
            self.keys.tokens[:] = self.keys.positions[:] = -1
        op = RowOp("CLEAR", (), whole, (), whole if data else ())
        text = "empties all cells" + (" and sets K to 0" if data else "; the bytes stay")
        return self._note(f"clear({'' if data else 'data=False'})", text, op.keys_written, None, (op,))

    def update(self) -> str:
        """Do what waits: copy streams, then rotate keys; what ``llama_decode`` begins with."""
        kv, parts, ops = self.streams, [], []
        for source, target in kv.waiting:
            self.keys.copy_stream(source, target)
            ops.append(RowOp("COPY", (), (), self._whole([source]), self._whole([target])))
            parts.append(f"copies all rows of stream {source} to stream {target}")
        kv.waiting = []
        if kv.has_shift:
            deltas = self.k_shift()
            whole = self._whole(range(self.n_stream))
            self.keys.shift(deltas)
            for cells in kv.cells:
                cells.reset_shift()
            ops.append(RowOp("ROPE", whole, whole, whole, whole))
            moved = np.flatnonzero(deltas).tolist()
            parts.append(f"rotates the keys of {self._cells([divmod(row, self.size) for row in moved])}")
        written = sorted({row for op in ops for row in op.keys_written})
        return self._note("update()", "; ".join(parts) or "nothing waits", written, None, ops)

    def k_shift(self) -> np.ndarray:
        """By how many positions the next update rotates each row: the values of the K-shift graph's input."""
        return np.array([shift for cells in self.streams.cells for shift in cells.shift], np.int64)

    def _whole(self, streams: Iterable[int]) -> tuple[int, ...]:
        return tuple(stream * self.size + cell for stream in streams for cell in range(self.size))

    def _next(self, tokens: int | Sequence[Any], seq: int) -> list[Token]:
        return numbered(self.streams, tokens, seq, self._tokens)

    def _cells(self, cells: Sequence[tuple[int, int]]) -> str:
        streams = sorted({stream for stream, _ in cells})
        told = [(stream, range_text([cell for at, cell in cells if at == stream], "cell")) for stream in streams]
        if self.n_stream == 1:
            return told[0][1] if told else "no cell"
        return ", ".join(f"{text} of stream {stream}" for stream, text in told) or "no cell"

    def _freed(self, changed: sequences.Changed) -> str:
        whose = "its" if len(changed.freed) == 1 else "their"
        return f"frees {self._cells(changed.freed)}; {whose} bytes stay"

    def _told(self, call: str, parts: list[str], before: list[int], changed: sequences.Changed) -> str:
        for stream, (old, new) in enumerate(zip(before, self.streams.heads)):
            if old != new:
                parts.append(f"head {old} → {new}" + (f" in stream {stream}" if self.n_stream > 1 else ""))
        rows = tuple(stream * self.size + cell for stream, cell in changed.cells)
        op = RowOp(call.split("(")[0].upper(), rows, rows)
        return self._note(call, "; ".join(parts) or "changes nothing", (), None, (op,))

    def _note(
        self,
        call: str,
        text: str,
        written: Iterable[int],
        seen: tuple[int, ...] | None,
        ops: Iterable[RowOp],
    ) -> str:
        self.history.append(Change(call, text, self.cells, tuple(written), seen, tuple(ops)))
        return text
