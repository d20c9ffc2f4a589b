"""Recurrent layers: LSTM, GRU and RNN, over any direction, layout, activation and mix of lengths.

The products of the input with W are made for all steps at once, those with R step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.maths.activation import sigmoid
from kvviz.ops.numeric import rounded_once
from kvviz.ops.registry import op

Activation = Callable[[np.ndarray], np.ndarray]


# Name: (function of x and of these numbers; default alpha; default beta). A default of None: there is no such number.
_TABLE: dict[str, tuple[Callable, float | None, float | None]] = {
    "relu": (lambda x: np.maximum(x, 0), None, None),
    "tanh": (np.tanh, None, None),
    "sigmoid": (sigmoid, None, None),
    "softsign": (lambda x: x / (1 + np.abs(x)), None, None),
    "softplus": (lambda x: np.logaddexp(x, np.zeros((), x.dtype)), None, None),
    "affine": (lambda x, a, b: a * x + b, 1.0, 0.0),
    "leakyrelu": (lambda x, a: np.where(x < 0, a * x, x), 0.01, None),
    "thresholdedrelu": (lambda x, a: np.where(x > a, x, np.zeros((), x.dtype)), 1.0, None),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), 0.2, 0.5),
    "elu": (lambda x, a: np.where(x < 0, a * np.expm1(x), x), 1.0, None),
}


def activations_of(
    default: Sequence[str],
    names: Sequence[str] | None,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    directions: int,
) -> list[Activation]:
    """One function of all directions for each default name. Alphas and betas are lists without gaps: each activation
    that needs one takes the next, as in onnxruntime."""
    if names is None or not len(names):
        names = tuple(default) * directions
    # The schema of RNN has two default names, also for one direction.
    names = names[: len(default) * directions]
    if len(names) < len(default) * directions:
        raise OpError(f"{len(names)} activations do not fit {directions} directions of {len(default)} each")
    left_alpha, left_beta = list(alphas or ()), list(betas or ())
    entries = []
    for name in names:
        entry = _TABLE.get(name.lower())
        if entry is None:
            raise OpError(f"recurrent layers know no activation {name!r}")
        function, alpha, beta = entry
        if alpha is not None and left_alpha:
            alpha = left_alpha.pop(0)
        if beta is not None and left_beta:
            beta = left_beta.pop(0)
        entries.append((function, *(number for number in (alpha, beta) if number is not None)))
    return [_of_directions(entries[kind :: len(default)]) for kind in range(len(default))]


def _of_directions(entries: Sequence[tuple[Any, ...]]) -> Activation:
    """A function of all directions from one, with its numbers, for each."""
    function, *numbers = entries[0]
    if len(set(entries)) > 1:
        return lambda x: np.stack([each(one, *given) for one, (each, *given) in zip(x, entries, strict=True)])
    return (lambda x: function(x, *numbers)) if numbers else function


def _clipped(function: Activation, limit: float) -> Activation:
    return lambda x: function(np.clip(x, -limit, limit))


Product = Callable[[np.ndarray], np.ndarray]
Step = Callable[[np.ndarray, tuple[np.ndarray, ...]], tuple[np.ndarray, ...]]


@op("LSTM", since=7)
@rounded_once
def lstm(x, w, r, b=None, lengths=None, initial_h=None, initial_c=None, p=None, *, input_forget=0, **how):
    """Long short-term memory. Gates lie as input, output, forget, cell; peepholes as input, output, forget."""
    from_past = _times_matrix(r.swapaxes(1, 2))
    return lstm_layer(x, _each(w), from_past, r.shape[-1], b, lengths, (initial_h, initial_c), p, input_forget, how)


def _times_matrix(matrix: np.ndarray) -> Product:
    return lambda x: np.matmul(x, matrix)


def _each(w: np.ndarray) -> list[Product]:
    return [_times_matrix(matrix.T) for matrix in w]


def lstm_layer(x, from_input, from_past, hidden, b, lengths, initial, p, input_forget, how):
    """An LSTM. ``from_input``: for each direction the product with W; ``from_past``: that with R, of all directions;
    ``how``: as of `_layer`."""
    peep = None if p is None else p.reshape(len(p), 1, 3, hidden).transpose(2, 0, 1, 3)

    def step_of(f: Activation, g: Activation, h: Activation) -> Step:
        def step(gates, state):
            past, cell = state
            gates = gates + from_past(past)
            if peep is None and not input_forget:
                made, fresh = f(gates[..., : 3 * hidden]), g(gates[..., 3 * hidden :])
                cell = np.add(made[..., 2 * hidden :] * cell, np.multiply(made[..., :hidden], fresh, fresh), fresh)
                return made[..., hidden : 2 * hidden] * h(cell), cell
            gates_i, gates_o, gates_f, gates_c = (gates[..., k * hidden : (k + 1) * hidden] for k in range(4))
            if peep is not None:
                gates_i, gates_f = gates_i + peep[0] * cell, gates_f + peep[2] * cell
            i = f(gates_i)
            forget = 1 - i if input_forget else f(gates_f)
            cell = forget * cell + i * g(gates_c)
            if peep is not None:
                gates_o = gates_o + peep[1] * cell
            return f(gates_o) * h(cell), cell

        return step

    bias = None if b is None else b[:, : 4 * hidden] + b[:, 4 * hidden :]
    return _layer(x, from_input, bias, lengths, initial, step_of, hidden, ("Sigmoid", "Tanh", "Tanh"), **how)


@op("GRU", since=7)
@rounded_once
def gru(x, w, r, b=None, lengths=None, initial_h=None, *, linear_before_reset=0, **how):
    """Gated recurrent unit. Gates lie as update, reset, hidden; ``linear_before_reset`` is cuDNN's variant."""
    hidden = r.shape[-1]
    weights = r.swapaxes(1, 2)
    gate_weights, hidden_weights = weights[..., : 2 * hidden], weights[..., 2 * hidden :]
    hidden_bias = 0 if b is None else b[:, None, 5 * hidden :]

    def step_of(f: Activation, g: Activation) -> Step:
        def step(gates, state):
            (past,) = state
            if linear_before_reset:
                product = past @ weights
                both, through = product[..., : 2 * hidden], product[..., 2 * hidden :] + hidden_bias
            else:
                both, through = past @ gate_weights, past
            both = f(gates[..., : 2 * hidden] + both)
            z, reset = both[..., :hidden], both[..., hidden:]
            through = reset * through
            if not linear_before_reset:
                through = through @ hidden_weights + hidden_bias
            fresh = g(gates[..., 2 * hidden :] + through)
            return ((1 - z) * fresh + z * past,)

        return step

    bias = None
    if b is not None:
        # The recurrent bias of the hidden gate stays apart: the reset gate may act on it.
        bias = b[:, : 3 * hidden].copy()
        bias[:, : 2 * hidden] += b[:, 3 * hidden : 5 * hidden]
    return _layer(x, _each(w), bias, lengths, (initial_h,), step_of, hidden, ("Sigmoid", "Tanh"), **how)


@op("RNN", since=7)
@rounded_once
def rnn(x, w, r, b=None, lengths=None, initial_h=None, **how):
    hidden = r.shape[-1]
    weights = r.swapaxes(1, 2)

    def step_of(f: Activation) -> Step:
        return lambda gates, state: (f(gates + state[0] @ weights),)

    bias = None if b is None else b[:, :hidden] + b[:, hidden:]
    return _layer(x, _each(w), bias, lengths, (initial_h,), step_of, hidden, ("Tanh",), **how)


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
    """Run all directions, beside one another; returns Y and the last state of each kind. Layout 0 has X (steps, batch,
    in), Y (steps, directions, batch, hidden) and states (directions, batch, hidden); layout 1 has the batch first in
    all of them. A step gets gates and states of all directions, and the functions what ``clip`` leaves of the gates."""
    count = len(from_input)
    directions = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(direction)
    if directions is None or len(directions) != count:
        raise OpError(f"direction {direction!r} does not fit weights for {count} directions")
    functions = activations_of(usual, activations, activation_alpha, activation_beta, count)
    if clip:
        functions[:2] = [_clipped(function, clip) for function in functions[:2]]
    step = step_of(*functions)
    if layout:
        x = x.swapaxes(0, 1)
        initial = tuple(None if s is None else s.swapaxes(0, 1) for s in initial)
    steps, batch = x.shape[:2]
    if lengths is not None and (lengths.size != batch or (lengths < 0).any() or (lengths > steps).any()):
        raise OpError(f"sequence_lens {lengths.tolist()} must be {batch} numbers from 0 to {steps}, one a batch entry")
    ends = None if lengths is None or bool((lengths == steps).all()) else lengths.reshape(batch, 1)
    y = np.zeros((steps, count, batch, hidden), x.dtype)
    last = [np.zeros((count, batch, hidden), x.dtype) for _ in initial]
    # Steps behind the longest row are never read, and must not widen the range of a quantised input.
    used = steps if ends is None else int(ends.max(initial=0))
    parts = [product(x[:used]) for product in from_input]
    for d, backwards in enumerate(directions):
        if bias is not None:
            parts[d] += bias[d]
        if backwards:
            parts[d] = _turned(parts[d], ends)
    gates = np.stack(parts, 1) if count > 1 else parts[0][:, None]
    state = tuple(np.zeros((count, batch, hidden), x.dtype) if s is None else s for s in initial)
    for t in range(used):
        state = step(gates[t], state)
        if ends is None:
            y[t] = state[0]
            continue
        for final, s in zip(last, state):
            np.copyto(final, s, where=ends == t + 1)
        # Rows that have ended continue as 0, which a range over the whole batch includes.
        y[t] = np.where(ends > t, state[0], 0)
        state = (y[t], *state[1:])
    for d, backwards in enumerate(directions):
        if backwards:
            y[:used, d] = _turned(y[:used, d], ends).copy()
    if ends is None:
        for final, s in zip(last, state):
            final[...] = s
    if layout:
        y = np.ascontiguousarray(y.transpose(2, 0, 1, 3))
        last = [np.ascontiguousarray(s.swapaxes(0, 1)) for s in last]
    return (y, *last)


def _turned(rows: np.ndarray, ends: np.ndarray | None) -> np.ndarray:
    if ends is None:
        return rows[::-1]
    order = np.arange(len(rows))[:, None]
    return rows[np.where(order < ends.T, ends.T - 1 - order, order), np.arange(rows.shape[1])]
