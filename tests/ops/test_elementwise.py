"""Functions of elements, rows and axes: what random calls (see test_random_maths.py) do not reach."""

import math
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from kvviz.errors import OpError
from tests.ops.kernels import check, close, rand, run, run_kernel, same, spec_of
from tests.ops.ort_oracle import one_node_model, ort_run

MS = "com.microsoft"
TEXTS = [np.array(["a", "b", "c"], object), np.array(["a", "x", "c"], object)]
ROWS = [[1000.0, 999, -1000], [-1000, -1001, -1002], [np.inf, 1, 2], [-np.inf, -np.inf], 3]
CASES: list[tuple[str, list, dict[str, Any]]] = [
    # An exponent of one element may still add an axis.
    ("Pow", [np.float32(3), np.full((1, 1), 2, np.float32)], {}),
    ("Equal", TEXTS, {}),
    ("Where", [np.array([True, False, True]), *TEXTS], {}),
    ("Clip", [rand(3, 4) * 3], {"opset": 7, "min": -1.5, "max": 2.5}),
    ("Clip", [rand(3, 4) * 3], {"opset": 7, "max": 0.5}),
    ("Softmax", [rand(0, 4)], {}),
    ("Softmax", [np.array([[-np.inf, 1, 2], [-np.inf, -np.inf, -np.inf]], np.float32)], {}),
    ("Softmax", [np.array([[1e30, 1e30, -1e30]], np.float32)], {}),
    # A mean of integers is cut towards zero.
    ("ReduceMean", [np.array([[-3, -4], [3, 4]], np.int32), np.array([1])], {"opset": 18, "keepdims": 0}),
    *(("ReduceLogSumExp", [np.array(row, np.float32)], {"opset": 18}) for row in ROWS),
    ("ArgMax", [np.array([1, 5, 2], np.float32)], {"keepdims": 0}),
    ("TopK", [rand(3, 8), np.array([3])], {"n_outputs": 2, "opset": 10}),
    ("TopK", [rand(3, 8)], {"n_outputs": 2, "opset": 9, "k": 3, "axis": 0}),
    ("SimplifiedLayerNormalization", [rand(2, 3, 8), rand(8)], {"n_outputs": 2, "epsilon": 1e-5, "stash_type": 1}),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), CASES)
def test_the_kernel_agrees_with_onnxruntime(op_type: str, inputs: list, attributes: dict) -> None:
    check(op_type, inputs, **attributes)


def test_erf_is_exact_to_its_last_bits() -> None:
    x = np.concatenate([np.linspace(-6, 6, 40001), 10.0 ** np.linspace(-30, 0, 300)]).astype(np.float32)
    wanted = np.array([math.erf(v) for v in x.tolist()])
    got = run("Erf", [x])[0].astype(np.float64)
    assert np.abs(got - wanted).max() < 1e-7
    np.testing.assert_allclose(got, wanted, rtol=1.5e-7, atol=0)
    wide = np.linspace(-3, 3, 50)
    np.testing.assert_allclose(run("Erf", [wide])[0], [math.erf(v) for v in wide], rtol=1e-15)
    assert run("Erf", [np.array([-9, 0, 9])])[0].tolist() == [-1, 0, 1]


@pytest.mark.parametrize(("shape", "slopes"), [((), (1,)), ((3,), (1, 3)), ((2, 3), (1, 1, 3))])
def test_a_slope_of_more_axes_of_length_1_gives_the_shape_of_the_input(shape: tuple, slopes: tuple) -> None:
    x, slope = -np.abs(rand(*shape)), rand(*slopes, seed=1)
    # onnxruntime's result has the axes of the slope, against the text of the operator.
    close(run("PRelu", [x, slope])[0], ort_run("PRelu", [x, slope])[0].reshape(shape), 1e-6, 0)


def test_what_onnxruntime_lacks_is_what_it_computes_of_the_parts() -> None:
    gate, value = rand(2, 3, 8), rand(2, 3, 8, seed=1)
    wanted = ort_run("Mul", [ort_run("Swish", [gate], opset=24, alpha=1.2)[0], value])[0]
    close(run("SwiGLU", [gate, value], opset=28, alpha=1.2)[0], wanted, 1e-5, 1e-6)
    # Statistics for each position, of opset 7.
    x, parameters = rand(2, 3, 4), [rand(3, 4, seed=s) for s in (1, 2, 3)] + [np.abs(rand(3, 4, seed=4)) + 0.1]
    flat = [x.reshape(2, 12), *(p.reshape(12) for p in parameters)]
    wanted = ort_run("BatchNormalization", flat, opset=9)[0].reshape(x.shape)
    close(run("BatchNormalization", [x, *parameters], opset=7, spatial=0)[0], wanted, 1e-5, 1e-6)
    scaled = [x, rand(4)]
    (default,) = run("SimplifiedLayerNormalization", scaled)
    assert same(run("SimplifiedLayerNormalization", scaled, domain=MS)[0], default)
    assert same(run("RMSNormalization", scaled, opset=23)[0], default)


def test_softmax_of_float16_has_the_bits_of_the_reference_evaluator() -> None:
    # The node tests of ONNX were made with it, and a difference in the last bit of float16 is past their tolerance.
    x = (rand(2, 300) * 3).astype(np.float16)
    wanted = ReferenceEvaluator(one_node_model("Softmax", [x])).run(None, {"x0": x})[0]
    assert same(run("Softmax", [x])[0], wanted)


def test_topk_of_a_long_row_with_nan_keeps_its_promise_of_k_results() -> None:
    x = rand(3000)
    x[[5, 17]] = np.nan
    values, indices = run("TopK", [x, np.array([4])], n_outputs=2)
    assert indices[:2].tolist() == [5, 17]
    np.testing.assert_array_equal(values[2:], ort_run("TopK", [np.nan_to_num(x, nan=-9), np.array([2])], 2)[0])


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul"])
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "u4", "u8"])
def test_integers_wrap_around_in_their_own_width(name: str, dtype: str) -> None:
    a, b = np.random.default_rng(1).integers(1, 120, (2, 50)).astype(dtype)
    wanted = ort_run(name, [a.astype(np.int64), b.astype(np.int64)])[0].astype(dtype)
    np.testing.assert_array_equal(run(name, [a, b])[0], wanted)


def test_an_operator_says_whether_an_input_has_room_for_the_output() -> None:
    x, condition = rand(2, 3), [np.ones(shape, bool) for shape in ((2, 3), (3,), (1, 2, 3), ())]
    rooms: list[tuple[str, int, str, list, int, str]] = [
        ("Where", 21, "", [condition[0], rand(3), rand()], 1, "shape"),
        ("Where", 21, "", [condition[1], x, rand()], 1, ""),
        ("Where", 21, "", [condition[0], rand(2, 1), x], 2, ""),
        ("Where", 21, "", [condition[2], x, rand(3)], 1, "shape"),
        ("Where", 21, "", [condition[3], rand(1), rand(0)], 2, ""),
        ("Where", 21, "", [condition[3], rand(1), rand(0)], 1, "shape"),
        # An output in the dtype of the scale does not fit another input.
        ("RMSNormalization", 23, "", [x.astype(np.float16), rand(3)], 0, "dtype"),
        ("RMSNormalization", 23, "", [x.astype(np.float16), rand(3).astype(np.float16)], 0, ""),
        # A skip that is broadcast has no room for the output.
        ("SkipLayerNormalization", 21, MS, [rand(2, 3, 8), rand(3, 8), rand(8)], 1, "shape"),
        ("SkipLayerNormalization", 21, MS, [rand(2, 3, 8), rand(3, 8), rand(8)], 0, ""),
    ]
    for op_type, opset, domain, args, position, misfit in rooms:
        fits, y = spec_of(op_type, opset, domain).fits, run(op_type, args, 1, opset, domain)[0]
        assert fits is not None and fits(args, position, {}) == misfit
        assert ((y.shape, y.dtype) == (args[position].shape, args[position].dtype)) == (misfit == "")


LEGACY: list[tuple[tuple[int, ...], int | None, tuple[int, ...]]] = [
    ((2, 3), None, (2, 3)),
    ((3,), None, (3,)),
    ((2,), 0, (2, 1)),
    ((1,), None, ()),
    ((1,), 0, ()),
    ((), None, ()),
    ((2, 3), 0, (2, 3)),
    ((3,), -1, (3,)),
]


@pytest.mark.parametrize(("shape", "axis", "aligned"), LEGACY, ids=str)
@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Div", "Pow", "Greater", "Less"])
def test_up_to_opset_6_the_second_operand_is_aligned_by_an_axis(
    name: str, shape: tuple, axis: int | None, aligned: tuple
) -> None:
    a, b = np.abs(rand(2, 3)), np.abs(rand(*shape, seed=2)) + np.float32(0.5)
    attributes: dict[str, Any] = {"broadcast": 1} if axis is None else {"broadcast": 1, "axis": axis}
    (got,) = run(name, [a, b], opset=6, **attributes)
    close(got, ort_run(name, [a, b.reshape(aligned)])[0], 1e-5, 1e-6)
    if spec_of(name, 6).overwrites:
        assert same(run_kernel(name, [a.copy(), b], opset=6, out=a, **attributes)[0], got)


def test_up_to_opset_6_nothing_is_broadcast_unasked() -> None:
    unasked: list[dict[str, Any]] = [{}, {"broadcast": 1, "axis": 0}]
    for how in unasked:
        with pytest.raises(OpError, match="cannot be broadcast"):
            run("Add", [rand(2, 3), rand(3)], opset=6, **how)


def test_swapping_is_offered_only_where_it_changes_nothing() -> None:
    a, b = np.arange(1, 6, dtype=np.int32), np.array([9, 5, 3, 1, 2], np.int32)
    for name in ("Add", "Mul", "Min", "Max", "Sum", "Mean", "Equal", "Sub", "Div", "Mod", "Pow", "Less", "Greater"):
        swaps = same(run(name, [a, b])[0], run(name, [b, a])[0])
        assert spec_of(name).commutative == swaps, name
