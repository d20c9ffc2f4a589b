"""Gather and its kin, and the operators between values and positions."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kvviz.errors import LimitError
from tests.ops.kernels import check, ints, rand, run_kernel

X = rand(4, 5, 6)


def scalars(dtype: type, *values: float) -> list:
    return [np.array(v, dtype) for v in values]


TURNED = X.transpose(2, 0, 1)
PICKED = np.random.default_rng(0).integers(0, 5, (4, 3, 2))
DOUBLES = np.random.default_rng(0).integers(0, 2, (6, 3)).astype(np.float32)
CASES: list[tuple[str, list, dict[str, Any]]] = [
    ("Gather", [X, np.array([[1]], np.int32)], {"axis": -2}),
    ("Gather", [TURNED, ints(5, 0)], {}),
    ("Gather", [TURNED, np.array(-1)], {"axis": 1}),
    ("Gather", [TURNED, np.array([[0, 3], [1, 1]])], {"axis": 1}),
    ("Gather", [np.array(["a", "b"], object), ints(1, 1, 0)], {}),
    ("GatherND", [X, np.array([[[0]], [[-4]]])], {}),
    ("GatherND", [X, PICKED], {"batch_dims": 1}),
    ("GatherND", [X, np.array([[1], [0], [2], [4]])], {"batch_dims": 1}),
    ("GatherND", [X, PICKED[:, [0, 1, 2, 0, 1], :, None]], {"batch_dims": 2}),
    ("GatherND", [X.transpose(1, 0, 2), np.array([[1, 2], [3, 0]])], {}),
    ("GatherND", [X, np.zeros((0, 2), np.int64)], {}),
    *(("Compress", [x, np.array([True, False, True])], {"axis": axis}) for x in (X, TURNED) for axis in (0, 1, -1)),
    ("Compress", [TURNED, np.array([False, True])], {}),
    *(("Unique", [DOUBLES], {"n_outputs": 4, "sorted": order, "axis": axis}) for order in (0, 1) for axis in (0, -1)),
    *(("Range", scalars(np.int64, *numbers), {}) for numbers in ((10, -3, -4), (3, 3, 1), (3, 0, 1))),
    *(("Range", scalars(np.float32, *numbers), {}) for numbers in ((0.5, 3.1, 0.3), (1, -1, -0.25))),
    *(("Range", scalars(dtype, 1, 9, 3), {}) for dtype in (np.float64, np.int16, np.int32)),
    *(("ConstantOfShape", [ints(0, 2)], {"value": np.array([3], dtype)}) for dtype in (np.int64, np.bool_, np.float16)),
    ("Trilu", [rand(5, 3).T], {"upper": 0}),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), CASES)
def test_the_kernel_agrees_with_onnxruntime(op_type: str, inputs: list, attributes: dict) -> None:
    check(op_type, inputs, **attributes)


def test_a_gathered_scalar_is_an_array() -> None:
    for dtype in (np.int64, np.float32, ml_dtypes.bfloat16, object):
        y = run_kernel("Gather", [np.array([1, 2], dtype), np.array(1)])[0]
        assert isinstance(y, np.ndarray)
        assert (y.shape, y.dtype, y.item()) == ((), dtype, 2)


@pytest.mark.parametrize("seed", range(30))
def test_gather_elements_agrees_with_onnxruntime(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Beyond 64 entries it reads another way.
    shape = rng.integers(1, 60 if seed % 5 == 0 else 6, 1 + seed % 4)
    axis = int(rng.integers(-len(shape), len(shape)))
    # Shorter than the data on the other axes, longer or shorter on the indexed one.
    size = [int(rng.integers(1, n + 1)) for n in shape]
    size[axis] = int(rng.integers(0, 9)) + 60 * (seed % 5 == 0)
    check("GatherElements", [rand(*shape), rng.integers(-shape[axis], shape[axis], size)], axis=axis)


@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 5), (3, 0)])
def test_trilu_agrees_with_onnxruntime(shape: tuple) -> None:
    x = rand(*shape)
    x[..., :1] = np.nan
    for upper in (0, 1):
        check("Trilu", [x], upper=upper)
        for k in (0, 1, -2, 100, -(2**60)):
            check("Trilu", [x, np.array(k)], upper=upper)


@pytest.mark.parametrize(
    ("op_type", "inputs"),
    [("ConstantOfShape", [ints(2**20, 2**20, 2**20)]), ("Range", scalars(np.int64, 0, 2**60, 1))],
)
def test_a_tensor_that_no_machine_holds_is_refused(op_type: str, inputs: list) -> None:
    with pytest.raises(LimitError, match="would take"):
        run_kernel(op_type, inputs)
