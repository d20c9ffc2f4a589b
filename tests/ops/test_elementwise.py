"""Arithmetic, comparison, logic, choice and conversion against onnxruntime."""

import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import check, close, run, run_kernel, same, spec_of
from tests.ops.ort_oracle import ort_run


def numbers(shape, dtype, seed=0, low=-9, high=9):
    """Random numbers of any dtype; no zeros, so that they may divide."""
    rng = np.random.default_rng((seed, *shape))
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    low = 1 if dtype.kind == "u" else low
    x = rng.uniform(low, high, shape) if dtype.kind not in "iu" else rng.integers(low, high, shape)
    return np.where(x == 0, 1, x).astype(dtype)


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul"])
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "u4", "u8"])
def test_integers_wrap_around_in_their_own_width(name, dtype):
    a, b = numbers((50,), dtype, 1, 1, 120), numbers((50,), dtype, 2, 1, 120)
    wanted = ort_run(name, [a.astype(np.int64), b.astype(np.int64)])[0].astype(dtype)
    np.testing.assert_array_equal(run(name, [a, b])[0], wanted)


def test_an_exponent_of_one_element_may_still_add_an_axis():
    assert check("Pow", [np.float32(3), np.full((1, 1), 2, np.float32)])[0].shape == (1, 1)


def test_strings_may_be_compared_and_chosen():
    a, b = np.array(["a", "b", "c"], object), np.array(["a", "x", "c"], object)
    assert check("Equal", [a, b])[0].tolist() == [True, False, True]
    assert check("Where", [np.array([True, False, True]), a, b])[0].tolist() == ["a", "x", "c"]


def test_clip_of_opset_6_takes_its_bounds_as_attributes():
    check("Clip", [numbers((3, 4), "f4", 1)], opset=6 + 1, min=-1.5, max=2.5)
    check("Clip", [numbers((3, 4), "f4", 1)], opset=6 + 1, max=0.5)


@pytest.mark.parametrize(
    ("shapes", "position", "verdict"),
    [
        (((2, 3), (3,), ()), 1, "shape"),
        (((3,), (2, 3), ()), 1, ""),
        (((2, 3), (2, 1), (2, 3)), 2, ""),
        (((1, 2, 3), (2, 3), (3,)), 1, "shape"),
        (((), (1,), (0,)), 2, ""),
        (((), (1,), (0,)), 1, "shape"),
    ],
)
def test_where_says_whether_a_branch_has_room_for_the_output(shapes, position, verdict):
    args = [numbers(shapes[0], bool), numbers(shapes[1], "f4"), numbers(shapes[2], "f4")]
    fits = spec_of("Where").fits
    assert fits is not None
    assert fits(args, position, {}) == verdict
    assert (run("Where", args)[0].shape == args[position].shape) == (verdict == "")


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
def test_up_to_opset_6_the_second_operand_is_aligned_by_an_axis(name, shape, axis, aligned):
    a, b = numbers((2, 3), "f4", 1, 1, 3), numbers(shape, "f4", 2, 1, 3)
    attributes = {"broadcast": 1} if axis is None else {"broadcast": 1, "axis": axis}
    wanted = ort_run(name, [a, b.reshape(aligned)])[0]
    (got,) = run(name, [a, b], opset=6, **attributes)
    close(got, wanted, 1e-5, 1e-6)
    if spec_of(name, 6).overwrites:
        assert same(run_kernel(name, [a.copy(), b], opset=6, out=a, **attributes)[0], got)


def test_up_to_opset_6_nothing_is_broadcast_unasked():
    a, b = numbers((2, 3), "f4"), numbers((3,), "f4")
    with pytest.raises(OpError, match="cannot be broadcast"):
        run("Add", [a, b], opset=6)
    with pytest.raises(OpError, match="cannot be broadcast"):
        run("Add", [a, b], opset=6, broadcast=1, axis=0)


def test_swapping_is_offered_only_where_it_changes_nothing():
    a, b = numbers((5,), "i4", 1, 1, 4), numbers((5,), "i4", 2, 5, 9)
    for name in ("Add", "Mul", "Min", "Max", "Sum", "Mean", "Equal", "Sub", "Div", "Mod", "Pow", "Less", "Greater"):
        swaps = same(run(name, [a, b])[0], run(name, [b, a])[0])
        assert spec_of(name).commutative == swaps, name
