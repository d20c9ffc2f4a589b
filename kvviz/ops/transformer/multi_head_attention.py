"""com.microsoft.MultiHeadAttention: projected or packed inputs, masks that add a finite number, and a cache."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.numeric import scalar
from kvviz.ops.registry import Grow, Parts, op, rows_along
from kvviz.ops.transformer.attention_core import (
    append,
    attend,
    attend_wide,
    cache_cost,
    check_bias,
    check_pasts,
    from_heads,
    padding_seen,
    to_heads,
)


def _new_rows(args: Sequence[Any]) -> int:
    key = args[1] if len(args) > 1 and args[1] is not None else args[0]
    return key.shape[2] if key.ndim == 4 else key.shape[1] if key.ndim > 1 else 0


def _growth(args: Sequence[Any], attributes: dict) -> int:
    shared = len(args) > 8 and args[8] is not None
    return 0 if shared else _new_rows(args)


def _cost(args: Sequence[Any], outs: Any, in_place: bool, attributes: dict) -> tuple[int, int]:
    new = 0
    if isinstance(outs, (tuple, list)) and len(outs) > 1 and outs[1] is not None and outs[1].shape[2]:
        new = outs[1].nbytes // outs[1].shape[2] * _new_rows(args)
    return cache_cost(args, outs, ((6, 1), (7, 2)), (0, 1, 2), new)


def _written(args: Sequence[Any], outs: Sequence[Any], attributes: dict) -> Parts:
    if len(args) < 9 or args[8] is None:
        return ()
    first, rows = int(scalar(args[8], "past_sequence_length")), _new_rows(args)
    presents = [i for i in (1, 2)[: len(outs) - 1] if outs[i] is not None]
    return tuple([(i, rows_along(outs[i], 2, [first], rows)) for i in presents])


_GROWS = tuple(Grow(past, present, lambda args, attributes: 2, _growth) for past, present in ((6, 1), (7, 2)))


@op("MultiHeadAttention", domain="com.microsoft", views=(0, 1, 2), grows=_GROWS, cost=_cost, written=_written)
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

    ``query`` may hold queries, keys and values packed as ``(batch, queries, heads, 3, size)``; ``key`` keys and values
    as ``(batch, keys, heads, 2, size)``; or both are ``(batch, heads, keys, size)``, a cache of cross attention that
    takes no bias. ``bias``: those of the three projections, one after the other. New rows follow the pasts ``(batch,
    heads, rows, size)``, or with ``past_sequence_length`` overwrite rows from there. Hidden keys get
    ``mask_filter_value`` added, so a row without any key is an average and not 0. The last output is the scores before
    the softmax.
    """
    if cache_indirection is not None:
        raise OpError("cache_indirection (beam search inside the operator) is not supported")
    q, k, v = projected(query, key, value, bias, num_heads)
    check_pasts(past_key, past_value, k, v)
    past, queries, new = 0, q.shape[2], k.shape[2]
    if past_key is not None:
        past = past_key.shape[2]
        if past_sequence_length is not None:
            past = int(scalar(past_sequence_length, "past_sequence_length"))
            if not 0 <= past <= past + new <= past_key.shape[2]:
                raise OpError(f"a past of {past_key.shape[2]} rows does not take rows {past} to {past + new - 1}")
    keys = past + new
    check_bias(attention_bias, q.shape[0], num_heads, queries, keys)
    hide = None
    if key_padding_mask is not None or unidirectional:
        hide = additive_mask(key_padding_mask, q.shape[0], queries, keys, past, mask_filter_value, unidirectional)
    # Nothing is written before everything is known to fit.
    present_key, present_value = k, v
    if past_key is not None:
        rooms = grown or (None, None)
        put = append if past_sequence_length is None else partial(_overwrite, start=past)
        present_key, present_value = put(past_key, k, rooms[0]), put(past_value, v, rooms[1])
        k, v = present_key[:, :, :keys], present_value[:, :, :keys]
    scale = scale or 1 / math.sqrt(q.shape[3])
    y, kept = attend_wide(q, k, v, scale, added=[attention_bias, hide], kept=2 if n_outputs > 3 else -1)
    return (from_heads(y), present_key, present_value, kept)[:n_outputs]


def projected(query, key, value, bias, heads: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries, keys and values as (batch, heads, length, size), biases added."""
    if query.ndim == 5:
        if key is not None or value is not None or query.shape[2:4] != (heads, 3):
            raise OpError(
                f"a packed query of shape {query.shape} must hold {heads} heads of 3, and takes no key or value"
            )
        parts = [query[:, :, :, i].transpose(0, 2, 1, 3) for i in range(3)]
    else:
        if key is None:
            raise OpError(f"a query of shape {query.shape} needs a key")
        parts = [to_heads(query, heads, "query")]
        if key.ndim == 5:
            if value is not None or key.shape[2:4] != (heads, 2):
                raise OpError(f"a packed key of shape {key.shape} must hold {heads} heads of 2, and takes no value")
            parts += [key[:, :, :, i].transpose(0, 2, 1, 3) for i in range(2)]
        elif value is None or value.ndim != key.ndim:
            raise OpError("key and value must come together, both with 3 or both with 4 dimensions")
        elif key.ndim == 4:
            parts += [key, value]
        else:
            parts += [to_heads(key, heads, "key"), to_heads(value, heads, "value")]
    q, k, v = parts
    if k.shape[:3] != v.shape[:3] or q.shape[:2] != k.shape[:2] or q.shape[3] != k.shape[3]:
        raise OpError(f"queries, keys, values by head have shapes {q.shape}, {k.shape}, {v.shape}, which do not fit")
    if bias is not None:
        width, last = heads * parts[0].shape[3], heads * parts[2].shape[3]
        ends = (0, width, 2 * width, 2 * width + last)
        if bias.shape != ends[3:]:
            raise OpError(f"bias must have shape {ends[3:]}, but has {bias.shape}")
        projected = 1 if key is not None and key.ndim == 4 else 3
        for i in range(projected):
            part = parts[i]
            parts[i] = np.add(part, bias[ends[i] : ends[i + 1]].reshape(heads, 1, -1), np.empty(part.shape, part.dtype))
    return parts[0], parts[1], parts[2]


def _overwrite(past: np.ndarray, new: np.ndarray, present: np.ndarray | None, start: int) -> np.ndarray:
    """The past with ``new`` written from row ``start`` on, in the past itself if it is given as ``present``."""
    present = past.copy() if present is None else present
    present[:, :, start : start + new.shape[2]] = new
    return present


def additive_mask(
    mask: np.ndarray | None, batch: int, queries: int, keys: int, past: int, hide: float, causal: int
) -> np.ndarray:
    """The numbers to add to the scores, broadcasting to ``(batch, heads, queries, keys)``, for a mask as in
    `padding_seen`.

    ``past`` counts keys before the first query's own. A hidden key gets ``hide``, one that causality hides the lowest
    number there is. onnxruntime 1.31 exempts the last query from causality, which matters if there are more keys than
    queries, as in cross attention.
    """
    total = np.zeros((1, 1, 1, 1), np.float32)
    if mask is not None:
        seen = padding_seen(mask, batch, queries, keys)
        if seen is None:
            forms = [(batch,), (2 * batch,), (3 * batch + 2,), (batch, keys), (batch, queries, keys)]
            raise OpError(f"a mask of shape {mask.shape} fits none of {forms}")
        total = np.where(seen[:, None], np.float32(0), np.float32(hide))
    if causal:
        later = np.arange(keys) > np.arange(queries)[:, None] + past
        later[-1:] = False
        total = np.where(later, np.finfo(np.float32).min, total)
    return total


# com.microsoft.Attention: the projection to queries, keys and values inside, and one cache tensor for both.


def _packed_growth(args: Sequence[Any], attributes: dict) -> int:
    return args[0].shape[1] if args[0].ndim > 1 else 0


def _packed_cost(args: Sequence[Any], outs: Any, in_place: bool, attributes: dict) -> tuple[int, int]:
    new = 0
    if isinstance(outs, tuple) and len(outs) > 1 and outs[1].shape[3]:
        new = outs[1].nbytes // outs[1].shape[3] * args[0].shape[1]
    return cache_cost(args, outs, ((4, 1),), (), new)


@op(
    "Attention",
    domain="com.microsoft",
    grows=(Grow(4, 1, lambda args, attributes: 3, _packed_growth),),
    cost=_packed_cost,
)
def packed_attention(
    x,
    weights,
    bias=None,
    mask_index=None,
    past=None,
    attention_bias=None,
    past_sequence_length=None,
    *,
    num_heads,
    unidirectional=0,
    scale=0.0,
    mask_filter_value=-10000.0,
    qkv_hidden_sizes=None,
    do_rotary=0,
    rotary_embedding_dim=0,
    past_present_share_buffer=0,
    n_outputs=1,
    grown=None,
):
    """Self attention with its input projection, as onnxruntime fuses it for BERT and GPT-2. ``weights`` are ``(width, q
    + k + v)``; ``mask_index`` is as in `additive_mask`, without the form with offsets; the past and the present ``(2,
    batch, heads, rows, size)``, keys and then values."""
    if do_rotary or past_present_share_buffer or past_sequence_length is not None:
        raise OpError("do_rotary and a shared past buffer of com.microsoft.Attention are not supported")
    if weights.ndim != 2:
        raise OpError(f"weights must have 2 dimensions, but have shape {weights.shape}")
    if bias is not None and bias.shape != weights.shape[1:]:
        raise OpError(f"bias must have shape {weights.shape[1:]}, but has {bias.shape}")
    third = weights.shape[1] // 3
    widths = list(qkv_hidden_sizes or (third, third, third))
    if x.ndim != 3 or x.shape[2] != weights.shape[0] or sum(widths) != weights.shape[1]:
        raise OpError(f"weights of shape {weights.shape} for hidden sizes {widths} do not fit an input of {x.shape}")
    projected = np.matmul(x, weights)
    if bias is not None:
        projected += bias
    ends = (0, widths[0], widths[0] + widths[1], sum(widths))
    q, k, v = (to_heads(projected[..., ends[i] : ends[i + 1]], num_heads, "the projection") for i in range(3))
    held = 0 if past is None else past.shape[3]
    queries, keys, hide = q.shape[2], held + k.shape[2], None
    check_bias(attention_bias, q.shape[0], q.shape[1], queries, keys)
    if mask_index is not None or unidirectional:
        hide = additive_mask(mask_index, q.shape[0], queries, keys, held, mask_filter_value, unidirectional)
    # Nothing is written before everything is known to fit.
    present = None
    if past is not None or n_outputs > 1:
        present = _append(past, k, v, grown[0] if grown else None)
        k, v = present
    y, _ = attend(q, k, v, scale or 1 / math.sqrt(q.shape[3]), added=[attention_bias, hide])
    return (from_heads(y), present)[:n_outputs]


def _append(past: np.ndarray | None, k: np.ndarray, v: np.ndarray, present: np.ndarray | None) -> np.ndarray:
    """Keys and values behind those of the past; only the new ones are written if ``present`` holds the past."""
    held = 0 if past is None else past.shape[3]
    batch, heads, length, size = k.shape
    if v.shape != k.shape or (past is not None and past.shape != (2, batch, heads, held, size)):
        shape = None if past is None else past.shape
        raise OpError(f"a past of shape {shape} does not take keys of shape {k.shape} and values of shape {v.shape}")
    if present is None:
        present = np.empty((2, batch, heads, held + length, size), k.dtype)
        if past is not None:
            present[:, :, :, :held] = past
    present[0, :, :, held:], present[1, :, :, held:] = k, v
    return present
