"""The two ways in which GroupQueryAttention reads its cache: all rows by absolute position, or a sliding window.

A windowed cache of capacity ``C`` for a window of ``W`` rows keeps the most recent rows at 0 … L-1, in order. When it
overflows it drops ``G = C - W + 1`` rows at once, so how many it holds follows from the tokens seen so far alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.attention_core import cap, from_heads, scores, softmax_rows, weigh
from kvviz.ops.attention_mask import visible


@dataclass(frozen=True, slots=True)
class Rules:
    """What one call does to its scores: ``window`` keys at most, the query's own included (-1: all)."""

    scale: float
    softcap: float
    causal: bool
    window: int
    sink: np.ndarray | None
    bias: np.ndarray | None
    qk_output: int


def attend(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, starts: Sequence[int], valid: Sequence[int], rules: Rules
) -> tuple[np.ndarray, np.ndarray | None]:
    """Attention of queries at rows ``starts[b] …`` over the first ``valid[b]`` rows; half precisions in float32. With
    it the scores before (``qk_output`` 1, hidden keys 0) or after (2) the softmax, where asked for."""
    left = rules.window - 1 if rules.window > 0 else -1
    offsets = starts if len(set(starts)) > 1 else starts[:1]
    rows = valid if min(valid) < k.shape[2] else None
    seen = visible(
        q.shape[2], k.shape[2], offsets=offsets, causal=rules.causal, left=left, valid=rows, trim=not rules.qk_output
    )
    kind = q.dtype
    k, v = k[:, :, seen.start : seen.stop], v[:, :, seen.start : seen.stop]
    if kind.itemsize < 4:
        q, k, v = q.astype(np.float32), k.astype(np.float32), v.astype(np.float32)
    x = scores(q, k, rules.scale)
    if rules.softcap > 0:
        x = cap(x, rules.softcap)
    if rules.bias is not None:
        x += rules.bias[..., seen.start : seen.stop]
    hidden = None if seen.allowed is None else ~seen.allowed
    kept = None
    if rules.qk_output == 1:
        kept = x.astype(kind)
        if hidden is not None:
            np.copyto(kept, 0, where=hidden)
    if hidden is not None:
        np.copyto(x, -np.inf, where=hidden)
    sink = None if rules.sink is None else rules.sink.astype(x.dtype, copy=False)
    p = softmax_rows(x, guarded=hidden is not None, sink=sink)
    y = weigh(p, v).astype(kind, copy=False)
    return y, p.astype(kind, copy=False) if rules.qk_output == 2 else kept


def resident(tokens: int, capacity: int, window: int) -> int:
    """Rows that a windowed cache holds after so many tokens."""
    if tokens <= capacity:
        return tokens
    step = capacity - window + 1
    return tokens - step * -(-(tokens - capacity) // step)


def windowed_rows(args: Sequence, window: int) -> int:
    """Rows that a call writes into windowed caches of all batch entries: the new ones, or all after an eviction."""
    length, capacity, total = args[0].shape[1], args[3].shape[2], int(args[6].item())
    rows = 0
    for last in args[5].reshape(-1).tolist():
        first, stop = stored(0 if length == total else last + 1 - length, last + 1, capacity, window)
        rows += stop - first
    return rows


def stored(before: int, after: int, capacity: int, window: int) -> tuple[int, int]:
    """The rows of a windowed cache that a call writes after which so many tokens were seen, and before it so many."""
    held, left = resident(before, capacity, window), resident(after, capacity, window)
    return (held if held + after - before == left else 0), left


def windowed(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    past_key: np.ndarray | None,
    past_value: np.ndarray | None,
    starts: Sequence[int],
    valid: Sequence[int],
    rules: Rules,
    rooms: Sequence[np.ndarray | None],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, None]:
    """Attention over a cache that holds a window; rows beyond the resident ones keep what they held."""
    if past_key is None or past_value is None:
        raise OpError("sliding_window_cache needs past_key and past_value, which set the capacity")
    capacity, window = past_key.shape[2], rules.window
    if window < 1 or capacity < window:
        raise OpError(f"a cache of capacity {capacity} does not hold a window of {window} rows")
    if rules.qk_output:
        raise OpError("qk_output is not supported with sliding_window_cache")
    present_key = past_key.copy() if rooms[0] is None else rooms[0]
    present_value = past_value.copy() if rooms[1] is None else rooms[1]
    parts = []
    for b, (before, after) in enumerate(zip(starts, valid)):
        held, (first, left) = resident(before, capacity, window), stored(before, after, capacity, window)
        new = after - before
        one = slice(b, b + 1)
        # Rows about to be evicted are still read by the first queries, so both are put side by side.
        keys = np.concatenate((present_key[one, :, :held], k[one, :, :new]), axis=2)
        values = np.concatenate((present_value[one, :, :held], v[one, :, :new]), axis=2)
        bias = rules.bias
        if bias is not None:
            bias = (bias if bias.shape[0] == 1 else bias[one])[..., before - held : after]
        parts.append(attend(q[one], keys, values, [held], [held + new], replace(rules, bias=bias))[0])
        present_key[b, :, first:left] = keys[0, :, held + new - left + first :]
        present_value[b, :, first:left] = values[0, :, held + new - left + first :]
    return from_heads(np.concatenate(parts)), present_key, present_value, None
