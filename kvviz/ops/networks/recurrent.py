"""LinearAttention and CausalConvWithState: their cache is a state of fixed size that every call makes anew.

With ``grown=`` the kernels write the new state over the old one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.registry import MICROSOFT, Grow, op

STATE = (Grow(3, 1, lambda args, attributes: 0, lambda args, attributes: 0),)
"""A state: input 3 and output 1, of one shape, so that no axis grows."""

_GATED, _DELTA = ("gated", "gated_delta"), ("delta", "gated_delta")


@op("LinearAttention", since=27, grows=STATE)
def linear_attention(
    *inputs, q_num_heads, kv_num_heads, update_rule="gated_delta", scale=0.0, chunk_size=64, grown=None
):
    """Recurrent attention whose cache is one matrix per head, overwritten at every token (LinearAttention-27).

    Per token: ``S ← exp(g)·S``, then ``S ← S + k ⊗ β(v − Sᵀk)`` (or ``k ⊗ v``), then ``o = scale · qᵀS``. The
    recurrence is computed in float32 at least; ``chunk_size`` is a hint for parallel hardware.

    Inputs are query, key, value, past state, decay and beta. The state is ``(batch, kv_heads, key size, value size)``,
    ``grown`` the past state itself, when it may be overwritten. The decay (``g``, for the gated rules) is ``(batch,
    tokens, kv_heads)`` or ``(batch, tokens, kv_heads·key size)``, beta (for the delta rules) ``(batch, tokens,
    kv_heads)`` or ``(batch, tokens, 1)``.
    """
    if kv_num_heads <= 0 or q_num_heads <= 0 or q_num_heads % kv_num_heads:
        raise OpError(f"{q_num_heads} query heads are not a multiple of {kv_num_heads} key heads")
    return _recur(*inputs, counts=(q_num_heads, kv_num_heads), rule=update_rule, scale=scale, grown=grown)


@op("LinearAttention", domain=MICROSOFT, grows=STATE)
def linear_attention_ms(
    *inputs, q_num_heads, kv_num_heads, update_rule="gated_delta", scale=0.0, chunk_size=64, state_window=0, grown=None
):
    """com.microsoft's form, which also takes more key heads than query heads: the output has the larger number."""
    most, least = max(q_num_heads, kv_num_heads), min(q_num_heads, kv_num_heads)
    if least <= 0 or most % least:
        raise OpError(f"{q_num_heads} query heads and {kv_num_heads} key heads do not divide each other")
    refuse_window(state_window)
    return _recur(*inputs, counts=(q_num_heads, kv_num_heads), rule=update_rule, scale=scale, grown=grown)


def refuse_window(window: int) -> None:
    """Like onnxruntime's CPU kernels, ours keep the state after the last token only."""
    if window:
        raise OpError(f"state_window {window} (a state after each of the last tokens) is not supported")


def _recur(query, key, value, past=None, decay=None, beta=None, *, counts, rule: str, scale: float, grown) -> tuple:
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
    # Computed in the new state itself if its type and layout allow that.
    state = room if kind == work and room.flags.c_contiguous else np.empty(shape, work)
    if past is None:
        state[...] = 0
    elif state is not past:
        state[...] = past
    if counts[0] < heads:
        # One query head serves several key heads, each with a state and an output of its own.
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
    if x.ndim != 3 or x.shape[2] % heads:
        raise OpError(f"{name} of shape {x.shape} does not hold {heads} heads in three dimensions")
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).astype(dtype)


def _conv_cost(args: list, outs: Any, in_place: bool, attributes: dict) -> tuple[int, int]:
    """Columns that stay in the state are moved, to a new state or within the old one."""
    outs = outs if isinstance(outs, (tuple, list)) else (outs,)
    if len(outs) < 2 or outs[1] is None:
        return outs[0].nbytes, 0
    axis = 1 if attributes.get("channels_last") else 2
    state, columns, copied = outs[1], outs[1].shape[axis], 0
    if columns and len(args) > 3 and args[3] is not None:
        copied = state.nbytes // columns * max(columns - args[0].shape[axis], 0)
    return outs[0].nbytes + state.nbytes, copied


@op("CausalConvWithState", since=27, grows=STATE, cost=_conv_cost)
def causal_conv_with_state(x, weight, bias=None, past_state=None, *, activation="none", n_outputs=2, grown=None):
    """Depthwise convolution over past and present columns (CausalConvWithState-27), and the last ``k - 1`` columns
    seen. ``x`` is ``(batch, channels, length)``, ``weight`` ``(channels, 1, k)``; ``grown`` the past state itself, when
    it may be overwritten. ``"silu"`` and ``"swish"`` are the same function."""
    return _convolve(x, weight, bias, past_state, activation, 1, grown)[:n_outputs]


@op("CausalConvWithState", domain=MICROSOFT, grows=STATE, cost=_conv_cost)
def causal_conv_with_state_ms(
    x,
    weight,
    bias=None,
    past_state=None,
    *,
    activation="none",
    ndim=1,
    dilation=1,
    channels_last=0,
    state_window=0,
    n_outputs=2,
    grown=None,
):
    """com.microsoft's form: taps ``dilation`` columns apart, and channels last. The state has ``(k - 1)·dilation``
    columns, in the layout of ``x``."""
    if ndim != 1:
        raise OpError(f"ndim {ndim} is not supported: the convolution runs over one dimension")
    if dilation < 1:
        raise OpError(f"dilation {dilation} must be at least 1")
    refuse_window(state_window)
    if not channels_last:
        return _convolve(x, weight, bias, past_state, activation, dilation, grown)[:n_outputs]
    if x.ndim < 3 or weight.ndim != 3:
        raise OpError(f"an input of shape {x.shape} must be (batch, length, channels …), a weight (channels, 1, k)")
    batch, length, *tail = x.shape
    columns, channels = (weight.shape[2] - 1) * dilation, math.prod(tail)
    shape = (batch, columns, *tail)
    if past_state is not None and past_state.shape != shape:
        raise OpError(f"past_state must have shape {shape}, but has {past_state.shape}")
    past = None if past_state is None else past_state.reshape(batch, columns, channels).swapaxes(1, 2)
    rows = x.reshape(batch, length, channels).swapaxes(1, 2)
    y, state = _convolve(rows, weight, bias, past, activation, dilation, None)
    room = grown[0] if grown and grown[0] is not None else np.empty(shape, x.dtype)
    room[...] = state.swapaxes(1, 2).reshape(shape)
    return (np.ascontiguousarray(y.swapaxes(1, 2)).reshape(x.shape), room)[:n_outputs]


def _convolve(x, weight, bias, past, activation: str, dilation: int, grown) -> tuple[np.ndarray, np.ndarray]:
    """The convolution with channels first, and the columns that the next call needs."""
    if x.ndim != 3 or weight.ndim != 3 or weight.shape[:2] != (x.shape[1], 1) or not weight.shape[2]:
        raise OpError(f"weight of shape {weight.shape} does not fit an input of shape {x.shape}: want (channels, 1, k)")
    if activation not in ("none", "silu", "swish"):
        raise OpError(f"activation {activation!r} is none of none, silu, swish")
    batch, channels, length = x.shape
    if bias is not None and bias.shape != (channels,):
        raise OpError(f"bias must have shape {(channels,)}, but has {bias.shape}")
    taps = weight.shape[2]
    shape = (batch, channels, (taps - 1) * dilation)
    if past is None:
        past = np.zeros(shape, x.dtype)
    elif past.shape != shape:
        raise OpError(f"past_state must have shape {shape}, but has {past.shape}")
    columns = np.concatenate((past, x), axis=2)
    work = np.float32 if x.dtype.itemsize < 4 else x.dtype
    factors = weight[:, 0].astype(work)
    y = np.zeros(x.shape, work) if bias is None else np.broadcast_to(bias[:, None], x.shape).astype(work, "C")
    for j in range(taps):
        y += columns[:, :, j * dilation : j * dilation + length] * factors[:, j, None]
    if activation != "none":
        # The product is rounded before the activation, as in ONNX's function.
        y = y.astype(x.dtype).astype(work)
        y = y / (1 + np.exp(-y))
    state = np.empty(shape, x.dtype) if not grown or grown[0] is None else grown[0]
    state[...] = columns[:, :, length:]
    return y.astype(x.dtype, copy=False), state
