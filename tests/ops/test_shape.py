"""Reshape and its kin: what they compute, and that they copy nothing where NumPy need not."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.ops.kernels import check, ints, rand, run_kernel, spec_of

X = rand(2, 3, 4)
ONES = rand(1, 3, 1, 4)
STRIDED = rand(4, 3, 2).transpose(2, 1, 0)
EMPTY = rand(2, 0, 4)
IMAGE = rand(2, 8, 4, 6)

# Operators that random calls ask for (see asked_shapes.py) stand here with strided inputs and older opsets only.
CASES = [
    ("Reshape", [STRIDED, ints(6, 4)], {}),
    ("Reshape", [EMPTY, ints(4, 0)], {"allowzero": 1}),
    ("Flatten", [STRIDED], {}),
    ("Unsqueeze", [STRIDED, ints(1)], {}),
    ("Squeeze", [ONES], {"axes": [2], "opset": 11}),
    ("Transpose", [STRIDED], {"perm": [0, 2, 1]}),
    ("Identity", [X], {}),
    ("Expand", [rand(4, 3).T[:1], ints(3, 1)], {}),
    ("Tile", [STRIDED, ints(2, 1, 1)], {}),
    ("Shape", [X], {"start": -9, "end": 9}),
    ("Dropout", [X], {"opset": 7}),
]


def name_of(case: tuple) -> str:
    op_type, inputs, attributes = case
    shapes = "-".join(str(x.tolist() if x.dtype == np.int64 else x.shape) for x in inputs)
    return f"{op_type} {shapes} {attributes or ''}"


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_shape_operators_agree_with_onnxruntime(case: tuple) -> None:
    op_type, inputs, attributes = case
    check(op_type, inputs, **attributes)


VIEWS = [
    ("Reshape", [X, ints(6, 4)], {}),
    ("Flatten", [X], {}),
    ("Unsqueeze", [STRIDED, ints(1)], {}),
    ("Squeeze", [ONES, ints(0)], {}),
    ("Transpose", [X], {"perm": (2, 0, 1)}),
    ("Identity", [X], {}),
    ("Expand", [ONES, ints(5, 3, 2, 4)], {}),
    ("Expand", [X.transpose(1, 0, 2)[:, :1], ints(3, 2, 4)], {}),
    ("Dropout", [X], {}),
    ("Tile", [X, ints(1, 1, 1)], {}),
]


@pytest.mark.parametrize("case", VIEWS, ids=name_of)
def test_an_output_that_can_be_a_view_takes_no_memory(case: tuple) -> None:
    op_type, inputs, attributes = case
    output = run_kernel(op_type, inputs, **attributes)[0]
    assert np.shares_memory(output, inputs[0])
    assert 0 in spec_of(op_type).views


@pytest.mark.parametrize("strided", [False, True])
def test_an_expanded_view_cannot_be_written(strided: bool) -> None:
    x = rand(4, 1).T if strided else rand(1, 4)
    y = run_kernel("Expand", [x, ints(3, 4)])[0]
    with pytest.raises(ValueError, match="read-only"):
        y[0, 0] = 1
    assert y.strides[0] == 0


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float16, ml_dtypes.bfloat16, ml_dtypes.int4, object])
def test_every_element_type_passes_through_shape_operators(dtype: type) -> None:
    x: np.ndarray = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    wide = run_kernel("Expand", [run_kernel("Unsqueeze", [x, ints(0)])[0], ints(2, 2, 3)])[0]
    tiled = run_kernel("Tile", [x, ints(2, 1)])[0]
    np.testing.assert_array_equal(wide.reshape(4, 3), tiled)
    assert wide.dtype == tiled.dtype == dtype


def test_identity_hands_on_sequences() -> None:
    sequence: Any = [X, ONES]
    assert run_kernel("Identity", [sequence])[0] is sequence


def test_dropout_in_training_scales_what_it_keeps() -> None:
    x = np.ones((100, 100), np.float32)
    y, kept = run_kernel("Dropout", [x, np.array(0.25, np.float32), np.array(True)], 2, seed=3)
    np.testing.assert_array_equal(y, np.where(kept, np.float32(1 / 0.75), np.float32(0)))
    assert 0.7 < kept.mean() < 0.8
