"""DynamicQuantizeLSTM: what ``quantize_dynamic`` makes of an LSTM."""

from __future__ import annotations

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.matmul import centred
from kvviz.ops.numeric import FLOAT64
from kvviz.ops.quant import dynamic_uint8
from kvviz.ops.registry import op
from kvviz.ops.rnn import Product, activations_of, lstm_layer


@op("DynamicQuantizeLSTM", domain="com.microsoft")
def dynamic_quantize_lstm(
    x,
    w,
    r,
    b=None,
    sequence_lens=None,
    initial_h=None,
    initial_c=None,
    p=None,
    w_scale=None,
    w_zero_point=None,
    r_scale=None,
    r_zero_point=None,
    *,
    activation_alpha=None,
    activation_beta=None,
    activations=None,
    clip=None,
    direction="forward",
    hidden_size=None,
    input_forget=0,
):
    """An LSTM with W (directions, in, 4 hidden) and R (directions, hidden, 4 hidden) in bytes.

    X is quantised to uint8 by its own range over all steps, H by the range of each step; products are made in whole
    numbers. One scale and zero point a direction, or one a column. onnxruntime does the same on one thread; on several
    it may quantise each part of the batch by itself.
    """
    functions = activations_of(("Sigmoid", "Tanh", "Tanh"), activations, activation_alpha, activation_beta, w.shape[0])
    from_input = [_quantised_product(*part) for part in zip(w, *_parameters(w, w_scale, w_zero_point, "W"))]
    from_past = [_quantised_product(*part) for part in zip(r, *_parameters(r, r_scale, r_zero_point, "R"))]
    return lstm_layer(
        x, from_input, from_past, r.shape[1], b, sequence_lens, (initial_h, initial_c), p, functions, clip, direction,
        input_forget,
    )  # fmt: skip


def _parameters(weights: np.ndarray, scale: np.ndarray | None, zero_point: np.ndarray | None, what: str) -> tuple:
    directions, _, columns = weights.shape
    found = []
    for parameter, name in ((scale, "scale"), (zero_point, "zero_point")):
        if parameter is None or parameter.shape not in ((directions,), (directions, columns)):
            shape = "is absent" if parameter is None else f"has shape {parameter.shape}"
            raise OpError(f"{what}_{name} {shape}: it must be ({directions},) or ({directions}, {columns})")
        found.append(parameter)
    return tuple(found)


def _quantised_product(matrix: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> Product:
    whole, scale = centred(matrix, zero_point, -1), scale.astype(FLOAT64)

    def product(x: np.ndarray) -> np.ndarray:
        numbers, step, zero = dynamic_uint8(x)
        result: np.ndarray = np.matmul(numbers.astype(FLOAT64) - zero, whole)
        return (result * (step.astype(FLOAT64) * scale)).astype(x.dtype)

    return product
