"""Functions of one element, activations, gates and softmax against onnxruntime."""

import math

import ml_dtypes
import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from kvviz.errors import OpError
from kvviz.ops.registry import known
from tests.ops.kernels import check, close, run, same, takes_over
from tests.ops.ort_oracle import one_node_model, ort_run

MICROSOFT = "com.microsoft"
FLOAT16 = np.dtype(np.float16)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SHAPES: list[tuple[int, ...]] = [(), (1,), (0, 3), (1, 1, 64), (2, 3, 5), (1000,)]
SPECIAL = np.array([0, -0.0, 1e-9, -1e-9, 88, -88, 500, -500, np.inf, -np.inf, np.nan], np.float32)


def numbers(shape, low=-6.0, high=6.0, dtype="f4", seed=0):
    """Evenly random numbers in a range."""
    return np.asarray(np.random.default_rng((seed, *shape)).uniform(low, high, shape)).astype(dtype)


UNARY = [
    ("Abs", -6, 6, "f4 f8 i4 i8 i1"),
    ("Neg", -6, 6, "f4 f8 i4 i8 i1"),
    ("Sqrt", 0, 9, "f4 f8"),
    ("Exp", -6, 6, "f4 f8"),
    ("Log", 0.1, 6, "f4 f8"),
    ("Reciprocal", 0.5, 6, "f4 f8"),
    ("Tanh", -6, 6, "f4 f8"),
    ("Floor", -6, 6, "f4 f8"),
    ("Ceil", -6, 6, "f4 f8"),
    ("Round", -6, 6, "f4 f8"),
    ("Sign", -6, 6, "f4 f8 i4 i8"),
    ("Sin", -6, 6, "f4 f8"),
    ("Cos", -6, 6, "f4 f8"),
    ("Tan", -1, 1, "f4"),
    ("Asin", -1, 1, "f4"),
    ("Acos", -1, 1, "f4"),
    ("Atan", -6, 6, "f4"),
    ("Sinh", -3, 3, "f4"),
    ("Cosh", -3, 3, "f4"),
    ("Asinh", -6, 6, "f4"),
    ("Acosh", 1.1, 6, "f4"),
    ("Atanh", -0.9, 0.9, "f4"),
    ("Erf", -6, 6, "f4"),
    ("BitwiseNot", -9, 9, "i4 i8 i1"),
]
ACTIVATIONS: list[tuple[str, str, int, dict]] = [
    ("Relu", "", 21, {}),
    ("Sigmoid", "", 21, {}),
    ("LeakyRelu", "", 21, {}),
    ("LeakyRelu", "", 21, {"alpha": 0.3}),
    ("LeakyRelu", "", 21, {"alpha": 2.0}),
    ("Elu", "", 21, {}),
    ("Elu", "", 21, {"alpha": 0.7}),
    ("Celu", "", 21, {"alpha": 0.7}),
    ("Selu", "", 21, {}),
    ("Selu", "", 21, {"alpha": 1.5, "gamma": 2.0}),
    ("ThresholdedRelu", "", 21, {}),
    ("ThresholdedRelu", "", 21, {"alpha": 0.4}),
    ("HardSigmoid", "", 21, {}),
    ("HardSigmoid", "", 21, {"alpha": 0.4, "beta": 0.3}),
    ("HardSwish", "", 21, {}),
    ("Softplus", "", 21, {}),
    ("Softsign", "", 21, {}),
    ("Shrink", "", 21, {}),
    ("Shrink", "", 21, {"bias": 0.2, "lambd": 1.0}),
    ("Mish", "", 21, {}),
    ("Gelu", "", 21, {}),
    ("Gelu", "", 21, {"approximate": "tanh"}),
    ("Swish", "", 24, {}),
    ("Swish", "", 24, {"alpha": 1.3}),
    ("Gelu", MICROSOFT, 21, {}),
    ("FastGelu", MICROSOFT, 21, {}),
    ("QuickGelu", MICROSOFT, 21, {}),
    ("QuickGelu", MICROSOFT, 21, {"alpha": 1.0}),
]


@pytest.mark.parametrize(("name", "low", "high", "dtypes"), UNARY)
def test_functions_of_one_element_agree_with_onnxruntime(name, low, high, dtypes):
    for dtype in dtypes.split():
        for shape in SHAPES:
            check(name, [numbers(shape, low, high, dtype)], opset=21, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(("name", "domain", "opset", "attributes"), ACTIVATIONS)
def test_activations_agree_with_onnxruntime(name, domain, opset, attributes):
    for shape in SHAPES[name == "FastGelu" :]:
        check(name, [numbers(shape)], domain=domain, opset=opset, rtol=1e-5, atol=2e-6, **attributes)


@pytest.mark.parametrize("name", ["Relu", "Sigmoid", "Tanh", "Erf", "Softplus", "Softsign", "Elu", "LeakyRelu"])
def test_infinities_and_tiny_numbers_agree_with_onnxruntime(name):
    finite = SPECIAL[:-1]
    wanted = ort_run(name, [finite])[0]
    close(run(name, [finite])[0], wanted, rtol=1e-5, atol=1e-7)
    assert np.isnan(run(name, [SPECIAL[-1:]])[0]).all()


@pytest.mark.parametrize(("name", "domain", "opset", "attributes"), ACTIVATIONS)
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
def test_activations_in_half_precision_are_float32_rounded_once(name, domain, opset, attributes, dtype):
    x = numbers((3, 7)).astype(dtype)
    wanted = ort_run(name, [x.astype(np.float32)], domain=domain, opset=opset, **attributes)[0].astype(dtype)
    (got,) = run(name, [x], domain=domain, opset=opset, **attributes)
    assert got.dtype == dtype
    close(got, wanted, rtol=0.01 if dtype == BFLOAT16 else 2e-3, atol=1e-6)


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


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_nan_and_infinity_are_found_as_in_onnxruntime(dtype):
    x = SPECIAL.astype(dtype)
    check("IsNaN", [x])
    for negative in (0, 1):
        for positive in (0, 1):
            check("IsInf", [x], detect_negative=negative, detect_positive=positive)


@pytest.mark.parametrize("slope", [(), (1,), (3,), (4, 1), (2, 4, 3)], ids=str)
def test_prelu_agrees_with_onnxruntime(slope):
    check("PRelu", [numbers((2, 4, 3)), numbers(slope, seed=1)])


def test_prelu_refuses_a_slope_that_would_widen_its_input():
    with pytest.raises(OpError, match="does not broadcast"):
        run("PRelu", [numbers((3,)), numbers((2, 3))])


def test_biased_gelus_agree_with_onnxruntime():
    x, bias = numbers((2, 3, 8)), numbers((8,), seed=1)
    check("BiasGelu", [x, bias], domain=MICROSOFT, atol=2e-6)
    check("FastGelu", [x, bias], domain=MICROSOFT, atol=2e-6)
    with pytest.raises(OpError, match="does not fit the last axis"):
        run("BiasGelu", [x, bias[:4]], domain=MICROSOFT)


def test_swiglu_is_swish_of_the_gate_times_the_value():
    gate, value = numbers((2, 3, 8)), numbers((2, 3, 8), seed=1)
    swished = ort_run("Swish", [gate], opset=24, alpha=1.2)[0]
    wanted = ort_run("Mul", [swished, value])[0]
    close(run("SwiGLU", [gate, value], opset=28, alpha=1.2)[0], wanted, 1e-5, 1e-6)
    with pytest.raises(OpError, match="one shape"):
        run("SwiGLU", [gate, value[:1]], opset=28)


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [9, 11, 13, 21])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1, -2])
def test_softmax_family_agrees_with_onnxruntime_in_both_meanings_of_axis(name, opset, axis):
    if opset < 11 and axis is not None and axis < 0:
        axis = axis + 3
    attributes = {} if axis is None else {"axis": axis}
    check(name, [numbers((2, 3, 5))], opset=opset, **attributes)


def test_softmax_of_empty_and_masked_rows_agrees_with_onnxruntime():
    check("Softmax", [numbers((0, 4))])
    check("Softmax", [np.array([[-np.inf, 1, 2], [-np.inf, -np.inf, -np.inf]], np.float32)])
    check("Softmax", [np.array([[1e30, 1e30, -1e30]], np.float32)])


def test_softmax_of_bfloat16_sums_in_float32():
    x = numbers((2, 300)).astype(BFLOAT16)
    close(run("Softmax", [x])[0], ort_run("Softmax", [x.astype(np.float32)])[0], rtol=0.01, atol=1e-6)


def test_softmax_of_float16_has_the_bits_of_the_reference_evaluator():
    # The node tests of ONNX were made with it, and a difference in the last bit of float16 is past their tolerance.
    x = numbers((2, 300)).astype(FLOAT16)
    wanted = ReferenceEvaluator(one_node_model("Softmax", [x])).run(None, {"x0": x})[0]
    assert same(run("Softmax", [x])[0], wanted)


IN_PLACE: list[tuple[str, str, int, dict]] = [
    *ACTIVATIONS,
    *((name, "", 21, {}) for name in ("Sqrt", "Exp", "Neg", "Sin", "Cos", "Tanh", "Erf", "Reciprocal", "Floor")),
    ("Softmax", "", 21, {}),
    ("Softmax", "", 21, {"axis": 0}),
    ("Softmax", "", 11, {}),
    ("LogSoftmax", "", 21, {}),
    ("LogSoftmax", "", 11, {}),
    ("Hardmax", "", 21, {}),
]


@pytest.mark.parametrize(("name", "domain", "opset", "attributes"), IN_PLACE)
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
def test_the_input_may_be_overwritten_with_the_same_bits(name, domain, opset, attributes, dtype):
    for size in (1, 7, 64, 1001, 9000):
        x = numbers((2, size), 0.1, 4, dtype)
        (fresh,) = run(name, [x], domain=domain, opset=opset, **attributes)
        assert same(takes_over(name, [x], 0, domain=domain, opset=opset, **attributes)[0], fresh)


@pytest.mark.parametrize(
    ("name", "domain", "opset", "second", "position"),
    [
        ("BiasGelu", MICROSOFT, 21, (8,), 0),
        ("FastGelu", MICROSOFT, 21, (8,), 0),
        ("PRelu", "", 21, (8,), 0),
        ("SwiGLU", "", 28, (2, 3, 8), 0),
        ("SwiGLU", "", 28, (2, 3, 8), 1),
    ],
)
def test_gates_and_biased_activations_may_overwrite_with_the_same_bits(name, domain, opset, second, position):
    args = [numbers((2, 3, 8)), numbers(second, seed=1)]
    (fresh,) = run(name, args, domain=domain, opset=opset)
    assert same(takes_over(name, args, position, domain=domain, opset=opset)[0], fresh)


@pytest.mark.parametrize("name", ["Relu", "Sigmoid", "Exp", "Softmax", "LeakyRelu", "Gelu", "Erf"])
def test_a_transposed_input_gives_an_output_in_c_order(name):
    check(name, [numbers((5, 4)).T], atol=2e-6)


def test_every_activation_offers_its_input_to_be_overwritten():
    offered = {(spec.domain, spec.op_type) for spec in known() if 0 in spec.overwrites}
    assert {(domain, name) for name, domain, _, _ in ACTIVATIONS} <= offered
    assert {("", name) for name, *_ in UNARY} <= offered
