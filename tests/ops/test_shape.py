"""Shapes, parts and positions: what random calls (see asked_shapes.py) do not ask, and what is a view."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kvviz.errors import LimitError
from tests.ops.kernels import check, ints, rand, room_for, run_kernel, spec_of

X = rand(4, 5, 6)
ONES = rand(1, 3, 1, 4)
STRIDED = X.transpose(2, 1, 0)
FAR = 2**62
PICKED = np.random.default_rng(0).integers(0, 5, (4, 3, 2))
DOUBLES = np.random.default_rng(0).integers(0, 2, (6, 3)).astype(np.float32)


def scalars(dtype: type, *values: float) -> list:
    return [np.array(v, dtype) for v in values]


CASES: list[tuple[str, list, dict[str, Any]]] = [
    # Of strided inputs a new output is packed all the same.
    ("Reshape", [STRIDED, ints(30, 4)], {}),
    ("Flatten", [STRIDED], {}),
    ("Tile", [STRIDED, ints(2, 1, 1)], {}),
    ("Concat", [STRIDED, STRIDED], {"axis": 0}),
    ("Concat", [X.transpose(0, 2, 1), rand(4, 6, 2)], {"axis": 2}),
    ("Gather", [STRIDED, ints(5, 0)], {}),
    ("Gather", [STRIDED, np.array([[0, 3], [1, 1]])], {"axis": 1}),
    ("Squeeze", [ONES], {"axes": [2], "opset": 11}),
    ("Identity", [X], {}),
    ("Shape", [X], {"start": -9, "end": 9}),
    ("Dropout", [X], {"opset": 7}),
    ("Slice", [X, ints(1), ints(FAR), ints(1)], {}),
    ("Slice", [X, ints(-2), ints(FAR), ints(-1)], {}),
    ("Slice", [X, ints(-1), ints(-FAR), ints(2), ints(-2)], {}),
    ("Slice", [X, ints(-9), ints(-FAR), ints(0), ints(-1)], {}),
    ("Slice", [X, ints(1, 2), ints(3, 4), None, ints(1, 1)], {}),
    ("Slice", [X, *(np.array([n], np.int32) for n in (1, 3, 1))], {}),
    ("Slice", [X], {"opset": 9, "starts": [1, -3], "ends": [3, 5], "axes": [0, 2]}),
    ("Slice", [X], {"opset": 9, "starts": [1, 2], "ends": [3, 4]}),
    ("Concat", [np.array(["a", "b"], object), np.array(["c"], object)], {"axis": 0}),
    ("Pad", [X, ints(0, 1, 2, 3, 0, 1)], {}),
    ("Pad", [X, ints(0, -1, 2, -2, 0, 1)], {}),
    ("Pad", [X, ints(1, 2, 0, 1), np.array(1, np.float32), ints(-1, 0)], {}),
    ("Pad", [X, ints(0, 1, 2, 3, 0, 1)], {"mode": "reflect"}),
    ("Pad", [X, ints(0, 1, 2, 3, 0, 1)], {"mode": "wrap"}),
    ("Pad", [X, ints(0, 3, 0, 0, -2, 0)], {"mode": "edge"}),
    ("Pad", [rand(2, 0), ints(1, 0, 0, 2)], {}),
    ("Pad", [np.array([True, False]), ints(1, 1), np.array(True)], {}),
    ("Pad", [X], {"opset": 10, "pads": [0, 1, 0, 1, 0, 0], "value": 1.5}),
    ("Pad", [X], {"opset": 10, "pads": [0, 1, 0, 1, 0, 0], "mode": "edge"}),
    # Nothing to pad is a copy all the same, which a check looks at.
    *(("Pad", [X, ints(0, 0, 0, 0, 0, 0)], {"mode": mode}) for mode in ("constant", "reflect", "edge", "wrap")),
    ("Gather", [X, np.array([[1]], np.int32)], {"axis": -2}),
    ("Gather", [np.array(["a", "b"], object), ints(1, 1, 0)], {}),
    ("GatherND", [X, np.array([[[0]], [[-4]]])], {}),
    ("GatherND", [X, PICKED], {"batch_dims": 1}),
    ("GatherND", [X, np.array([[1], [0], [2], [4]])], {"batch_dims": 1}),
    ("GatherND", [X, PICKED[:, [0, 1, 2, 0, 1], :, None]], {"batch_dims": 2}),
    ("GatherND", [STRIDED, np.array([[1, 2], [3, 0]])], {}),
    ("GatherND", [X, np.zeros((0, 2), np.int64)], {}),
    *(("Compress", [x, np.array([True, False, True])], {"axis": axis}) for x in (X, STRIDED) for axis in (0, 1, -1)),
    ("Compress", [STRIDED, np.array([False, True])], {}),
    *(("Unique", [DOUBLES], {"n_outputs": 4, "sorted": order, "axis": axis}) for order in (0, 1) for axis in (0, -1)),
    *(("Range", scalars(np.int64, *numbers), {}) for numbers in ((10, -3, -4), (3, 3, 1), (3, 0, 1))),
    *(("Range", scalars(np.float32, *numbers), {}) for numbers in ((0.5, 3.1, 0.3), (1, -1, -0.25))),
    *(("Range", scalars(dtype, 1, 9, 3), {}) for dtype in (np.float64, np.int16, np.int32)),
    *(("ConstantOfShape", [ints(0, 2)], {"value": np.array([3], dtype)}) for dtype in (np.int64, np.bool_, np.float16)),
    ("Trilu", [rand(5, 3).T], {"upper": 0}),
    ("ScatterND", [STRIDED, np.array([[1], [5]]), rand(2, 5, 4)], {}),
    ("ScatterElements", [STRIDED, np.array([[[1], [3]]]), rand(1, 2, 1)], {"axis": 2}),
    ("TensorScatter", [rand(6, 4, 2).transpose(2, 1, 0), rand(2, 1, 6), ints(3, 0)], {"opset": 24}),
    ("Scatter", [X, np.array([[[1], [-2]]]), rand(1, 2, 1)], {"opset": 10, "axis": 1}),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), CASES)
def test_the_kernel_agrees_with_onnxruntime(op_type: str, inputs: list, attributes: dict) -> None:
    check(op_type, inputs, **attributes)


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


VIEWS: list[tuple[str, list, dict[str, Any]]] = [
    ("Reshape", [X, ints(20, 6)], {}),
    ("Flatten", [X], {}),
    ("Unsqueeze", [STRIDED, ints(1)], {}),
    ("Squeeze", [ONES, ints(0)], {}),
    ("Transpose", [X], {"perm": (2, 0, 1)}),
    ("Identity", [X], {}),
    ("Expand", [ONES, ints(5, 3, 2, 4)], {}),
    ("Expand", [X.transpose(1, 0, 2)[:, :1], ints(5, 3, 6)], {}),
    ("Dropout", [X], {}),
    ("Tile", [X, ints(1, 1, 1)], {}),
    ("Slice", [X, ints(1), ints(3), ints(1)], {}),
    ("Split", [X, ints(1, 3)], {"n_outputs": 2}),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), VIEWS)
def test_an_output_that_can_be_a_view_takes_no_memory(op_type: str, inputs: list, attributes: dict) -> None:
    for output in run_kernel(op_type, inputs, **attributes):
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
    picked = run_kernel("Gather", [x, np.array(1)], axis=1)[0]
    scalar = run_kernel("Gather", [picked, np.array(0)])[0]
    assert isinstance(scalar, np.ndarray)
    assert (scalar.shape, scalar.dtype, scalar.item()) == ((), dtype, 1)


def test_identity_hands_on_sequences() -> None:
    sequence: Any = [X, ONES]
    assert run_kernel("Identity", [sequence])[0] is sequence


def test_dropout_in_training_scales_what_it_keeps() -> None:
    x = np.ones((100, 100), np.float32)
    y, kept = run_kernel("Dropout", [x, np.array(0.25, np.float32), np.array(True)], 2, seed=3)
    np.testing.assert_array_equal(y, np.where(kept, np.float32(1 / 0.75), np.float32(0)))
    assert 0.7 < kept.mean() < 0.8


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("held", [0, 5])
def test_concat_with_room_writes_only_the_new_rows(axis: int, held: int) -> None:
    shape = [2, 3, 4, 2]
    shape[axis] = held
    past = rand(*shape)
    shape[axis] = 1
    new, newer = rand(*shape), rand(*shape, seed=1)
    attributes: dict[str, Any] = {"axis": axis - 4}
    spec = spec_of("Concat")
    plain = run_kernel("Concat", [past, new, newer], **attributes)[0]
    present = room_for(past, held + 2, axis)
    given = [present[(slice(None),) * axis + (slice(0, held),)], new, newer]

    appended = run_kernel("Concat", given, grown=(present,), **attributes)[0]

    assert appended is present
    np.testing.assert_array_equal(appended, plain)
    assert [(grow.axis(given, attributes), grow.rows(given, attributes)) for grow in spec.grows] == [(axis, 2)]
    assert spec.cost is not None
    assert spec.cost(given, (appended,), True, attributes) == (new.nbytes + newer.nbytes, 0)
    assert spec.cost([past, new, newer], (plain,), False, attributes) == (plain.nbytes, past.nbytes)


@pytest.mark.parametrize(
    ("op_type", "inputs"),
    [("ConstantOfShape", [ints(2**20, 2**20, 2**20)]), ("Range", scalars(np.int64, 0, 2**60, 1))],
)
def test_a_tensor_that_no_machine_holds_is_refused(op_type: str, inputs: list) -> None:
    with pytest.raises(LimitError, match="would take"):
        run_kernel(op_type, inputs)
