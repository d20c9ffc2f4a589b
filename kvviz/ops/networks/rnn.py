"""Recurrent layers: LSTM, GRU and RNN, over any direction, layout, activation and mix of lengths.

The products of the input with W are made for all steps at once, those with R step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.maths.activation import sigmoid
from kvviz.ops.numeric import rounded_once
from kvviz.ops.registry import op

Activation = Callable[[np.ndarray], np.ndarray]


# Name: (function of x, alpha, beta; default alpha; default beta). A default of None means that there is no such number.
_TABLE: dict[str, tuple[Callable, float | None, float | None]] = {
    "relu": (lambda x, a, b: np.maximum(x, 0), None, None),
    "tanh": (lambda x, a, b: np.tanh(x), None, None),
    "sigmoid": (lambda x, a, b: sigmoid(x), None, None),
    "softsign": (lambda x, a, b: x / (1 + np.abs(x)), None, None),
    "softplus": (lambda x, a, b: np.logaddexp(x, np.zeros((), x.dtype)), None, None),
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "leakyrelu": (lambda x, a, b: np.where(x < 0, a * x, x), 0.01, None),
    "thresholdedrelu": (lambda x, a, b: np.where(x > a, x, np.zeros((), x.dtype)), 1.0, None),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), 0.2, 0.5),
    "elu": (lambda x, a, b: np.where(x < 0, a * np.expm1(x), x), 1.0, None),
}


def activations_of(
    default: Sequence[str],
    names: Sequence[str] | None,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    directions: int,
) -> list[Activation]:
    """One function per name and direction. Alphas and betas are lists without gaps: each activation that needs one
    takes the next, as in onnxruntime."""
    if names is None or not len(names):
        names = tuple(default) * directions
    left_alpha, left_beta = list(alphas or ()), list(betas or ())
    functions = []
    for name in names:
        entry = _TABLE.get(name.lower())
        if entry is None:
            raise OpError(f"recurrent layers know no activation {name!r}")
        function, alpha, beta = entry
        if alpha is not None and left_alpha:
            alpha = left_alpha.pop(0)
        if beta is not None and left_beta:
            beta = left_beta.pop(0)
        functions.append(_bound(function, alpha, beta))
    return functions


def _bound(function, alpha, beta) -> Activation:
    return lambda x: function(x, alpha, beta)


def clipped(x: np.ndarray, limit: float | None) -> np.ndarray:
    return np.clip(x, -limit, limit) if limit else x


Product = Callable[[np.ndarray], np.ndarray]
Step = Callable[[np.ndarray, tuple[np.ndarray, ...]], tuple[np.ndarray, ...]]


@op("LSTM", since=7)
@rounded_once
def lstm(x, w, r, b=None, lengths=None, initial_h=None, initial_c=None, p=None, *, input_forget=0, **how):
    """Long short-term memory. Gates lie as input, output, forget, cell; peepholes as input, output, forget."""
    products = [_times_matrix(m.T) for m in w], [_times_matrix(m.T) for m in r]
    return lstm_layer(x, *products, r.shape[-1], b, lengths, (initial_h, initial_c), p, input_forget, how)


def _times_matrix(matrix: np.ndarray) -> Product:
    return lambda x: np.matmul(x, matrix)


def lstm_layer(x, from_input, from_past, hidden, b, lengths, initial, p, input_forget, how):
    """An LSTM whose products with W and R are made by one function a direction; ``how``: as of `_layer`."""

    def step_of(d: int, clip: Activation, f: Activation, g: Activation, h: Activation) -> Step:
        through = from_past[d]
        peep = None if p is None else p[d].reshape(3, hidden)

        def step(gates, state):
            past, cell = state
            gates = gates + through(past)
            if peep is None and not input_forget:
                made = f(clip(gates[..., : 3 * hidden]))
                fresh = g(clip(gates[..., 3 * hidden :]))
                cell = np.add(made[..., 2 * hidden :] * cell, np.multiply(made[..., :hidden], fresh, fresh), fresh)
                return made[..., hidden : 2 * hidden] * h(cell), cell
            gates_i, gates_o, gates_f, gates_c = (gates[..., k * hidden : (k + 1) * hidden] for k in range(4))
            if peep is not None:
                gates_i, gates_f = gates_i + peep[0] * cell, gates_f + peep[2] * cell
            i = f(clip(gates_i))
            forget = 1 - i if input_forget else f(clip(gates_f))
            cell = forget * cell + i * g(clip(gates_c))
            if peep is not None:
                gates_o = gates_o + peep[1] * cell
            return f(clip(gates_o)) * h(cell), cell

        return step

    bias = None if b is None else b[:, : 4 * hidden] + b[:, 4 * hidden :]
    return _layer(x, from_input, bias, lengths, initial, step_of, hidden, ("Sigmoid", "Tanh", "Tanh"), **how)


@op("GRU", since=7)
@rounded_once
def gru(x, w, r, b=None, lengths=None, initial_h=None, *, linear_before_reset=0, **how):
    """Gated recurrent unit. Gates lie as update, reset, hidden; ``linear_before_reset`` is cuDNN's variant."""
    hidden = r.shape[-1]

    def step_of(d: int, clip: Activation, f: Activation, g: Activation) -> Step:
        gate_weights, hidden_weights = r[d, : 2 * hidden].T, r[d, 2 * hidden :].T
        hidden_bias = 0 if b is None else b[d, 5 * hidden :]

        def step(gates, state):
            (past,) = state
            both = f(clip(gates[..., : 2 * hidden] + past @ gate_weights))
            z, reset = both[..., :hidden], both[..., hidden:]
            if linear_before_reset:
                through = reset * (past @ hidden_weights + hidden_bias)
            else:
                through = (reset * past) @ hidden_weights + hidden_bias
            fresh = g(clip(gates[..., 2 * hidden :] + through))
            return ((1 - z) * fresh + z * past,)

        return step

    bias = None
    if b is not None:
        # The recurrent bias of the hidden gate stays apart: the reset gate may act on it.
        bias = b[:, : 3 * hidden].copy()
        bias[:, : 2 * hidden] += b[:, 3 * hidden : 5 * hidden]
    from_input = [_times_matrix(m.T) for m in w]
    return _layer(x, from_input, bias, lengths, (initial_h,), step_of, hidden, ("Sigmoid", "Tanh"), **how)


@op("RNN", since=7)
@rounded_once
def rnn(x, w, r, b=None, lengths=None, initial_h=None, **how):
    hidden = r.shape[-1]

    def step_of(d: int, clip: Activation, f: Activation) -> Step:
        weights = r[d].T
        return lambda gates, state: (f(clip(gates + state[0] @ weights)),)

    bias = None if b is None else b[:, :hidden] + b[:, hidden:]
    from_input = [_times_matrix(m.T) for m in w]
    return _layer(x, from_input, bias, lengths, (initial_h,), step_of, hidden, ("Tanh",), **how)


def _layer(
    x,
    from_input,
    bias,
    lengths,
    initial,
    step_of,
    hidden,
    usual,
    *,
    activation_alpha=None,
    activation_beta=None,
    activations=None,
    clip=None,
    direction="forward",
    hidden_size=None,
    layout=0,
):
    """Run every direction; returns Y and the last state of each kind. Layout 0 has X (steps, batch, in), Y (steps,
    directions, batch, hidden) and states (directions, batch, hidden); layout 1 has the batch first in all of them."""
    functions, each = activations_of(usual, activations, activation_alpha, activation_beta, len(from_input)), len(usual)
    directions = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(direction)
    if directions is None or len(directions) != len(from_input):
        raise OpError(f"direction {direction!r} does not fit weights for {len(from_input)} directions")
    if layout:
        x = x.swapaxes(0, 1)
        initial = tuple(None if s is None else s.swapaxes(0, 1) for s in initial)
    steps, batch = x.shape[:2]
    if lengths is not None and (lengths.size != batch or (lengths < 0).any() or (lengths > steps).any()):
        raise OpError(f"sequence_lens {lengths.tolist()} must be {batch} numbers from 0 to {steps}, one a batch entry")
    ends = None if lengths is None or bool((lengths == steps).all()) else lengths.reshape(batch, 1)
    y = np.zeros((steps, len(directions), batch, hidden), x.dtype)
    last = [np.zeros((len(directions), batch, hidden), x.dtype) for _ in initial]
    # Steps behind the longest row are never read, and must not widen the range of a quantised input.
    used = steps if ends is None else int(ends.max(initial=0))
    for d, backwards in enumerate(directions):
        gates = from_input[d](x[:used])
        if bias is not None:
            gates += bias[d]
        if backwards:
            gates = _turned(gates, ends)
        state = tuple(np.zeros((batch, hidden), x.dtype) if s is None else s[d] for s in initial)
        step = step_of(d, partial(clipped, limit=clip), *functions[each * d : each * (d + 1)])
        made = y[:, d]
        for t in range(used):
            state = step(gates[t], state)
            if ends is None:
                made[t] = state[0]
                continue
            for final, s in zip(last, state):
                np.copyto(final[d], s, where=ends == t + 1)
            # Rows that have ended continue as 0, which a range over the whole batch includes.
            made[t] = np.where(ends > t, state[0], 0)
            state = (made[t], *state[1:])
        if backwards:
            made[:used] = _turned(made[:used], ends).copy()
        if ends is None:
            for final, s in zip(last, state):
                final[d] = s
    if layout:
        y = np.ascontiguousarray(y.transpose(2, 0, 1, 3))
        last = [np.ascontiguousarray(s.swapaxes(0, 1)) for s in last]
    return (y, *last)


def _turned(rows: np.ndarray, ends: np.ndarray | None) -> np.ndarray:
    if ends is None:
        return rows[::-1]
    order = np.arange(len(rows))[:, None]
    return rows[np.where(order < ends.T, ends.T - 1 - order, order), np.arange(rows.shape[1])]
