"""Reductions, arg-extremes, TopK and running sums against onnxruntime."""

import numpy as np
import pytest

from tests.ops.kernels import check, run
from tests.ops.ort_oracle import ort_run


def numbers(shape, dtype="f4", low=0.5, high=3.0, seed=0):
    """Evenly random positive numbers."""
    return np.asarray(np.random.default_rng((seed, *shape)).uniform(low, high, shape)).astype(dtype)


def test_mean_of_integers_is_cut_towards_zero():
    x = np.array([[-3, -4], [3, 4]], np.int32)
    assert check("ReduceMean", [x, np.array([1])], opset=18, keepdims=0)[0].tolist() == [-3, 3]


@pytest.mark.parametrize("rows", [[1000.0, 999, -1000], [-1000, -1001, -1002], [np.inf, 1, 2], [-np.inf, -np.inf], 3])
def test_sum_of_exponentials_does_not_overflow(rows):
    check("ReduceLogSumExp", [np.array(rows, np.float32)], opset=18)


def test_argmax_of_a_vector_without_its_axis_is_a_scalar():
    assert check("ArgMax", [np.array([1, 5, 2], np.float32)], keepdims=0)[0].shape == ()


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
