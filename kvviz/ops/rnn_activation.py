"""The activations that recurrent layers may name, with their alpha and beta."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kvviz.errors import OpError

Activation = Callable[[np.ndarray], np.ndarray]

# Name: (function of x, alpha, beta; default alpha; default beta). A default of None means that it takes no such number.
_TABLE: dict[str, tuple[Callable, float | None, float | None]] = {
    "relu": (lambda x, a, b: np.maximum(x, 0), None, None),
    "tanh": (lambda x, a, b: np.tanh(x), None, None),
    "sigmoid": (lambda x, a, b: 1 / (1 + np.exp(-x)), None, None),
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
    """One function for each name and direction. Alphas and betas are lists without gaps: each activation that takes one
    uses up the next, as in onnxruntime."""
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
    """Within [-limit, limit]; no or zero limit leaves all as it is."""
    return np.clip(x, -limit, limit) if limit else x
