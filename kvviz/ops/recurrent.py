"""LinearAttention: its cache is a state of fixed size that every call makes anew, in ONNX and in com.microsoft.

Told ``grown=``, the kernel writes the new state over the old one.
"""

from __future__ import annotations

import math

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.registry import Grow, op

STATE = (Grow(3, 1, lambda args, attributes: 0, lambda args, attributes: 0),)
"""A state: input 3 and output 1, of one shape, so that no axis grows."""

_GATED, _DELTA = ("gated", "gated_delta"), ("delta", "gated_delta")


@op("LinearAttention", since=27, grows=STATE)
def linear_attention(
    query,
    key,
    value,
    past_state=None,
    decay=None,
    beta=None,
    *,
    q_num_heads,
    kv_num_heads,
    update_rule="gated_delta",
    scale=0.0,
    chunk_size=64,
    grown=None,
):
    """Recurrent attention whose cache is one matrix a head, overwritten at every token (LinearAttention-27).

    Per token: ``S ← exp(g)·S``, then ``S ← S + k ⊗ β(v − Sᵀk)`` (or ``k ⊗ v``), then ``o = scale · qᵀS``. The
    recurrence is computed in float32 at least; ``chunk_size`` is a hint for parallel hardware.

    The state is ``(batch, kv_heads, key size, value size)``, ``grown`` the past state itself, when it may be
    overwritten. ``decay`` (``g``, for the gated rules) is ``(batch, tokens, kv_heads)`` or ``(batch, tokens,
    kv_heads·key size)``, ``beta`` (for the delta rules) ``(batch, tokens, kv_heads)`` or ``(batch, tokens, 1)``.
    """
    if kv_num_heads <= 0 or q_num_heads <= 0 or q_num_heads % kv_num_heads:
        raise OpError(f"{q_num_heads} query heads are not a multiple of {kv_num_heads} key heads")
    heads = (q_num_heads, kv_num_heads)
    return _recur(query, key, value, past_state, decay, beta, heads, update_rule, scale, grown)


@op("LinearAttention", domain="com.microsoft", grows=STATE)
def linear_attention_ms(
    query,
    key,
    value,
    past_state=None,
    decay=None,
    beta=None,
    *,
    q_num_heads,
    kv_num_heads,
    update_rule="gated_delta",
    scale=0.0,
    chunk_size=64,
    state_window=0,
    grown=None,
):
    """com.microsoft's form, which also takes more key heads than query heads: the output has the larger number of
    heads."""
    most, least = max(q_num_heads, kv_num_heads), min(q_num_heads, kv_num_heads)
    if least <= 0 or most % least:
        raise OpError(f"{q_num_heads} query heads and {kv_num_heads} key heads do not divide each other")
    refuse_window(state_window)
    heads = (q_num_heads, kv_num_heads)
    return _recur(query, key, value, past_state, decay, beta, heads, update_rule, scale, grown)


def refuse_window(window: int) -> None:
    """Like onnxruntime's CPU kernels, ours keep the state after the last token only."""
    if window:
        raise OpError(f"state_window {window} (a state after each of the last tokens) is not supported")


def _recur(query, key, value, past, decay, beta, counts, rule: str, scale: float, grown) -> tuple:
    """The recurrence; ``counts`` are the numbers of query and of key heads."""
    if rule not in ("linear", *_GATED, "delta"):
        raise OpError(f"update_rule {rule!r} is none of linear, gated, delta, gated_delta")
    if (decay is not None) != (rule in _GATED):
        raise OpError(f"update_rule {rule!r} {'needs' if decay is None else 'takes no'} decay")
    if (beta is not None) != (rule in _DELTA):
        raise OpError(f"update_rule {rule!r} {'needs' if beta is None else 'takes no'} beta")
    heads = counts[1]
    work = np.float64 if query.dtype == np.float64 else np.float32
    q, k, v = (_heads(x, n, name, work) for x, n, name in zip((query, key, value), (counts[0], heads, heads), _NAMES))
    batch, tokens, _, size = k.shape
    if q.shape[:2] != k.shape[:2] or v.shape[:2] != k.shape[:2] or q.shape[3] != size:
        raise OpError(f"query, key, value of shapes {query.shape}, {key.shape}, {value.shape} do not fit together")
    _check_gates(decay, beta, batch, tokens, heads, size)
    shape = (batch, heads, size, v.shape[3])
    if past is not None and past.shape != shape:
        raise OpError(f"past_state must have shape {shape}, but has {past.shape}")
    kind = query.dtype if past is None else past.dtype
    room = grown[0] if grown and grown[0] is not None else np.empty(shape, kind)
    # Computed in the new state itself where its type and layout allow that.
    state = room if kind == work and room.flags.c_contiguous else np.empty(shape, work)
    if past is None:
        state[...] = 0
    elif state is not past:
        state[...] = past
    if counts[0] < heads:
        # One query head serves several key heads, each of which has a state and gives an output.
        q = np.repeat(q, heads // counts[0], axis=2)
    q = q.reshape(batch, tokens, heads, -1, size)
    keep = None if decay is None else np.exp(_heads(decay, heads, "decay", work))[..., None]
    rate = None if beta is None else beta.astype(work)[..., None]
    output = np.empty((*q.shape[:4], v.shape[3]), work)
    for t in range(tokens):
        k_t, v_t = k[:, t], v[:, t]
        if keep is not None:
            state *= keep[:, t]
        if rate is not None:
            v_t = rate[:, t] * (v_t - np.matmul(k_t[:, :, None], state)[:, :, 0])
        state += k_t[..., None] * v_t[:, :, None]
        np.matmul(q[:, t], state, out=output[:, t])
    output *= scale or 1 / math.sqrt(size)
    if state is not room:
        room[...] = state
    return output.reshape(batch, tokens, -1).astype(query.dtype, copy=False), room


_NAMES = ("query", "key", "value")


def _check_gates(decay, beta, batch: int, tokens: int, heads: int, size: int) -> None:
    if decay is not None and decay.shape not in ((batch, tokens, heads), (batch, tokens, heads * size)):
        wanted = f"({batch}, {tokens}, {heads} or {heads * size})"
        raise OpError(f"decay must have shape {wanted}, but has {decay.shape}")
    if beta is not None and beta.shape not in ((batch, tokens, heads), (batch, tokens, 1)):
        raise OpError(f"beta must have shape ({batch}, {tokens}, {heads} or 1), but has {beta.shape}")


def _heads(x: np.ndarray, heads: int, name: str, dtype: type) -> np.ndarray:
    """Unpack (batch, tokens, heads·size) to (batch, tokens, heads, size)."""
    if x.ndim != 3 or x.shape[2] % heads:
        raise OpError(f"{name} of shape {x.shape} does not hold {heads} heads in three dimensions")
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).astype(dtype)
