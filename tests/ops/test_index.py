"""Gather and its kin, and the operators between values and positions."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kvviz.errors import LimitError, OpError
from tests.ops.kernels import check, ints, rand, run_kernel

X = rand(4, 5, 6)

GATHERS = [
    ([X, np.array([[1]], np.int32)], {"axis": -2}),
    ([X.transpose(2, 0, 1), ints(5, 0)], {}),
    ([X.transpose(2, 0, 1), np.array(-1)], {"axis": 1}),
    ([X.transpose(2, 0, 1), np.array([[0, 3], [1, 1]])], {"axis": 1}),
    ([np.array(["a", "b"], object), ints(1, 1, 0)], {}),
]


@pytest.mark.parametrize(("inputs", "attributes"), GATHERS)
def test_gather_agrees_with_onnxruntime(inputs: list, attributes: dict) -> None:
    check("Gather", inputs, **attributes)


def test_a_gathered_scalar_is_an_array() -> None:
    for dtype in (np.int64, np.float32, ml_dtypes.bfloat16, object):
        y = run_kernel("Gather", [np.array([1, 2], dtype), np.array(1)])[0]
        assert isinstance(y, np.ndarray)
        assert (y.shape, y.dtype, y.item()) == ((), dtype, 2)


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(6))
def test_gather_elements_agrees_with_onnxruntime(rank: int, seed: int) -> None:
    rng = np.random.default_rng((rank, seed))
    shape = rng.integers(1, 6, rank)
    axis = int(rng.integers(-rank, rank))
    # Shorter than the data on the other axes, longer or shorter on the indexed one.
    size = [int(rng.integers(1, n + 1)) for n in shape]
    size[axis] = int(rng.integers(0, 9))
    indices = rng.integers(-shape[axis], shape[axis], size)
    check("GatherElements", [rand(*shape), indices], axis=axis)


@pytest.mark.parametrize(("shape", "axis"), [((64, 256), 1), ((256, 64), 0), ((2, 100, 3), 1), ((200,), 0)])
def test_gather_elements_reads_beyond_64_entries(shape: tuple, axis: int) -> None:
    indices = np.random.default_rng(0).integers(-shape[axis], shape[axis], shape)
    check("GatherElements", [rand(*shape), indices], axis=axis)


GATHERS_ND = [
    ([X, np.array([[1, 2], [3, -1]])], {}),
    ([X, np.array([[1, 2, 3]])], {}),
    ([X, np.array([1, 2, 3])], {}),
    ([X, np.array([[[0]], [[-4]]])], {}),
    ([X, np.array([[1], [0], [2], [4]])], {"batch_dims": 1}),
    ([X, np.random.default_rng(0).integers(0, 5, (4, 3, 2))], {"batch_dims": 1}),
    ([X, np.random.default_rng(1).integers(0, 6, (4, 5, 2, 1))], {"batch_dims": 2}),
    ([X.transpose(1, 0, 2), np.array([[1, 2], [3, 0]])], {}),
    ([X, np.zeros((0, 2), np.int64)], {}),
]


@pytest.mark.parametrize(("inputs", "attributes"), GATHERS_ND)
def test_gather_nd_agrees_with_onnxruntime(inputs: list, attributes: dict) -> None:
    check("GatherND", inputs, **attributes)


@pytest.mark.parametrize(
    "x",
    [np.array([[1, 0], [0, 3]]), np.zeros((2, 3), np.float32), np.array(5), np.array(0), np.ones((2, 0), np.bool_)],
)
def test_non_zero_agrees_with_onnxruntime(x: np.ndarray) -> None:
    check("NonZero", [x])


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("condition", [[True, False, True], [False], [True, True, True, False]])
def test_compress_agrees_with_onnxruntime(axis: int | None, condition: list) -> None:
    chosen: dict[str, Any] = {} if axis is None else {"axis": axis}
    check("Compress", [X, np.array(condition)], **chosen)
    check("Compress", [X.transpose(2, 1, 0), np.array(condition)], **chosen)


@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_unique_agrees_with_onnxruntime(is_sorted: int, axis: int | None) -> None:
    x = np.random.default_rng(0).integers(0, 2, (6, 3)).astype(np.float32)
    chosen: dict[str, Any] = {} if axis is None else {"axis": axis}
    check("Unique", [x], 4, sorted=is_sorted, **chosen)


def scalars(dtype: type, *values: float) -> list:
    return [np.array(v, dtype) for v in values]


RANGES = [
    scalars(np.int64, 0, 5, 1),
    scalars(np.int64, 10, -3, -4),
    scalars(np.int64, 3, 3, 1),
    scalars(np.int64, 3, 0, 1),
    scalars(np.int32, -5, 6, 5),
    scalars(np.float32, 0.5, 3.1, 0.3),
    scalars(np.float32, 1, -1, -0.25),
    scalars(np.float64, 0, 1, 0.1),
    scalars(np.int16, 1, 9, 3),
]


@pytest.mark.parametrize("inputs", RANGES, ids=str)
def test_range_agrees_with_onnxruntime(inputs: list) -> None:
    check("Range", inputs)


@pytest.mark.parametrize("value", [None, np.array([3], np.int64), np.array([True]), np.array([1.5], np.float16)])
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 2)])
def test_constant_of_shape_agrees_with_onnxruntime(value: np.ndarray | None, shape: tuple) -> None:
    given: dict[str, Any] = {} if value is None else {"value": value}
    check("ConstantOfShape", [ints(*shape)], **given)


@pytest.mark.parametrize("attributes", [{}, {"k": 1}, {"k": -2, "dtype": 7}, {"dtype": 1}])
def test_eye_like_agrees_with_onnxruntime(attributes: dict) -> None:
    check("EyeLike", [np.zeros((3, 4), np.int32)], **attributes)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, 0, 1, -2, 100, -(2**60)])
@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 5), (3, 0)])
def test_trilu_agrees_with_onnxruntime(upper: int, k: int | None, shape: tuple) -> None:
    x = rand(*shape)
    x[..., :1] = np.nan
    check("Trilu", [x] if k is None else [x, np.array(k)], upper=upper)


def test_trilu_of_a_transposed_matrix_is_row_major() -> None:
    check("Trilu", [rand(5, 3).T], upper=0)


ERRORS = [
    ("Gather", [X, ints(0, 4)], {}, "index 4 is out of range for axis 0 of length 4"),
    ("Gather", [X.T, ints(0, -7)], {}, "index -7 is out of range for axis 0 of length 6"),
    ("Gather", [X, ints(0)], {"axis": 3}, "axis 3 is out of range"),
    ("GatherElements", [X, np.zeros((5, 1, 1), np.int64)], {"axis": 1}, "longer than data .* on axis 0"),
    ("GatherElements", [X, np.full((1, 1, 1), 6)], {"axis": 2}, "index 6 is out of range for axis 2 of length 6"),
    ("GatherElements", [X, ints(0)], {}, "differ in rank"),
    ("GatherND", [X, np.array([[0, 5]])], {}, "index 5 is out of range for axis 1 of length 5"),
    ("GatherND", [X, np.array([[0, 0, 0, 0]])], {}, "do not address"),
    ("OneHot", [ints(0), np.array(0), np.array([0, 1])], {}, "depth of 0"),
    ("Compress", [X, np.array([False] * 9 + [True])], {"axis": 0}, "out of bounds"),
    ("Range", scalars(np.int64, 0, 1, 0), {}, "delta of 0"),
    ("ConstantOfShape", [ints(2, -1)], {}, "negative"),
    ("EyeLike", [X], {}, "must be a matrix"),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "message"), ERRORS)
def test_an_error_names_index_and_axis(op_type: str, inputs: list, attributes: dict, message: str) -> None:
    with pytest.raises(OpError, match=message):
        run_kernel(op_type, inputs, **attributes)


@pytest.mark.parametrize(
    ("op_type", "inputs"),
    [("ConstantOfShape", [ints(2**20, 2**20, 2**20)]), ("Range", scalars(np.int64, 0, 2**60, 1))],
)
def test_a_tensor_that_no_machine_holds_is_refused(op_type: str, inputs: list) -> None:
    with pytest.raises(LimitError, match="would take"):
        run_kernel(op_type, inputs)
