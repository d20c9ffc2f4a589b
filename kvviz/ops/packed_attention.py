"""com.microsoft.Attention: the projection to queries, keys and values inside, and one cache tensor for both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.attention_core import cache_cost, from_heads, scores, softmax_rows, to_heads, weigh
from kvviz.ops.attention_mask import check_bias
from kvviz.ops.multi_head_attention import additive_mask
from kvviz.ops.registry import Grow, op


def _growth(args: Sequence[Any], attributes: dict) -> int:
    return args[0].shape[1] if args[0].ndim > 1 else 0


def _cost(args: Sequence[Any], outs: Any, in_place: bool, attributes: dict) -> tuple[int, int]:
    new = 0
    if isinstance(outs, tuple) and len(outs) > 1 and outs[1].shape[3]:
        new = outs[1].nbytes // outs[1].shape[3] * args[0].shape[1]
    return cache_cost(args, outs, ((4, 1),), (), new)


@op("Attention", domain="com.microsoft", grows=(Grow(4, 1, lambda args, attributes: 3, _growth),), cost=_cost)
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
    # Nothing is written before all is known to fit.
    present = None
    if past is not None or n_outputs > 1:
        present = _append(past, k, v, grown[0] if grown else None)
        k, v = present
    s = scores(q, k, scale or 1 / math.sqrt(q.shape[3]))
    if attention_bias is not None:
        s += attention_bias
    if hide is not None:
        s += hide
    return (from_heads(weigh(softmax_rows(s, guarded=False), v)), present)[:n_outputs]


def _append(past: np.ndarray | None, k: np.ndarray, v: np.ndarray, present: np.ndarray | None) -> np.ndarray:
    """Keys and values behind those of the past; only the new ones are written where ``present`` holds the past."""
    held = 0 if past is None else past.shape[3]
    batch, heads, length, size = k.shape
    if v.shape != k.shape or (past is not None and past.shape != (2, batch, heads, held, size)):
        shape = None if past is None else past.shape
        raise OpError(f"a past of shape {shape} does not take keys of shape {k.shape} and values of shape {v.shape}")
    if present is None:
        present = np.empty((2, batch, heads, held + length, size), k.dtype)
        if past is not None:
            present[:, :, :, :held] = past
    present[0, :, :, held:] = k
    present[1, :, :, held:] = v
    return present
