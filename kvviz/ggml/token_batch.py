"""Tokens that are to be decoded: numbered, and checked as ``llama_decode`` checks their positions.

Source: ``llama_batch_allocr::init`` of llama.cpp 0c1e57098.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvviz.errors import KvvizError
from kvviz.ggml.kv_sequences import Streams
from kvviz.ggml.ubatch_split import Token


def numbered(kv: Streams, tokens: int | Sequence[Any], seq: int, first: int) -> list[Token]:
    """So many tokens at the next positions of a sequence, or the given ones, with numbers from ``first`` on."""
    if isinstance(tokens, int):
        if tokens < 1:
            raise KvvizError(f"a batch cannot have {tokens} tokens; give at least one")
        start = last_pos(kv, seq) + 1
        tokens = [Token(start + i, (seq,)) for i in range(tokens)]
    made = []
    for place, (pos, seqs, *_) in enumerate(tokens):
        if pos < 0 or not seqs:
            raise KvvizError(f"token {place} has position {pos} and sequences {tuple(seqs)}; both are needed")
        made.append(Token(int(pos), tuple(seqs), first + place))
    return made


def checked(kv: Streams, batch: list[Token]) -> list[Token]:
    """A batch whose positions go on from those in the cache, without holes.

    Raises
    ------
    KvvizError
        If they do not, or there is no such sequence.
    """
    if not batch:
        raise KvvizError("the batch has no tokens; give at least one")
    wanted: dict[int, set[int]] = {}
    for token in batch:
        for seq in token.seqs:
            kv.stream_of(seq)
            wanted.setdefault(seq, set()).add(token.pos)
    for seq, positions in wanted.items():
        last = last_pos(kv, seq)
        if last >= 0 and min(positions) != last + 1:
            raise KvvizError(
                f"sequence {seq} is at position {last}, and its tokens begin at {min(positions)}: "
                f"they must begin at {last + 1}"
            )
        if max(positions) - min(positions) + 1 > len(positions):
            raise KvvizError(f"the tokens of sequence {seq} skip positions: {sorted(positions)}")
    return batch


def last_pos(kv: Streams, seq: int) -> int:
    """The last position of a sequence; -1 where it has none."""
    return kv.cells[kv.stream_of(seq)].pos_max(seq)
