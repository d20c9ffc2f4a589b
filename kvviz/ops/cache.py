"""Operators that carry a cache or a state of fixed size: TensorScatter, CausalConvWithState, LinearAttention."""

from __future__ import annotations

import math

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.arguments import same_batch
from kvviz.ops.registry import op
from kvviz.ops.scatter import always_fits


def _update_cost(args: list, outs: object, in_place: bool, attributes: dict) -> tuple[int, int]:
    cache, update = args[0].nbytes, args[1].nbytes
    return (update, 0) if in_place else (cache + update, cache)


@op("TensorScatter", since=24, overwrites=(0,), fits=always_fits, cost=_update_cost)
def tensor_scatter(past, update, write_indices=None, *, axis=-2, mode="linear", out=None):
    """Write ``update`` into a cache of fixed capacity, from one row a batch entry on (TensorScatter-24).

    Parameters
    ----------
    past : ndarray
        The cache, ``(batch, …, capacity, …)`` with the capacity on ``axis``.
    update : ndarray
        The same shape but for ``axis``, where it is not longer.
    write_indices : ndarray of int64, optional
        ``(batch,)``: the first row written; 0 when absent.
    mode : str
        ``"linear"`` refuses to run past the end; ``"circular"`` takes row numbers modulo the capacity.
    out : ndarray, optional
        The cache itself, when it may be overwritten.

    Raises
    ------
    OpError
        Nothing is written then. onnxruntime 1.31 refuses the same: axis 0, shapes that differ off the axis, an update
        longer than the cache, one index too many or too few, a negative index, and in linear mode an overrun.
    """
    rank, place = past.ndim, axis + past.ndim if axis < 0 else axis
    if not 0 < place < rank:
        raise OpError(f"axis {axis} must name a dimension after the batch of a cache of shape {past.shape}")
    shape, new = past.shape, update.shape
    if len(new) != rank or new[:place] != shape[:place] or new[place + 1 :] != shape[place + 1 :]:
        raise OpError(f"update of shape {new} and cache of shape {shape} differ off axis {place}")
    capacity, rows = shape[place], new[place]
    if rows > capacity:
        raise OpError(f"an update of {rows} rows is longer than the cache's capacity of {capacity}")
    starts = [0] * shape[0] if write_indices is None else same_batch(write_indices, shape[0], "write_indices")
    for b, start in enumerate(starts):
        if start < 0:
            raise OpError(f"write index {start} of batch entry {b} is negative")
        if mode == "linear" and start + rows > capacity:
            raise OpError(
                f"batch entry {b} would write rows {start} to {start + rows - 1} of a cache with capacity {capacity}"
            )
    if mode == "circular":
        starts = [start % capacity for start in starts] if capacity else starts
    elif mode != "linear":
        raise OpError(f"mode {mode!r} is neither linear nor circular")
    y = past.copy() if out is None else out
    if len(set(starts)) == 1:
        _write_rows(y, update, starts[0], place)
    else:
        for b, start in enumerate(starts):
            _write_rows(y[b], update[b], start, place - 1)
    return y


def _write_rows(cache: np.ndarray, update: np.ndarray, start: int, axis: int) -> None:
    """Write along an axis from ``start`` on, and what does not fit from row 0 on."""
    if axis:
        cache, update = cache.swapaxes(0, axis), update.swapaxes(0, axis)
    capacity, rows = len(cache), len(update)
    fitting = min(rows, capacity - start)
    if fitting == rows:
        cache[start : start + rows] = update
    else:
        cache[start:] = update[:fitting]
        cache[: rows - fitting] = update[fitting:]


@op("CausalConvWithState", since=27)
def causal_conv_with_state(x, weight, bias=None, past_state=None, *, activation="none"):
    """Depthwise convolution over past and present columns (CausalConvWithState-27).

    Parameters
    ----------
    x : ndarray
        ``(batch, channels, length)``.
    weight : ndarray
        ``(channels, 1, k)``.
    bias : ndarray, optional
        ``(channels,)``.
    past_state : ndarray, optional
        The ``k - 1`` columns before ``x``, ``(batch, channels, k - 1)``; zeros when absent.
    activation : str
        ``"none"``, ``"silu"`` or ``"swish"`` (the same function).

    Returns
    -------
    tuple of ndarray
        The output, shaped as ``x``, and the last ``k - 1`` columns seen.
    """
    if x.ndim != 3 or weight.ndim != 3 or weight.shape[:2] != (x.shape[1], 1):
        raise OpError(f"weight of shape {weight.shape} does not fit an input of shape {x.shape}: want (channels, 1, k)")
    if activation not in ("none", "silu", "swish"):
        raise OpError(f"activation {activation!r} is none of none, silu, swish")
    batch, channels, length = x.shape
    k = weight.shape[2]
    state = (batch, channels, k - 1)
    if past_state is None:
        past_state = np.zeros(state, x.dtype)
    elif past_state.shape != state:
        raise OpError(f"past_state must have shape {state}, but has {past_state.shape}")
    columns = np.concatenate((past_state, x), axis=2)
    work = np.float32 if x.dtype.itemsize < 4 else x.dtype
    taps = weight[:, 0].astype(work)
    y = np.zeros(x.shape, work) if bias is None else np.broadcast_to(bias[:, None], x.shape).astype(work, "C")
    for j in range(k):
        y += columns[:, :, j : j + length] * taps[:, j, None]
    if activation != "none":
        y = y.astype(x.dtype).astype(work)
        y = y / (1 + np.exp(-y))
    return y.astype(x.dtype, copy=False), columns[:, :, length:].copy()


_GATED, _DELTA = ("gated", "gated_delta"), ("delta", "gated_delta")


@op("LinearAttention", since=27)
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
):
    """Recurrent attention whose cache is one matrix a head, overwritten at every token (LinearAttention-27).

    Per token: ``S ← exp(g)·S``, then ``S ← S + k ⊗ β(v − Sᵀk)`` (or ``k ⊗ v``), then ``o = scale · qᵀS``.
    The recurrence is computed in float32 at least; ``chunk_size`` is a hint for parallel hardware.

    Parameters
    ----------
    query, key, value : ndarray
        ``(batch, tokens, heads·size)``.
    past_state : ndarray, optional
        ``(batch, kv_heads, key size, value size)``.
    decay : ndarray, optional
        ``g``, ``(batch, tokens, kv_heads)`` or ``(batch, tokens, kv_heads·key size)``; for the gated rules.
    beta : ndarray, optional
        ``(batch, tokens, kv_heads)`` or ``(batch, tokens, 1)``; for the delta rules.

    Returns
    -------
    tuple of ndarray
        The output ``(batch, tokens, q_heads·value size)`` and the new state.
    """
    if update_rule not in ("linear", *_GATED, "delta"):
        raise OpError(f"update_rule {update_rule!r} is none of linear, gated, delta, gated_delta")
    if (decay is not None) != (update_rule in _GATED):
        raise OpError(f"update_rule {update_rule!r} {'needs' if decay is None else 'takes no'} decay")
    if (beta is not None) != (update_rule in _DELTA):
        raise OpError(f"update_rule {update_rule!r} {'needs' if beta is None else 'takes no'} beta")
    if kv_num_heads <= 0 or q_num_heads <= 0 or q_num_heads % kv_num_heads:
        raise OpError(f"{q_num_heads} query heads are not a multiple of {kv_num_heads} key heads")
    work = np.float64 if query.dtype == np.float64 else np.float32
    q, k, v = (
        _heads(x, n, name, work)
        for x, n, name in ((query, q_num_heads, "query"), (key, kv_num_heads, "key"), (value, kv_num_heads, "value"))
    )
    batch, tokens, heads, size = k.shape
    shape = (batch, heads, size, v.shape[3])
    if past_state is not None and past_state.shape != shape:
        raise OpError(f"past_state must have shape {shape}, but has {past_state.shape}")
    state = np.zeros(shape, work) if past_state is None else past_state.astype(work)
    q = q.reshape(batch, tokens, heads, q_num_heads // heads, size)
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
    result = output.reshape(batch, tokens, -1).astype(query.dtype, copy=False)
    return result, state.astype(query.dtype if past_state is None else past_state.dtype, copy=False)


def _heads(x: np.ndarray, heads: int, name: str, dtype: type) -> np.ndarray:
    """Unpack (batch, tokens, heads·size) to (batch, tokens, heads, size)."""
    if x.ndim != 3 or x.shape[2] % heads:
        raise OpError(f"{name} of shape {x.shape} does not hold {heads} heads in three dimensions")
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).astype(dtype)
