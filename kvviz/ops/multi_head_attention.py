"""com.microsoft.MultiHeadAttention: projected or packed inputs, masks that add a finite number, and a cache."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.arguments import scalar
from kvviz.ops.attention_core import append, cache_cost, from_heads, scores, softmax_rows, to_heads, weigh
from kvviz.ops.registry import Grow, op


def _new_rows(args: list) -> int:
    """Rows of keys that one call brings."""
    key = args[1] if len(args) > 1 and args[1] is not None else args[0]
    return key.shape[2] if key.ndim == 4 else key.shape[1]


def _growth(args: list, attributes: dict) -> int:
    shared = len(args) > 8 and args[8] is not None
    return 0 if shared else _new_rows(args)


def _cost(args: list, outs: Any, in_place: bool, attributes: dict) -> tuple[int, int]:
    new = 0
    if isinstance(outs, (tuple, list)) and len(outs) > 1 and outs[1] is not None and outs[1].shape[2]:
        new = outs[1].nbytes // outs[1].shape[2] * _new_rows(args)
    return cache_cost(args, outs, ((6, 1), (7, 2)), (0, 1, 2), new)


_GROWS = tuple(Grow(past, present, lambda args, attributes: 2, _growth) for past, present in ((6, 1), (7, 2)))


@op("MultiHeadAttention", domain="com.microsoft", views=(0, 1, 2), grows=_GROWS, cost=_cost)
def multi_head_attention(
    query,
    key=None,
    value=None,
    bias=None,
    key_padding_mask=None,
    attention_bias=None,
    past_key=None,
    past_value=None,
    past_sequence_length=None,
    cache_indirection=None,
    *,
    num_heads,
    scale=0.0,
    mask_filter_value=-10000.0,
    unidirectional=0,
    n_outputs=1,
    grown=None,
):
    """Multi-head attention without output projection (onnxruntime 1.31).

    Parameters
    ----------
    query : ndarray
        ``(batch, queries, heads·size)``, or queries, keys and values packed as ``(batch, queries, heads, 3, size)``.
    key, value : ndarray, optional
        ``(batch, keys, heads·size)``; or keys and values packed as ``(batch, keys, heads, 2, size)``; or both as
        ``(batch, heads, keys, size)``, a cache of cross attention that takes no bias.
    bias : ndarray, optional
        Biases of the three projections, one after the other.
    key_padding_mask : ndarray of int32, optional
        ``(batch,)`` lengths, or 1 (seen) and 0 as ``(batch, keys)`` or ``(batch, queries, keys)``. Hidden keys get
        ``mask_filter_value`` added, so a row without any key is an average and not 0.
    attention_bias : ndarray, optional
        Added to the scores.
    past_key, past_value : ndarray, optional
        ``(batch, heads, rows, size)``; the new rows follow, or with ``past_sequence_length`` overwrite rows from there.

    Returns
    -------
    tuple of ndarray
        The output ``(batch, queries, heads·value size)``, both presents, and the scores before the softmax.
    """
    if cache_indirection is not None:
        raise OpError("cache_indirection (beam search inside the operator) is not supported")
    q, k, v = _project(query, key, value, bias, num_heads)
    if (past_key is None) != (past_value is None):
        raise OpError("past_key and past_value must be given together")
    past, present_key, present_value = 0, k, v
    if past_key is not None:
        rooms = grown or (None, None)
        if past_sequence_length is None:
            past = past_key.shape[2]
            present_key = append(past_key, k, rooms[0], "past_key")
            present_value = append(past_value, v, rooms[1], "past_value")
            k, v = present_key, present_value
        else:
            past = int(scalar(past_sequence_length, "past_sequence_length"))
            present_key = _overwrite(past_key, k, past, rooms[0], "past_key")
            present_value = _overwrite(past_value, v, past, rooms[1], "past_value")
            total = past + k.shape[2]
            k, v = present_key[:, :, :total], present_value[:, :, :total]
    kind = q.dtype
    if kind.itemsize < 4:
        q, k, v = q.astype(np.float32), k.astype(np.float32), v.astype(np.float32)
    x = scores(q, k, scale or 1 / math.sqrt(q.shape[3]))
    if key_padding_mask is not None or unidirectional:
        x += additive_mask(
            key_padding_mask, q.shape[0], q.shape[2], k.shape[2], past, mask_filter_value, unidirectional
        )
    if attention_bias is not None:
        x += attention_bias
    kept = x.copy().astype(kind, copy=False) if n_outputs > 3 else None
    y = from_heads(weigh(softmax_rows(x, guarded=False), v))
    return (y.astype(kind, copy=False), present_key, present_value, kept)[:n_outputs]


def _project(query, key, value, bias, heads: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries, keys and values as (batch, heads, length, size), biases added."""
    if query.ndim == 5:
        if key is not None or query.shape[2:4] != (heads, 3):
            raise OpError(f"a packed query of shape {query.shape} must hold {heads} heads of 3, and takes no key")
        parts = [query[:, :, :, i].transpose(0, 2, 1, 3) for i in range(3)]
    else:
        if key is None:
            raise OpError(f"a query of shape {query.shape} needs a key")
        parts = [to_heads(query, heads, "query")]
        if key.ndim == 5:
            parts += [key[:, :, :, i].transpose(0, 2, 1, 3) for i in range(2)]
        elif value is None or value.ndim != key.ndim:
            raise OpError("key and value must come together, both with 3 or both with 4 dimensions")
        elif key.ndim == 4:
            parts += [key, value]
        else:
            parts += [to_heads(key, heads, "key"), to_heads(value, heads, "value")]
    if bias is not None:
        width = heads * parts[0].shape[3]
        ends = (0, width, 2 * width, bias.shape[0])
        projected = 1 if key is not None and key.ndim == 4 else 3
        for i in range(projected):
            part = parts[i]
            parts[i] = np.add(part, bias[ends[i] : ends[i + 1]].reshape(heads, 1, -1), np.empty(part.shape, part.dtype))
    q, k, v = parts
    if k.shape[:3] != v.shape[:3] or q.shape[:2] != k.shape[:2] or q.shape[3] != k.shape[3]:
        raise OpError(f"queries, keys, values by head have shapes {q.shape}, {k.shape}, {v.shape}, which do not fit")
    return q, k, v


def _overwrite(past: np.ndarray, new: np.ndarray, start: int, present: np.ndarray | None, what: str) -> np.ndarray:
    """The past with ``new`` written from row ``start`` on, in the past itself where it is given as ``present``."""
    stop = start + new.shape[2]
    if not 0 <= start <= stop <= past.shape[2]:
        raise OpError(f"{what} with a capacity of {past.shape[2]} rows does not take rows {start} to {stop - 1}")
    present = past.copy() if present is None else present
    present[:, :, start:stop] = new
    return present


def additive_mask(
    mask: np.ndarray | None, batch: int, queries: int, keys: int, past: int, hide: float, causal: int
) -> np.ndarray:
    """What to add to the scores, broadcasting to ``(batch, heads, queries, keys)``.

    Parameters
    ----------
    mask : ndarray of int32, optional
        ``(batch,)`` ends, ``(2·batch,)`` ends and then starts, or 1 (seen) and 0 by key or by pair.
    past : int
        Keys before the first query's own.
    hide : float
        What a hidden key gets; one that a causal query may not see gets the lowest number there is.
    """
    total = np.zeros((1, 1, 1, 1), np.float32)
    if mask is not None:
        if mask.shape == (batch,):
            seen = (np.arange(keys) < mask.reshape(-1, 1))[:, None, None]
        elif mask.shape == (2 * batch,):
            ends, starts = mask.reshape(2, batch, 1)
            places = np.arange(keys)
            seen = ((places < ends) & (places >= starts))[:, None, None]
        elif mask.shape == (batch, keys):
            seen = (mask > 0)[:, None, None]
        elif mask.shape == (batch, queries, keys):
            seen = (mask > 0)[:, None]
        else:
            forms = [(batch,), (2 * batch,), (batch, keys), (batch, queries, keys)]
            raise OpError(f"a mask of shape {mask.shape} fits none of {forms}")
        total = np.where(seen, np.float32(0), np.float32(hide))
    if causal:
        later = np.arange(keys) > np.arange(queries)[:, None] + past
        total = np.where(later, np.finfo(np.float32).min, total)
    return total
