"""Attention-23 to 25 of ONNX, as onnx 1.23 defines them, and rotary position embedding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.movement.cast import DTYPES
from kvviz.ops.numeric import same_batch
from kvviz.ops.registry import Grow, op
from kvviz.ops.transformer.attention_core import (
    append,
    attend,
    cache_cost,
    check_pasts,
    from_heads,
    reaching,
    to_heads,
    visible,
    with_mask,
)


def _new_rows(args: Sequence[Any], attributes: dict) -> int:
    return args[1].shape[-2] if args[1].ndim > 1 else 0


def _cost(args: Sequence[Any], outs: Any, in_place: bool, attributes: dict) -> tuple[int, int]:
    return cache_cost(args, outs, ((4, 1), (5, 2)), (1, 2), args[1].nbytes)


_GROWS = tuple(Grow(past, present, lambda args, attributes: 2, _new_rows) for past, present in ((4, 1), (5, 2)))


_PRECISIONS = (None, 1, 10, 11, 16)


@op("Attention", since=23, views=(1, 2), grows=_GROWS, cost=_cost)
def attention(
    query,
    key,
    value,
    attn_mask=None,
    past_key=None,
    past_value=None,
    nonpad_kv_seqlen=None,
    *,
    is_causal=0,
    scale=None,
    softcap=0.0,
    softmax_precision=None,
    qk_matmul_output_mode=0,
    q_num_heads=None,
    kv_num_heads=None,
    left_window_size=-1,
    right_window_size=-1,
    n_outputs=1,
    opset=24,
    grown=None,
):
    """Scaled dot product attention, with the cache inside (past and present) or outside (``nonpad_kv_seqlen``).

    From opset 24 on ``attn_mask`` may be shorter on the last axis and then hides the keys that it does not reach. With
    ``nonpad_kv_seqlen`` the text forbids the presents as outputs; onnxruntime and exporters allow them (they are key
    and value), and so do we. ``grown`` are presents whose first rows are the pasts already. A query that sees no key
    gives zeros.

    Combinations that the text or onnxruntime 1.31 forbids are refused. Where the two differ in what they compute, the
    text is followed: one query behind a past is causal as well (onnxruntime lets it see all keys), and hidden keys have
    -inf in mode 2 (in onnxruntime the lowest number).
    """
    q, k, v = _by_head(query, key, value, q_num_heads, kv_num_heads)
    _check(q, k, v, past_key, past_value, nonpad_kv_seqlen, n_outputs)
    _check_attributes(scale, softmax_precision, qk_matmul_output_mode if n_outputs > 3 else 0)
    if left_window_size < -1 or right_window_size < -1:
        raise OpError(f"window sizes {left_window_size} and {right_window_size} must be -1 (no bound) or more")
    past = 0 if past_key is None else past_key.shape[2]
    batch, heads, queries, size = q.shape
    keys = past + k.shape[2]
    valid, offsets = None, [past]
    if nonpad_kv_seqlen is not None:
        if nonpad_kv_seqlen.ndim != 1:
            raise OpError(f"nonpad_kv_seqlen must have one dimension, but has shape {nonpad_kv_seqlen.shape}")
        valid = same_batch(nonpad_kv_seqlen, batch, "nonpad_kv_seqlen")
        _check_valid(valid, keys, attn_mask)
        offsets = [count - queries for count in valid]
    seen = visible(
        queries,
        keys,
        offsets=offsets,
        causal=is_causal == 1,
        left=left_window_size,
        right=right_window_size,
        valid=valid,
        trim=n_outputs < 4,
    )
    allowed, added = seen.allowed, None
    if attn_mask is not None:
        if opset < 24:
            attn_mask = reaching(attn_mask, keys)
        allowed, added = with_mask(seen, attn_mask, (batch, heads, queries, keys), q.dtype)

    # Nothing is written before everything is known to fit.
    present_key, present_value = k, v
    if past_key is not None:
        rooms = grown or (None, None)
        present_key, present_value = append(past_key, k, rooms[0]), append(past_value, v, rooms[1])
    # Rows that no query may see are not read: in a static cache those beyond the valid length.
    k_seen, v_seen = present_key[:, :, seen.start : seen.stop], present_value[:, :, seen.start : seen.stop]
    scale = 1 / math.sqrt(size) if scale is None else scale
    precision = None if softmax_precision is None else DTYPES[softmax_precision]
    kept = qk_matmul_output_mode if n_outputs > 3 else -1
    how: dict[str, Any] = {"softcap": softcap, "added": [added], "allowed": allowed}
    y, found = attend(q, k_seen, v_seen, scale, **how, precision=precision, kept=kept)
    return (from_heads(y) if query.ndim == 3 else y, present_key, present_value, found)[:n_outputs]


def _by_head(query, key, value, heads: int | None, shared: int | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The three inputs as (batch, heads, length, size)."""
    if not query.ndim == key.ndim == value.ndim or query.ndim not in (3, 4):
        raise OpError(
            f"Q, K, V of rank {query.ndim}, {key.ndim}, {value.ndim} must all have 3 or all have 4 dimensions"
        )
    if query.ndim == 4:
        # onnxruntime takes 0 for "not given".
        if heads not in (None, 0, query.shape[1]) or shared not in (None, 0, key.shape[1]):
            raise OpError(f"q_num_heads {heads} and kv_num_heads {shared} contradict the shapes of Q and K")
        return query, key, value
    if not heads or not shared:
        raise OpError("inputs of 3 dimensions need q_num_heads and kv_num_heads")
    return to_heads(query, heads, "Q"), to_heads(key, shared, "K"), to_heads(value, shared, "V")


def _check(q, k, v, past_key, past_value, nonpad, n_outputs: int) -> None:
    if k.shape[:3] != v.shape[:3]:
        raise OpError(f"K of shape {k.shape} and V of shape {v.shape} differ before the last dimension")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise OpError(f"Q of shape {q.shape} and K of shape {k.shape} differ in batch or head size")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise OpError(f"{q.shape[1]} query heads are not a multiple of {k.shape[1]} key heads")
    check_pasts(past_key, past_value, k, v)
    if past_key is None:
        return
    if nonpad is not None:
        raise OpError(
            "nonpad_kv_seqlen counts rows of an outside cache and cannot be given with past_key and past_value"
        )
    if n_outputs < 3:
        raise OpError("past_key and past_value need present_key and present_value as outputs")


def _check_attributes(scale: float | None, precision: int | None, mode: int) -> None:
    if scale is not None and not scale > 0:
        raise OpError(f"scale {scale} must be greater than 0: its square root goes into Q and K")
    if precision not in _PRECISIONS:
        raise OpError(f"softmax_precision {precision} must be 1 (float), 10 (float16), 11 (double) or 16 (bfloat16)")
    if mode not in (0, 1, 2, 3):
        raise OpError(f"qk_matmul_output_mode {mode} must be 0, 1, 2 or 3")


def _check_valid(valid: list[int], keys: int, mask: np.ndarray | None) -> None:
    for count in valid:
        if not 0 <= count <= keys:
            raise OpError(f"nonpad_kv_seqlen {count} is out of range [0, {keys}]")
    if mask is not None and mask.ndim and mask.shape[-1] < max(valid, default=0):
        raise OpError(f"attn_mask reaches {mask.shape[-1]} keys, but nonpad_kv_seqlen says that {max(valid)} are valid")


# -- rotary embedding -------------------------------------------------------------------------------------------------
# In ONNX's form and in com.microsoft's. The two differ in the order of their inputs.


def rotate(x, cos, sin, *, interleaved):
    """Rotate the leading ``2·half`` elements of the last axis by pairs; the rest pass unchanged. ``cos`` and ``sin``
    are ``(…, half)``. Pairs are neighbours (``interleaved``) or half the rotated width apart."""
    half = cos.shape[-1]
    width = 2 * half
    y = np.empty(x.shape, x.dtype)
    if width < x.shape[-1]:
        y[..., width:] = x[..., width:]
    one, two = (slice(0, width, 2), slice(1, width, 2)) if interleaved else (slice(0, half), slice(half, width))
    a, b, first, second = x[..., one], x[..., two], y[..., one], y[..., two]
    np.multiply(a, cos, first)
    np.multiply(b, cos, second)
    np.subtract(first, np.multiply(b, sin), first)
    np.add(second, np.multiply(a, sin), second)
    return y


def rows_at(cache, positions, what):
    if cache.ndim != 2:
        raise OpError(f"{what} must have two dimensions when positions are given, but has shape {cache.shape}")
    if positions.size == 1:
        low = high = positions.item()
    elif positions.size:
        low, high = positions.min(), positions.max()
    else:
        low = high = 0
    if low < 0 or high >= max(len(cache), 1):
        raise OpError(f"position {low if low < 0 else high} is not in {what}, which has {len(cache)} rows")
    return cache.take(positions, 0)


def _embed(x, cos, sin, interleaved, dim, heads):
    """Rotate (B, N, S, H), or (B, S, N·H) given the number of heads, by tables of shape (B, S, half)."""
    if x.ndim == 4:
        size, cos, sin, view = x.shape[3], cos[:, None], sin[:, None], x
    elif x.ndim == 3:
        if heads <= 0 or x.shape[2] % heads:
            raise OpError(f"an input of shape {x.shape} does not divide into num_heads {heads}")
        size = x.shape[2] // heads
        view = x.reshape(*x.shape[:2], heads, size)
        cos, sin = cos[:, :, None], sin[:, :, None]
    else:
        raise OpError(f"the input must have 3 or 4 dimensions, but has shape {x.shape}")
    width = dim or size
    if 2 * cos.shape[-1] != width or 2 * sin.shape[-1] != width or width > size:
        raise OpError(f"tables of width {cos.shape[-1]} and {sin.shape[-1]} do not rotate {width} of {size} elements")
    y = rotate(view, cos, sin, interleaved=interleaved)
    return y if x.ndim == 4 else y.reshape(x.shape)


@op("RotaryEmbedding", since=23)
def rotary_embedding(x, cos, sin, position_ids=None, *, interleaved=0, rotary_embedding_dim=0, num_heads=0):
    """RotaryEmbedding-23. Tables are (positions, half) with ``position_ids``, else (B, S, half)."""
    if position_ids is not None:
        cos, sin = rows_at(cos, position_ids, "cos_cache"), rows_at(sin, position_ids, "sin_cache")
    elif cos.ndim != 3 or sin.ndim != 3:
        raise OpError(f"cos_cache of shape {cos.shape} needs position_ids, or a batch and a sequence dimension")
    return _embed(x, cos, sin, interleaved, rotary_embedding_dim, num_heads)


@op("RotaryEmbedding", domain="com.microsoft")
def rotary_embedding_ms(
    x,
    position_ids,
    cos,
    sin,
    *,
    interleaved=0,
    rotary_embedding_dim=0,
    num_heads=0,
    scale=1.0,
    is_packed_batching=0,
):
    """com.microsoft.RotaryEmbedding: ``position_ids`` come second, as (B, S) or as one offset for the whole sequence.
    onnxruntime's kernel reads ``scale`` and does not use it, and so do we."""
    if position_ids.ndim == 1:
        length = x.shape[2] if x.ndim == 4 else x.shape[1]
        position_ids = position_ids.reshape(1, 1) + np.arange(length)
    if x.ndim == 3 and num_heads == 0:
        num_heads = x.shape[2] // (2 * cos.shape[-1])
    tables = rows_at(cos, position_ids, "cos_cache"), rows_at(sin, position_ids, "sin_cache")
    return _embed(x, *tables, interleaved, rotary_embedding_dim, num_heads)
