"""Slice and Split are views, Concat appends where it has room, Pad writes."""

import numpy as np
import pytest

from tests.ops.kernels import check, ints, rand, run_kernel, spec_of

X = rand(4, 5, 6)
FAR = 2**62

SLICES: list[list] = [
    [ints(1), ints(FAR), ints(1)],
    [ints(-2), ints(FAR), ints(-1)],
    [ints(-1), ints(-FAR), ints(2), ints(-2)],
    [ints(1, 2), ints(3, 4), None, ints(1, 1)],
    [np.array([1], np.int32), np.array([3], np.int32), np.array([1], np.int32)],
]


def test_slice_clamps_as_onnxruntime_does_and_took_attributes_before_opset_10() -> None:
    for bounds in SLICES:
        check("Slice", [X, *bounds])
    check("Slice", [X], opset=9, starts=[1, -3], ends=[3, 5], axes=[0, 2])
    check("Slice", [X], opset=9, starts=[1, 2], ends=[3, 4])


@pytest.mark.parametrize("op_type", ["Slice", "Split"])
def test_slice_and_split_copy_nothing(op_type: str) -> None:
    inputs = [X, ints(1), ints(3), ints(1)] if op_type == "Slice" else [X, ints(1, 3)]
    for output in run_kernel(op_type, inputs, 2 if op_type == "Split" else 1):
        assert np.shares_memory(output, X)
    assert spec_of(op_type).views == (0,)


# Random calls join packed numbers (see asked_shapes.py).
CONCATS = [
    ([X.transpose(0, 2, 1), rand(4, 6, 2)], 2),
    ([X.transpose(2, 1, 0), rand(4, 5, 6, seed=1).transpose(2, 1, 0)], 0),
    ([np.array(["a", "b"], object), np.array(["c"], object)], 0),
]


@pytest.mark.parametrize(("inputs", "axis"), CONCATS)
def test_concat_agrees_with_onnxruntime(inputs: list, axis: int) -> None:
    check("Concat", inputs, axis=axis)


def room_for(past: np.ndarray, rows: int, axis: int) -> np.ndarray:
    """A present of ``rows`` rows whose first ones are the past, as a view into a larger block, and the past in it."""
    block = np.full((*past.shape[:axis], rows + 3, *past.shape[axis + 1 :]), 7, past.dtype)
    by_row = np.moveaxis(block, axis, 0)
    by_row[: past.shape[axis]] = np.moveaxis(past, axis, 0)
    return np.moveaxis(by_row[:rows], 0, axis)


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("held", [0, 5])
def test_concat_with_room_writes_only_the_new_rows(axis: int, held: int) -> None:
    shape = [2, 3, 4, 2]
    shape[axis] = held
    past = rand(*shape)
    shape[axis] = 1
    new, newer = rand(*shape), rand(*shape, seed=1)
    plain = run_kernel("Concat", [past, new, newer], axis=axis - 4)[0]
    present = room_for(past, held + 2, axis)
    view = present[(slice(None),) * axis + (slice(0, held),)]

    appended = run_kernel("Concat", [view, new, newer], axis=axis - 4, grown=(present,))[0]

    assert appended is present
    np.testing.assert_array_equal(appended, plain)
    spec = spec_of("Concat")
    attributes = {"axis": axis - 4}
    assert spec.grows[0].axis([view, new, newer], attributes) == axis
    assert spec.grows[0].rows([view, new, newer], attributes) == 2
    assert spec.cost is not None
    assert spec.cost([view, new, newer], (appended,), True, attributes) == (new.nbytes + newer.nbytes, 0)
    assert spec.cost([past, new, newer], (plain,), False, attributes) == (plain.nbytes, past.nbytes)


PADS = [
    ([X, ints(0, 1, 2, 3, 0, 1)], {}),
    ([X, ints(0, -1, 2, -2, 0, 1)], {}),
    ([X, ints(1, 2, 0, 1), np.array(1, np.float32), ints(-1, 0)], {}),
    ([X, ints(0, 1, 2, 3, 0, 1)], {"mode": "reflect"}),
    ([X, ints(0, 1, 2, 3, 0, 1)], {"mode": "wrap"}),
    ([X, ints(0, 3, 0, 0, -2, 0)], {"mode": "edge"}),
    ([X, ints(0, 0, 0, 0, 0, 0)], {"mode": "reflect"}),
    ([rand(2, 0), ints(1, 0, 0, 2)], {}),
    ([np.array([True, False]), ints(1, 1), np.array(True)], {}),
    ([X], {"opset": 10, "pads": [0, 1, 0, 1, 0, 0], "value": 1.5}),
    ([X], {"opset": 10, "pads": [0, 1, 0, 1, 0, 0], "mode": "edge"}),
]


@pytest.mark.parametrize(("inputs", "attributes"), PADS)
def test_pad_agrees_with_onnxruntime(inputs: list, attributes: dict) -> None:
    check("Pad", inputs, **attributes)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad_writes_memory_of_its_own_even_when_there_is_nothing_to_pad(mode: str) -> None:
    y = run_kernel("Pad", [X, ints(0, 0, 0, 0, 0, 0)], mode=mode)[0]
    np.testing.assert_array_equal(y, X)
    assert not np.shares_memory(y, X)
