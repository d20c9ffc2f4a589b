"""Functions of one element, activations, gates and softmax against onnxruntime."""

import math

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from tests.ops.kernels import check, close, run, same
from tests.ops.ort_oracle import one_node_model, ort_run

FLOAT16 = np.dtype(np.float16)


def numbers(shape, low=-6.0, high=6.0, dtype="f4", seed=0):
    """Evenly random numbers in a range."""
    return np.asarray(np.random.default_rng((seed, *shape)).uniform(low, high, shape)).astype(dtype)


def test_erf_of_float32_is_exact_to_its_last_bits():
    x = np.concatenate([np.linspace(-6, 6, 40001), 10.0 ** np.linspace(-30, 0, 300)]).astype(np.float32)
    wanted = np.array([math.erf(v) for v in x.tolist()])
    got = run("Erf", [x])[0].astype(np.float64)
    assert np.abs(got - wanted).max() < 1e-7
    np.testing.assert_allclose(got, wanted, rtol=1.5e-7, atol=0)


def test_erf_of_float64_and_of_integers_is_exact():
    x = np.linspace(-3, 3, 50)
    np.testing.assert_allclose(run("Erf", [x])[0], [math.erf(v) for v in x], rtol=1e-15)
    assert run("Erf", [np.array([-9, 0, 9])])[0].tolist() == [-1, 0, 1]


@pytest.mark.parametrize(("shape", "slopes"), [((), (1,)), ((3,), (1, 3)), ((2, 3), (1, 1, 3))])
def test_a_slope_of_more_axes_of_length_1_gives_the_shape_of_the_input(shape, slopes):
    x, slope = -numbers(shape, 0.5), numbers(slopes, 0.1, seed=1)
    (y,) = run("PRelu", [x, slope])
    assert y.shape == shape
    # onnxruntime's result has the axes of the slope, against the text of the operator.
    close(y, ort_run("PRelu", [x, slope])[0].reshape(shape), 1e-6, 0)


def test_swiglu_is_swish_of_the_gate_times_the_value():
    gate, value = numbers((2, 3, 8)), numbers((2, 3, 8), seed=1)
    swished = ort_run("Swish", [gate], opset=24, alpha=1.2)[0]
    wanted = ort_run("Mul", [swished, value])[0]
    close(run("SwiGLU", [gate, value], opset=28, alpha=1.2)[0], wanted, 1e-5, 1e-6)


def test_softmax_of_empty_and_masked_rows_agrees_with_onnxruntime():
    check("Softmax", [numbers((0, 4))])
    check("Softmax", [np.array([[-np.inf, 1, 2], [-np.inf, -np.inf, -np.inf]], np.float32)])
    check("Softmax", [np.array([[1e30, 1e30, -1e30]], np.float32)])


def test_softmax_of_float16_has_the_bits_of_the_reference_evaluator():
    # The node tests of ONNX were made with it, and a difference in the last bit of float16 is past their tolerance.
    x = numbers((2, 300)).astype(FLOAT16)
    wanted = ReferenceEvaluator(one_node_model("Softmax", [x])).run(None, {"x0": x})[0]
    assert same(run("Softmax", [x])[0], wanted)
