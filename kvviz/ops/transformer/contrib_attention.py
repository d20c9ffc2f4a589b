"""com.microsoft.GroupQueryAttention: packed or separate inputs, rotary embedding, and a cache that grows or is shared.

Which of the two cache forms a call uses follows from shapes alone, as in onnxruntime: a past shorter than
``total_sequence_length`` grows to it; a longer one is a buffer, and the present has its shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.numeric import same_batch, scalar
from kvviz.ops.registry import Grow, Parts, op, rows_along, spans_along
from kvviz.ops.transformer.attention import rotate, rows_at
from kvviz.ops.transformer.attention_core import (
    attend_wide,
    cache_cost,
    check_bias,
    check_pasts,
    from_heads,
    to_heads,
    visible,
)

_NO_BLOCK = 1 << 62


def _growth(args: Sequence[Any], attributes: dict) -> int:
    query, past = args[0], args[3]
    if attributes.get("sliding_window_cache") or query.ndim != 3 or past.ndim != 4:
        return 0
    total, last = _lengths(args[5], args[6], query.shape[0])
    held, length = past.shape[2], query.shape[1]
    if total <= held:
        return 0
    # Sequences of unequal length write into existing rows of the past, so a shared past cannot be extended: it counts
    # as rows that no block has room for.
    return total - held if min(first_rows(last, length, total)) >= held else _NO_BLOCK


def first_rows(lasts: Sequence[int], length: int, total: int) -> list[int]:
    """By batch entry the row of the first of ``length`` new tokens; ``lasts`` are the rows of the last ones."""
    return [0 if length == total else last + 1 - length for last in lasts]


def _lengths(seqlens_k: np.ndarray | None, total: np.ndarray | None, batch: int) -> tuple[int, list[int]]:
    if seqlens_k is None or total is None:
        raise OpError("seqlens_k and total_sequence_length must be given")
    return int(scalar(total, "total_sequence_length")), same_batch(seqlens_k, batch, "seqlens_k")


def _cost(args: Sequence[Any], outs: Any, in_place: bool, attributes: dict) -> tuple[int, int]:
    if len(outs) < 2:
        return outs[0].nbytes, 0
    batch, length = args[0].shape[:2]
    row = outs[1].shape[1] * outs[1].shape[3] * outs[1].itemsize
    if attributes.get("sliding_window_cache"):
        new = row * sum(stop - first for first, stop in _windows(args, attributes["local_window_size"]))
    else:
        new = row * batch * length
    return cache_cost(args, outs, ((3, 1), (4, 2)), (), new)


def _written(args: Sequence[Any], outs: Sequence[Any], attributes: dict) -> Parts:
    length, past, total = args[0].shape[1], args[3], args[6].item()
    window = attributes["local_window_size"] if attributes.get("sliding_window_cache") else 0
    if past is None or (total > past.shape[2] and not window):
        return ()
    presents = [i for i in (1, 2)[: len(outs) - 1] if outs[i] is not None]
    if window:
        spans = [(span,) for span in _windows(args, window)]
        return tuple([(i, spans_along(outs[i], 2, spans)) for i in presents])
    starts = first_rows(args[5].reshape(-1).tolist(), length, total)
    return tuple([(i, rows_along(outs[i], 2, starts, length)) for i in presents])


def _windows(args: Sequence[Any], window: int) -> list[tuple[int, int]]:
    lasts, capacity = args[5].reshape(-1).tolist(), args[3].shape[2]
    starts = first_rows(lasts, args[0].shape[1], args[6].item())
    return [stored(start, last + 1, capacity, window) for start, last in zip(starts, lasts)]


_GROWS = tuple(Grow(past, present, lambda args, attributes: 2, _growth) for past, present in ((3, 1), (4, 2)))


@op("GroupQueryAttention", domain="com.microsoft", grows=_GROWS, cost=_cost, written=_written)
def group_query_attention(
    query,
    key=None,
    value=None,
    past_key=None,
    past_value=None,
    seqlens_k=None,
    total_sequence_length=None,
    cos_cache=None,
    sin_cache=None,
    position_ids=None,
    attention_bias=None,
    head_sink=None,
    k_scale=None,
    v_scale=None,
    q_norm_weight=None,
    k_norm_weight=None,
    *,
    num_heads,
    kv_num_heads,
    scale=0.0,
    softcap=0.0,
    do_rotary=0,
    rotary_interleaved=0,
    local_window_size=-1,
    sliding_window_cache=0,
    smooth_softmax=-1,
    causal=1,
    qk_output=0,
    qk_norm_epsilon=1e-6,
    k_quant_type="NONE",
    v_quant_type="NONE",
    kv_cache_bit_width=0,
    n_outputs=3,
    grown=None,
):
    """Grouped query attention with its cache (onnxruntime 1.31).

    ``query`` holds queries, keys and values side by side when ``key`` is absent. The pasts are ``(batch, key heads,
    rows, size)``: the past itself, or a buffer with room. ``seqlens_k``: rows that hold tokens after this call, less 1;
    new rows go to the last ``length`` of them, or in the first prompt (``length == total_sequence_length``) to rows 0
    on, the padding on the right included. ``total_sequence_length`` is the largest of those row counts: as many as fit
    in the past, or the past and the new rows. ``grown`` are presents whose first rows are the pasts already.
    """
    if k_quant_type != "NONE" or v_quant_type != "NONE" or k_scale is not None or v_scale is not None:
        raise OpError(
            f"a quantized cache (k_quant_type {k_quant_type!r}, v_quant_type {v_quant_type!r}) is not supported"
        )
    q, k, v = _split(query, key, value, num_heads, kv_num_heads)
    batch, _, length, size = q.shape
    total, lasts = _lengths(seqlens_k, total_sequence_length, batch)
    valid = [last + 1 for last in lasts]
    starts = first_rows(lasts, length, total)
    if min(starts) < 0 or max(valid) > total:
        raise OpError(f"seqlens_k {[n - 1 for n in valid]} do not fit {length} new of {total} rows in all")
    check_pasts(past_key, past_value, k, v)
    held = 0 if past_key is None else past_key.shape[2]
    if total > held and total != held + length and not sliding_window_cache:
        raise OpError(f"a past of {held} rows and {length} new ones do not make {total} rows")
    check_bias(attention_bias, batch, num_heads, length, total)
    if (q_norm_weight is None) != (k_norm_weight is None):
        raise OpError("q_norm_weight and k_norm_weight must be given together")
    if q_norm_weight is not None:
        q, k = _rms(q, q_norm_weight, qk_norm_epsilon), _rms(k, k_norm_weight, qk_norm_epsilon)
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise OpError("do_rotary needs cos_cache and sin_cache")
        if cos_cache.shape != sin_cache.shape or 2 * cos_cache.shape[-1] > size:
            raise OpError(f"tables of shape {cos_cache.shape} and {sin_cache.shape} do not rotate heads of size {size}")
        places = _positions(position_ids, starts, valid, length, total)
        cos, sin = rows_at(cos_cache, places, "cos_cache")[:, None], rows_at(sin_cache, places, "sin_cache")[:, None]
        q = rotate(q, cos, sin, interleaved=rotary_interleaved)
        k = rotate(k, cos, sin, interleaved=rotary_interleaved)
    if local_window_size == 0 or local_window_size < -1:
        raise OpError(f"local_window_size {local_window_size} must be -1 (no window) or at least 1")
    if local_window_size > 0 and not causal:
        raise OpError(f"local_window_size {local_window_size} counts keys before a query and needs causal 1")
    attend = partial(
        _attend,
        scale=scale or 1 / math.sqrt(size),
        softcap=softcap,
        causal=bool(causal),
        window=local_window_size,
        sink=_sink(head_sink, smooth_softmax, num_heads),
        qk_output=qk_output,
    )
    rooms = grown or (None, None)
    if sliding_window_cache:
        if qk_output:
            raise OpError("qk_output is not supported with sliding_window_cache")
        caches = (past_key, past_value, *rooms)
        return windowed(q, k, v, caches, starts, valid, attention_bias, local_window_size, attend)[:n_outputs]
    present_key = _store(past_key, k, starts, total, rooms[0])
    present_value = _store(past_value, v, starts, total, rooms[1])
    y, kept = attend(q, present_key[:, :, :total], present_value[:, :, :total], starts, valid, attention_bias)
    return (from_heads(y), present_key, present_value, kept)[:n_outputs]


def _split(query, key, value, heads: int, shared: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if query.ndim != 3 or heads <= 0 or shared <= 0 or heads % shared:
        raise OpError(f"query of shape {query.shape} with {heads} heads for {shared} key heads is not valid")
    if key is None:
        if query.shape[2] % (heads + 2 * shared):
            raise OpError(f"a packed query of shape {query.shape} does not divide into {heads} + 2 · {shared} heads")
        size = query.shape[2] // (heads + 2 * shared)
        ends = heads * size, (heads + shared) * size
        query, key, value = query[..., : ends[0]], query[..., ends[0] : ends[1]], query[..., ends[1] :]
    q, k, v = to_heads(query, heads, "query"), to_heads(key, shared, "key"), to_heads(value, shared, "value")
    if k.shape != v.shape or k.shape[0] != q.shape[0] or k.shape[2:] != q.shape[2:]:
        raise OpError(f"query, key, value of shapes {query.shape}, {key.shape}, {value.shape} do not fit together")
    return q, k, v


def _sink(head_sink: np.ndarray | None, smooth_softmax: int, heads: int) -> np.ndarray | None:
    """One more score per head, which takes a share of the softmax and has no value."""
    if head_sink is not None:
        if head_sink.shape != (heads,):
            raise OpError(f"head_sink must have shape {(heads,)}, but has {head_sink.shape}")
        return head_sink.astype(np.float32).reshape(1, -1, 1, 1)
    return np.zeros((1, 1, 1, 1), np.float32) if smooth_softmax == 1 else None


def _rms(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    if weight.shape != x.shape[-1:]:
        raise OpError(f"a norm weight must have shape {x.shape[-1:]}, but has {weight.shape}")
    wide = x.astype(np.float32)
    wide /= np.sqrt(np.mean(wide * wide, axis=-1, keepdims=True) + np.float32(epsilon))
    return (wide * weight).astype(x.dtype)


def _positions(ids: np.ndarray | None, starts: list[int], valid: list[int], length: int, total: int) -> np.ndarray:
    """Positions to rotate by, ``(batch, length)``. Those of padding do not matter; onnxruntime uses 1 for them."""
    if ids is not None and ids.shape != (len(starts), length):
        raise OpError(f"position_ids must have shape {(len(starts), length)}, but have {ids.shape}")
    if ids is not None and length != total:
        return ids
    if ids is not None and ids.size:
        return ids.reshape(-1)[:1, None] + np.arange(length)
    if len(starts) == 1 or length == total:
        return np.arange(starts[0], starts[0] + length)[None]
    places = np.array(starts)[:, None] + np.arange(length)
    return np.where(places < np.array(valid)[:, None], places, 1)


def _store(
    past: np.ndarray | None, new: np.ndarray, starts: list[int], total: int, present: np.ndarray | None
) -> np.ndarray:
    """The present: the past's rows, and the new ones from ``starts[b]`` on. Unwritten rows are 0."""
    batch, heads, length, size = new.shape
    held = 0 if past is None else past.shape[2]
    if present is None:
        present = np.empty((batch, heads, max(held, total), size), new.dtype)
        if past is not None:
            present[:, :, :held] = past
    even = len(set(starts)) == 1
    if not even or starts[0] + length < total:
        present[:, :, held:] = 0
    if even:
        present[:, :, starts[0] : starts[0] + length] = new
    else:
        for b, start in enumerate(starts):
            present[b, :, start : start + length] = new[b]
    return present


# -- gqa rows ---------------------------------------------------------------------------------------------------------
# The two ways in which GroupQueryAttention reads its cache: all rows by absolute position, or a sliding window.
#
# A windowed cache of capacity ``C`` for a window of ``W`` rows keeps the most recent rows at 0 … L-1, in order. When
# it overflows it drops ``G = C - W + 1`` rows at once, so how many it holds follows from the tokens seen so far
# alone.


def _attend(q, k, v, starts, valid, bias, *, scale, softcap, causal, window, sink, qk_output):
    """Attention of queries at rows ``starts[b] …`` over the first ``valid[b]`` rows, of which a query sees at most
    ``window``, its own included (-1: all). On request with the scores before (``qk_output`` 1, hidden keys 0) or after
    (2) the softmax."""
    offsets = starts if len(set(starts)) > 1 else starts[:1]
    rows = valid if min(valid) < k.shape[2] else None
    left = window - 1 if window > 0 else -1
    seen = visible(q.shape[2], k.shape[2], offsets=offsets, causal=causal, left=left, valid=rows, trim=not qk_output)
    k, v = k[:, :, seen.start : seen.stop], v[:, :, seen.start : seen.stop]
    added = [None if bias is None else bias[..., seen.start : seen.stop]]
    kept = {1: 2, 2: 3}.get(qk_output, -1)
    y, found = attend_wide(q, k, v, scale, softcap=softcap, added=added, allowed=seen.allowed, sink=sink, kept=kept)
    if found is not None and qk_output == 1 and seen.allowed is not None:
        np.copyto(found, 0, where=~seen.allowed)
    return y, found


def resident(tokens: int, capacity: int, window: int) -> int:
    """Rows that a windowed cache holds after so many tokens."""
    if tokens <= capacity:
        return tokens
    step = capacity - window + 1
    return tokens - step * -(-(tokens - capacity) // step)


def stored(before: int, after: int, capacity: int, window: int) -> tuple[int, int]:
    """The rows of a windowed cache that a call writes, by the number of tokens before and after it."""
    held, left = resident(before, capacity, window), resident(after, capacity, window)
    return (held if held + after - before == left else 0), left


def windowed(q, k, v, caches, starts, valid, bias, window, attend):
    """Attention over a cache that holds a window; rows beyond the resident ones keep their contents. ``caches`` are the
    pasts, and the presents if given."""
    past_key, past_value, *rooms = caches
    if past_key is None or past_value is None:
        raise OpError("sliding_window_cache needs past_key and past_value, which set the capacity")
    capacity = past_key.shape[2]
    if window < 1 or capacity < window:
        raise OpError(f"a cache of capacity {capacity} does not hold a window of {window} rows")
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
        own = None if bias is None else (bias if bias.shape[0] == 1 else bias[one])[..., before - held : after]
        parts.append(attend(q[one], keys, values, [held], [held + new], own)[0])
        present_key[b, :, first:left] = keys[0, :, held + new - left + first :]
        present_value[b, :, first:left] = values[0, :, held + new - left + first :]
    return from_heads(np.concatenate(parts)), present_key, present_value, None
