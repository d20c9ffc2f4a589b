"""Batches of tokens, and how llama.cpp cuts them into micro-batches before it looks for cells.

Source: ``llama-batch.cpp`` of llama.cpp 0c1e57098.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvviz.errors import KvvizError


class Token(NamedTuple):
    """A token of a batch: its position, the sequences that it is of, and a number that tells it from others."""

    pos: int
    seqs: tuple[int, ...] = (0,)
    id: int = -1


class UBatch(NamedTuple):
    """Tokens that go through the graph at once.

    ``seqs``: their sequences in order of number; of several streams the tokens lie sequence by sequence, as many of
    each.
    """

    tokens: tuple[Token, ...]
    seqs: tuple[int, ...]


def ubatch(tokens: Sequence[Token]) -> UBatch:
    """Tokens as one micro-batch."""
    return UBatch(tuple(tokens), tuple(sorted({seq for token in tokens for seq in token.seqs})))


def split_simple(tokens: Sequence[Token], n_ubatch: int) -> list[UBatch]:
    """Pieces of at most ``n_ubatch`` tokens in their order, as a unified cache takes them."""
    return [ubatch(tokens[start : start + n_ubatch]) for start in range(0, len(tokens), n_ubatch)]


def split_equal(tokens: Sequence[Token], n_ubatch: int, sequential: bool = True) -> list[UBatch]:
    """Pieces with as many tokens of each of several sequences, as streams and recurrent states need them.

    ``sequential``: only sequences that follow each other in number, each token of one of them alone.

    >>> batch = [Token(p, (0,)) for p in range(3)] + [Token(0, (1,))]
    >>> [[token[:2] for token in piece.tokens] for piece in split_equal(batch, 512)]
    [[(0, (0,)), (0, (1,))], [(1, (0,)), (2, (0,))]]
    """
    if sequential and any(len(token.seqs) > 1 for token in tokens):
        raise KvvizError("a token of several sequences needs a unified cache; set unified=True")
    left = list(tokens)
    pieces = []
    while left:
        chosen: list[frozenset[int]] = []
        last = -1
        for token in left:
            seqs = frozenset(token.seqs)
            apart = not any(seqs & other for other in chosen)
            if apart and (not sequential or not chosen or token.seqs[0] == last + 1):
                chosen.append(seqs)
                last = token.seqs[0]
                if len(chosen) > n_ubatch:
                    break
        each = [[token for token in left if frozenset(token.seqs) == seqs] for seqs in chosen]
        length = min(max(n_ubatch // len(chosen), 1), *map(len, each))
        piece = [token for row in each for token in row[:length]]
        pieces.append(ubatch(piece))
        left = [token for token in left if token not in piece]
    return pieces
