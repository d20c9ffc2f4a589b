"""Reductions, arg-extremes, TopK and running sums against onnxruntime."""

import ml_dtypes
import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import check, close, run
from tests.ops.ort_oracle import ort_run

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16 = np.dtype(np.float16)
REDUCTIONS = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSum",
    "ReduceLogSumExp",
]
AXES = [None, [0], [1], [2], [-1], [0, 2], [1, 2], [2, 0], [0, 1, 2]]


def numbers(shape, dtype="f4", low=0.5, high=3.0, seed=0):
    """Evenly random positive numbers."""
    return np.asarray(np.random.default_rng((seed, *shape)).uniform(low, high, shape)).astype(dtype)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axes", AXES, ids=str)
def test_reductions_agree_with_onnxruntime(name, axes):
    for keepdims in (0, 1):
        inputs = [numbers((2, 3, 4)), None if axes is None else np.array(axes)]
        check(name, inputs, opset=18, keepdims=keepdims)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_axes_may_still_be_an_attribute(name):
    check(name, [numbers((2, 3, 4))], opset=11, axes=[1], keepdims=0)
    check(name, [numbers((2, 3, 4))], opset=11)


@pytest.mark.parametrize(
    "name", ["ReduceSum", "ReduceMax", "ReduceMean", "ReduceSumSquare", "ReduceLogSum", "ReduceL1"]
)
def test_reducing_over_no_axes_still_does_the_rest_of_the_operator(name):
    x = -numbers((2, 3)) if name == "ReduceL1" else numbers((2, 3))
    wanted = {
        "ReduceSumSquare": lambda: ort_run("Mul", [x, x])[0],
        "ReduceLogSum": lambda: ort_run("Log", [x])[0],
        "ReduceL1": lambda: ort_run("Abs", [x])[0],
    }.get(name, lambda: x)()
    close(run(name, [x], opset=18, noop_with_empty_axes=1)[0], wanted, 1e-6, 0)
    close(run(name, [x, np.array([], np.int64)], opset=18, noop_with_empty_axes=1)[0], wanted, 1e-6, 0)
    assert run(name, [x, np.array([], np.int64)], opset=18, keepdims=0)[0].shape == ()


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [
        ("ReduceSum", "f8 i4 i8"),
        ("ReduceMean", "f8 i4"),
        ("ReduceMax", "f8 i4 i8 i1 u1"),
        ("ReduceMin", "f8 i4 i8 i1 u1"),
        ("ReduceProd", "i4 i8"),
        ("ReduceL1", "i4"),
        ("ReduceL2", "f8"),
        ("ReduceSumSquare", "f8 i4"),
        ("ReduceLogSumExp", "f8"),
    ],
)
def test_reductions_of_other_dtypes_agree_with_onnxruntime(name, dtypes):
    for dtype in dtypes.split():
        check(name, [numbers((4, 5), dtype, 1, 9), np.array([1])], opset=18)


def test_mean_of_integers_is_cut_towards_zero():
    x = np.array([[-3, -4], [3, 4]], np.int32)
    assert check("ReduceMean", [x, np.array([1])], opset=18, keepdims=0)[0].tolist() == [-3, 3]


@pytest.mark.parametrize("name", ["ReduceSum", "ReduceMean", "ReduceL2", "ReduceLogSumExp", "ReduceMax"])
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
def test_half_precision_is_added_up_in_float32(name, dtype):
    x = numbers((2, 700)).astype(dtype)
    wanted = ort_run(name, [x.astype(np.float32), np.array([1])], opset=18)[0].astype(dtype)
    (got,) = run(name, [x, np.array([1])], opset=18)
    assert got.dtype == dtype
    close(got, wanted, rtol=0.01 if dtype == BFLOAT16 else 1e-3, atol=0)


@pytest.mark.parametrize("dtype", ["f4", "i4", "u1"])
def test_extremes_of_an_empty_set_are_the_edges_of_the_dtype(dtype):
    x = np.zeros((2, 0), dtype)
    edges = (-np.inf, np.inf) if dtype == "f4" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for name, edge in zip(("ReduceMax", "ReduceMin"), edges):
        (y,) = run(name, [x, np.array([1])], opset=20, keepdims=0)
        assert y.dtype == np.dtype(dtype)
        assert y.tolist() == [edge, edge]


def test_sums_of_an_empty_set_agree_with_onnxruntime():
    for name in ("ReduceSum", "ReduceProd", "ReduceL1", "ReduceSumSquare"):
        check(name, [np.zeros((2, 0, 3), np.float32), np.array([1])], opset=18)


def test_sum_of_exponentials_does_not_overflow():
    check(
        "ReduceLogSumExp",
        [np.array([[1000.0, 999, -1000], [-1000, -1001, -1002]], np.float32), np.array([1])],
        opset=18,
    )


@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("last", [0, 1])
def test_arg_extremes_agree_with_onnxruntime_on_ties(name, axis, last):
    x = np.random.default_rng(0).integers(0, 3, (4, 5, 6)).astype(np.float32)
    for keepdims in (0, 1):
        check(name, [x], axis=axis, keepdims=keepdims, select_last_index=last)
        check(name, [x.astype(np.int32)], axis=axis, keepdims=keepdims, select_last_index=last)


def test_argmax_of_a_vector_without_its_axis_is_a_scalar():
    assert check("ArgMax", [np.array([1, 5, 2], np.float32)], keepdims=0)[0].shape == ()


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("k", [0, 1, 3, 4])
def test_topk_agrees_with_onnxruntime_on_ties(axis, largest, k):
    x = np.random.default_rng(1).integers(0, 3, (4, 5, 6))
    for dtype in ("f4", "i4", "i8"):
        check("TopK", [x.astype(dtype), np.array([k])], n_outputs=2, axis=axis, largest=largest)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("spread", [5, 100000])
def test_topk_of_a_long_row_agrees_with_onnxruntime(largest, spread):
    x = np.random.default_rng(2).integers(0, spread, (2, 5000)).astype(np.float32)
    for k in (0, 1, 40, 600):
        check("TopK", [x, np.array([k])], n_outputs=2, largest=largest)


def test_topk_of_a_long_row_with_nan_keeps_its_promise_of_k_results():
    x = np.random.default_rng(3).standard_normal(3000).astype(np.float32)
    x[[5, 17]] = np.nan
    values, indices = run("TopK", [x, np.array([4])], n_outputs=2)
    assert indices[:2].tolist() == [5, 17]
    np.testing.assert_array_equal(values[2:], ort_run("TopK", [np.nan_to_num(x, nan=-9), np.array([2])], 2)[0])


def test_topk_of_older_opsets_agrees_with_onnxruntime():
    x = np.random.default_rng(4).standard_normal((3, 8)).astype(np.float32)
    check("TopK", [x, np.array([3])], n_outputs=2, opset=10)
    check("TopK", [x], n_outputs=2, opset=9, k=3, axis=0)


def test_topk_refuses_more_elements_than_there_are():
    with pytest.raises(OpError, match="has 3 elements"):
        run("TopK", [np.zeros(3, np.float32), np.array([4])], n_outputs=2)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_running_sums_agree_with_onnxruntime(exclusive, reverse, axis):
    for dtype in ("f4", "f8", "i4", "i8"):
        x = numbers((3, 4), dtype, 1, 9)
        check("CumSum", [x, np.asarray(axis)], exclusive=exclusive, reverse=reverse)
        check("CumSum", [x[:, :0], np.asarray(axis, np.int32)], exclusive=exclusive, reverse=reverse)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_running_products_are_exponentials_of_running_sums_of_logarithms(exclusive, reverse):
    x = numbers((3, 4))
    logs = ort_run("CumSum", [ort_run("Log", [x])[0], np.asarray(1)], exclusive=exclusive, reverse=reverse)[0]
    (got,) = run("CumProd", [x, np.asarray(1)], opset=26, exclusive=exclusive, reverse=reverse)
    close(got, ort_run("Exp", [logs])[0], 1e-5, 1e-6)


@pytest.mark.parametrize("name", ["ReduceSum", "ReduceMax", "ReduceMean"])
def test_a_transposed_input_gives_an_output_in_c_order(name):
    check(name, [numbers((2, 3, 4, 5)).transpose(3, 1, 0, 2), np.array([1])], opset=18)
