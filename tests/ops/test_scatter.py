"""Scatters: costs, order of writers, layouts, and what is refused. Numbers are those of the random calls."""

import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import check, ints, rand, run_kernel, spec_of

X = rand(4, 5, 6)


def test_the_data_may_be_transposed_and_the_operator_have_its_old_name() -> None:
    data = X.transpose(2, 0, 1)
    check("ScatterND", [data, np.array([[1], [5]]), rand(2, 4, 5)])
    check("ScatterElements", [data, np.array([[[1], [3]]]), rand(1, 2, 1)], axis=2)
    check("TensorScatter", [rand(6, 4, 2).transpose(2, 1, 0), rand(2, 1, 6), ints(3, 0)], opset=24)
    check("Scatter", [X, np.array([[[1], [-2]]]), rand(1, 2, 1)], opset=10, axis=1)


@pytest.mark.parametrize("op_type", ["ScatterND", "ScatterElements", "Scatter", "TensorScatter"])
def test_in_place_costs_the_updates_and_otherwise_the_data_as_well(op_type: str) -> None:
    spec = spec_of(op_type, 24)
    assert (spec.overwrites, spec.views) == ((0,), ())
    assert spec.fits is not None and spec.cost is not None
    args = [X, np.array([[1]]), rand(1, 5, 6)]
    if op_type == "TensorScatter":
        args = [X, rand(4, 1, 6), ints(0, 1, 2, 3)]
    assert spec.fits(args, 0, {}) == ""
    new = (args[1] if op_type == "TensorScatter" else args[2]).nbytes
    assert spec.cost(args, (X,), True, {}) == (new, 0)
    assert spec.cost(args, (X,), False, {}) == (480 + new, 480)


def test_of_several_writers_the_last_one_wins() -> None:
    data = np.zeros((3, 2), np.float32)
    updates = np.array([[1, 1], [2, 2], [3, 3]], np.float32)
    for indices in (np.array([[1], [1], [1]]), np.array([[-2], [1], [-2]])):
        np.testing.assert_array_equal(run_kernel("ScatterND", [data, indices, updates])[0][1], [3, 3])
    y = run_kernel("ScatterElements", [data, np.array([[1, 1], [1, 1], [1, 1]]), updates])[0]
    np.testing.assert_array_equal(y[1], [3, 3])


ERRORS = [
    ("ScatterND", [X, np.array([[4]]), rand(1, 5, 6)], {}, "index 4 is out of range for axis 0 of length 4"),
    ("ScatterND", [X, np.array([[0, -6]]), rand(1, 6)], {}, "index -6 is out of range for axis 1 of length 5"),
    ("ScatterND", [X, np.array([[0]]), rand(1, 5)], {}, r"updates must have shape \(1, 5, 6\), but have \(1, 5\)"),
    ("ScatterND", [X, np.zeros((1, 4), np.int64), rand(1)], {}, "tuples of 4 numbers are too long"),
    ("ScatterND", [X, np.array([[0]]), rand(1, 5, 6)], {"reduction": "mean"}, "'mean' is none of"),
    ("ScatterElements", [X, np.array([[[9]]]), rand(1, 1, 1)], {"axis": 1}, "index 9 is out of range for axis 1"),
    ("ScatterElements", [X, np.array([[[0]]]), rand(1, 1, 2)], {}, "differ"),
    ("ScatterElements", [X, np.zeros((1, 6, 1), np.int64), rand(1, 6, 1)], {}, "longer than data"),
    ("ScatterElements", [X, np.zeros((1, 1), np.int64), rand(1, 1)], {}, "differ in rank"),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "message"), ERRORS)
def test_an_error_leaves_the_data_as_it_was(op_type: str, inputs: list, attributes: dict, message: str) -> None:
    own = inputs[0].copy()
    with pytest.raises(OpError, match=message):
        run_kernel(op_type, [own, *inputs[1:]], out=own, **attributes)
    np.testing.assert_array_equal(own, inputs[0])
