"""How many cells attention is given, and which of them each token may see.

Source: ``llama_kv_cache::get_n_kv`` and ``set_input_kq_mask`` of llama.cpp 0c1e57098.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvviz.ggml.kv_sequences import Streams
from kvviz.ggml.swa_mask import is_masked_swa
from kvviz.ggml.ubatch_split import UBatch

PADDING = 256
"""Cells that the length which attention is given is a multiple of, so that one graph serves many tokens."""


def padded(number: int, to: int) -> int:
    """The next multiple: ``GGML_PAD``."""
    return -(-number // to) * to


def n_kv(kv: Streams, streams: Sequence[int], n_pad: int = 1) -> int:
    """How many cells of each stream attention is given: all up to the last used one, padded.

    >>> kv = Streams(1024)
    >>> kv.cells[0].pos_set(300, 0)
    >>> n_kv(kv, [0])
    512
    """
    pad = max(n_pad, PADDING)
    return max(min(kv.size, max(pad, padded(kv.cells[stream].end, pad))) for stream in streams)


def kq_mask(
    kv: Streams, batch: UBatch, length: int, streams: int = 1, *, causal: bool = True, alibi: bool = False
) -> np.ndarray:
    """What is added to the scores: 0 where a token may see a cell, else minus infinity.

    Parameters
    ----------
    length : int
        `n_kv`.
    streams : int
        Of the micro-batch.
    causal, alibi : bool
        Hide later positions; add minus the distance in place of 0.

    Returns
    -------
    ndarray of float32
        ``(streams, tokens of each, length)``; ggml's ``ne`` is ``[length, tokens of each, 1, streams]``.
    """
    mask = np.full((len(batch.tokens), length), -np.inf, np.float32)
    for row, token in zip(mask, batch.tokens):
        # Of a token of several sequences the first one counts.
        seq = token.seqs[0]
        cells = kv.cells[kv.stream_of(seq)]
        for cell in cells.of(seq):
            pos = cells.pos[cell]
            hidden = (causal and pos > token.pos) or is_masked_swa(kv.n_swa, kv.swa_type, pos, token.pos)
            if cell < length and not hidden:
                row[cell] = -abs(pos - token.pos) if alibi else 0
    return mask.reshape(streams, -1, length)


def attend(queries: np.ndarray, keys: np.ndarray, values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Attention without flash attention: all cells that are given are multiplied, those that the mask hides too.

    A hidden cell has the weight 0, and 0 times NaN is NaN: this is why llama.cpp clears its buffers.

    >>> hidden = np.array([[0.0, -np.inf]])
    >>> attend(np.ones((1, 1)), np.ones((2, 1)), np.array([[5.0], [0.0]]), hidden)
    array([[5.]])
    >>> attend(np.ones((1, 1)), np.ones((2, 1)), np.array([[5.0], [np.nan]]), hidden)
    array([[nan]])
    """
    scores = queries @ keys.T + mask
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    found: np.ndarray = weights / weights.sum(axis=-1, keepdims=True) @ values
    return found
