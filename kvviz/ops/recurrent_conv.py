"""CausalConvWithState: a convolution that carries its last columns from call to call, in ONNX and in com.microsoft."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.recurrent import STATE, refuse_window
from kvviz.ops.registry import op

_MS = "com.microsoft"


def _conv_cost(args: list, outs: Any, in_place: bool, attributes: dict) -> tuple[int, int]:
    """Columns that stay in the state are moved, whether to a new state or within the old one."""
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


@op("CausalConvWithState", domain=_MS, grows=STATE, cost=_conv_cost)
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
        # The product is rounded before the activation, as in the function that ONNX defines.
        y = y.astype(x.dtype).astype(work)
        y = y / (1 + np.exp(-y))
    state = np.empty(shape, x.dtype) if not grown or grown[0] is None else grown[0]
    state[...] = columns[:, :, length:]
    return y.astype(x.dtype, copy=False), state
