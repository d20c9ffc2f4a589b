"""Attention-23 to 25 of ONNX, as onnx 1.23 defines them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import helper

from kvviz.errors import OpError
from kvviz.ops.arguments import same_batch
from kvviz.ops.attention_core import append, cache_cost, cap, from_heads, scores, softmax_rows, to_heads, weigh
from kvviz.ops.attention_mask import visible, with_mask
from kvviz.ops.registry import Grow, op


def _new_rows(args: list, attributes: dict) -> int:
    key = args[1]
    return key.shape[1] if key.ndim == 3 else key.shape[2]


def _cost(args: list, outs: Any, in_place: bool, attributes: dict) -> tuple[int, int]:
    return cache_cost(args, outs, ((4, 1), (5, 2)), (1, 2), args[1].nbytes)


_GROWS = tuple(Grow(past, present, lambda args, attributes: 2, _new_rows) for past, present in ((4, 1), (5, 2)))


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
    grown=None,
):
    """Scaled dot product attention, with the cache inside (past and present) or outside (``nonpad_kv_seqlen``).

    Parameters
    ----------
    query, key, value : ndarray
        ``(batch, heads, length, size)``, or ``(batch, length, heads·size)`` with both head counts as attributes.
    attn_mask : ndarray, optional
        Boolean (true: may be seen) or additive; broadcasts to ``(batch, heads, queries, keys)`` and may be shorter on
        the last axis.
    past_key, past_value : ndarray, optional
        ``(batch, key heads, past length, size)``; key and value are then appended to them.
    nonpad_kv_seqlen : ndarray of int64, optional
        ``(batch,)``: rows of key and value that hold tokens, the ones just written included.
    grown : tuple of ndarray or None, optional
        Presents whose first rows are the pasts already.

    Returns
    -------
    tuple of ndarray
        ``Y``, the presents, and where asked for the product of queries and keys: raw (mode 0), after the soft cap (1),
        with the mask (2), or the probabilities (3). A query that sees no key gives zeros.
    """
    flat = query.ndim == 3
    if not query.ndim == key.ndim == value.ndim or query.ndim not in (3, 4):
        raise OpError(
            f"Q, K, V of rank {query.ndim}, {key.ndim}, {value.ndim} must all have 3 or all have 4 dimensions"
        )
    if flat:
        if not q_num_heads or not kv_num_heads:
            raise OpError("inputs of 3 dimensions need q_num_heads and kv_num_heads")
        q, k, v = (
            to_heads(query, q_num_heads, "Q"),
            to_heads(key, kv_num_heads, "K"),
            to_heads(value, kv_num_heads, "V"),
        )
    else:
        q, k, v = query, key, value
        if q_num_heads not in (None, q.shape[1]) or kv_num_heads not in (None, k.shape[1]):
            raise OpError(f"q_num_heads {q_num_heads} and kv_num_heads {kv_num_heads} contradict the shapes of Q and K")
    _check(q, k, v, past_key, past_value, nonpad_kv_seqlen)
    if left_window_size < -1 or right_window_size < -1:
        raise OpError(f"window sizes {left_window_size} and {right_window_size} must be -1 (no bound) or more")
    past = 0
    present_key, present_value = k, v
    if past_key is not None:
        rooms = grown or (None, None)
        past = past_key.shape[2]
        present_key = append(past_key, k, rooms[0], "past_key")
        present_value = append(past_value, v, rooms[1], "past_value")

    batch, heads, queries, size = q.shape
    keys = present_key.shape[2]
    valid, offsets = None, [past]
    if nonpad_kv_seqlen is not None:
        valid = same_batch(nonpad_kv_seqlen, batch, "nonpad_kv_seqlen")
        _check_valid(valid, keys, attn_mask)
        offsets = [count - queries for count in valid]
    seen = visible(
        queries,
        keys,
        offsets=offsets,
        causal=bool(is_causal),
        left=left_window_size,
        right=right_window_size,
        valid=valid,
        trim=n_outputs < 4,
    )
    allowed, added = seen.allowed, None
    if attn_mask is not None:
        allowed, added = with_mask(seen, attn_mask, (batch, heads, queries, keys), q.dtype)

    # Rows that no query may see are not read: in a static cache that is all beyond the valid length.
    k_seen, v_seen = present_key[:, :, seen.start : seen.stop], present_value[:, :, seen.start : seen.stop]
    x = scores(q, k_seen, 1 / math.sqrt(size) if scale is None else scale)
    kept = x.copy() if n_outputs > 3 and qk_matmul_output_mode == 0 else None
    if softcap > 0:
        x = cap(x, softcap)
    if n_outputs > 3 and qk_matmul_output_mode == 1:
        kept = x.copy()
    if added is not None:
        x += added
    if allowed is not None:
        np.copyto(x, -np.inf, where=~allowed)
    if n_outputs > 3 and qk_matmul_output_mode == 2:
        kept = x.copy()
    if softmax_precision is not None:
        x = x.astype(helper.tensor_dtype_to_np_dtype(softmax_precision), copy=False)
    p = softmax_rows(x, guarded=allowed is not None).astype(q.dtype, copy=False)
    y = weigh(p, v_seen)
    outputs = (from_heads(y) if flat else y, present_key, present_value, p if kept is None else kept)
    return outputs[:n_outputs]


def _check(q, k, v, past_key, past_value, nonpad) -> None:
    """The combinations that the operator's text forbids, each by its own rule."""
    if k.shape[:3] != v.shape[:3]:
        raise OpError(f"K of shape {k.shape} and V of shape {v.shape} differ before the last dimension")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise OpError(f"Q of shape {q.shape} and K of shape {k.shape} differ in batch or head size")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise OpError(f"{q.shape[1]} query heads are not a multiple of {k.shape[1]} key heads")
    if (past_key is None) != (past_value is None):
        raise OpError("past_key and past_value must be given together")
    if past_key is not None and nonpad is not None:
        raise OpError(
            "nonpad_kv_seqlen counts rows of an outside cache and cannot be given with past_key and past_value"
        )


def _check_valid(valid: list[int], keys: int, mask: np.ndarray | None) -> None:
    for count in valid:
        if not 0 <= count <= keys:
            raise OpError(f"nonpad_kv_seqlen {count} is out of range [0, {keys}]")
    if mask is not None and mask.ndim and mask.shape[-1] < max(valid, default=0):
        raise OpError(f"attn_mask reaches {mask.shape[-1]} keys, but nonpad_kv_seqlen says that {max(valid)} are valid")
