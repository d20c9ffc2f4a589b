"""Recurrent layers against onnxruntime."""

import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import check, close, run
from tests.ops.ort_oracle import ort_run

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS, BATCH, INPUT, HIDDEN = 5, 3, 4, 6


def numbers(*shape, seed=0):
    """Normal numbers, small enough not to saturate the gates."""
    return (0.5 * np.random.default_rng((seed, *shape)).standard_normal(shape)).astype(np.float32)


def layer(name, direction="forward", bias=True, lengths=None, state=False, peepholes=False, layout=0):
    """Inputs of a recurrent layer."""
    d, g = (2 if direction == "bidirectional" else 1), GATES[name]
    x = numbers(STEPS, BATCH, INPUT)
    initial = numbers(d, BATCH, HIDDEN, seed=4) if state else None
    cell = numbers(d, BATCH, HIDDEN, seed=5) if state else None
    if layout:
        x = np.ascontiguousarray(x.swapaxes(0, 1))
        initial = None if initial is None else np.ascontiguousarray(initial.swapaxes(0, 1))
        cell = None if cell is None else np.ascontiguousarray(cell.swapaxes(0, 1))
    inputs = [
        x,
        numbers(d, g * HIDDEN, INPUT, seed=1),
        numbers(d, g * HIDDEN, HIDDEN, seed=2),
        numbers(d, 2 * g * HIDDEN, seed=3) if bias else None,
        None if lengths is None else np.array(lengths, np.int32),
        initial,
    ]
    if name == "LSTM":
        inputs += [cell, numbers(d, 3 * HIDDEN, seed=6) if peepholes else None]
    return inputs


def compared(name, inputs, **attributes):
    """All outputs of the layer, checked."""
    return check(
        name, inputs, n_outputs=3 if name == "LSTM" else 2, hidden_size=HIDDEN, rtol=1e-4, atol=1e-5, **attributes
    )


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lengths", [None, [5, 5, 5], [3, 5, 1], [0, 4, 2]], ids=str)
@pytest.mark.parametrize("state", [False, True])
def test_layers_agree_with_onnxruntime(name, direction, lengths, state):
    compared(name, layer(name, direction, lengths=lengths, state=state), direction=direction)
    compared(name, layer(name, direction, bias=False, lengths=lengths, state=state), direction=direction)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_peepholes_agree_with_onnxruntime(direction):
    compared("LSTM", layer("LSTM", direction, peepholes=True, state=True), direction=direction)


def test_an_lstm_may_tie_its_forget_gate_to_its_input_gate():
    compared("LSTM", layer("LSTM", state=True), input_forget=1)


@pytest.mark.parametrize("reset", [0, 1])
@pytest.mark.parametrize("bias", [False, True])
def test_gru_may_reset_before_or_after_its_product(reset, bias):
    compared(
        "GRU",
        layer("GRU", "bidirectional", bias=bias, state=True),
        direction="bidirectional",
        linear_before_reset=reset,
    )


@pytest.mark.parametrize("name", GATES)
def test_gates_may_be_clipped(name):
    compared(name, layer(name, state=True), clip=0.3)


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_batch_first_is_the_same_layer_with_its_axes_swapped(name, direction):
    count = 3 if name == "LSTM" else 2
    attributes = {"direction": direction, "hidden_size": HIDDEN}
    wanted = ort_run(name, layer(name, direction, state=True), count, **attributes)
    got = run(name, layer(name, direction, state=True, layout=1), count, layout=1, **attributes)
    close(got[0], wanted[0].transpose(2, 0, 1, 3), 1e-4, 1e-5)
    for mine, theirs in zip(got[1:], wanted[1:]):
        close(mine, theirs.swapaxes(0, 1), 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("name", "activations", "alphas", "betas"),
    [
        ("LSTM", ["Sigmoid", "Softsign", "Relu"], None, None),
        ("LSTM", ["HardSigmoid", "ScaledTanh", "Tanh"], [0.3, 0.8], [0.4, 0.6]),
        ("GRU", ["HardSigmoid", "LeakyRelu"], [0.25, 0.1], [0.4]),
        ("GRU", ["Sigmoid", "Softplus"], None, None),
        ("RNN", ["Relu"], None, None),
        ("RNN", ["Affine"], [0.5], [0.1]),
        ("RNN", ["Elu"], [0.7], None),
        ("RNN", ["ThresholdedRelu"], [0.2], None),
    ],
)
def test_other_activations_agree_with_onnxruntime(name, activations, alphas, betas):
    attributes = {"activations": activations}
    attributes |= {} if alphas is None else {"activation_alpha": alphas}
    attributes |= {} if betas is None else {"activation_beta": betas}
    compared(name, layer(name, state=True), **attributes)


@pytest.mark.parametrize("name", GATES)
def test_half_precision_is_float32_rounded_once(name):
    narrow = [None if x is None else x.astype(np.float16) for x in layer(name)]
    count = 3 if name == "LSTM" else 2
    wanted = ort_run(name, [None if x is None else x.astype(np.float32) for x in narrow], count, hidden_size=HIDDEN)
    got = run(name, narrow, count, hidden_size=HIDDEN)
    for mine, theirs in zip(got, wanted):
        assert mine.dtype == np.float16
        close(mine, theirs, 2e-3, 1e-3)


def test_a_sequence_of_no_steps_keeps_its_initial_state():
    inputs = layer("LSTM", state=True)
    initial, cell = inputs[5], inputs[6]
    y, h, c = run("LSTM", [inputs[0][:0], *inputs[1:]], 3, hidden_size=HIDDEN)
    assert y.shape == (0, 1, BATCH, HIDDEN)
    np.testing.assert_array_equal(h, initial)
    np.testing.assert_array_equal(c, cell)


def test_what_does_not_fit_is_refused_in_a_sentence():
    with pytest.raises(OpError, match="directions"):
        run("GRU", layer("GRU"), 2, direction="bidirectional")
    with pytest.raises(OpError, match="no activation 'Sine'"):
        run("RNN", layer("RNN"), 2, activations=["Sine"])
