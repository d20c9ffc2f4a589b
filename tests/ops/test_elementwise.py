"""Arithmetic, comparison, logic, choice and conversion against onnxruntime."""

import ml_dtypes
import numpy as np
import pytest

from kvviz.errors import OpError
from tests.ops.kernels import check, close, run, same, spec_of, takes_over
from tests.ops.ort_oracle import ort_run

FLOAT16 = np.dtype(np.float16)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SHAPES = [
    ((2, 3), (2, 3)),
    ((4, 1, 3), (2, 1)),
    ((), (2,)),
    ((1,), ()),
    ((), ()),
    ((0, 3), (1, 3)),
    ((3, 1), (1, 4)),
    ((1, 1, 64), (64,)),
]


def numbers(shape, dtype, seed=0, low=-9, high=9):
    """Random numbers of any dtype; no zeros, so that they may divide."""
    rng = np.random.default_rng((seed, *shape))
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    low = 1 if dtype.kind == "u" else low
    x = rng.uniform(low, high, shape) if dtype.kind not in "iu" else rng.integers(low, high, shape)
    return np.where(x == 0, 1, x).astype(dtype)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("name", "dtypes"),
    [
        ("Add", "f4 f8 i4 i8"),
        ("Sub", "f4 f8 i4 i8"),
        ("Mul", "f4 f8 i4 i8"),
        ("Div", "f4 f8 i4 i8"),
        ("Mod", "i1 u1 i2 u2 i4 u4 i8 u8"),
        ("Equal", "f4 f8 i4 i8 ?"),
        ("Greater", "f4 f8 i4 i8"),
        ("Less", "f4 f8 i4 i8"),
        ("GreaterOrEqual", "f4 i8"),
        ("LessOrEqual", "f4 i8"),
        ("And", "?"),
        ("Or", "?"),
        ("Xor", "?"),
        ("BitwiseAnd", "u1 i4 i8"),
        ("BitwiseOr", "u1 i4 i8"),
        ("BitwiseXor", "u1 i4 i8"),
        ("Min", "f4 f8 i4 i8"),
        ("Max", "f4 f8 i4 i8"),
        ("Sum", "f4"),
        ("Mean", "f4"),
    ],
)
def test_two_operands_agree_with_onnxruntime(name, dtypes, shapes):
    for dtype in dtypes.split():
        check(name, [numbers(shapes[0], dtype, 1), numbers(shapes[1], dtype, 2)])


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Mean", "Sum"])
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16], ids=str)
def test_half_precision_is_float32_rounded_once(name, dtype):
    a, b = numbers((3, 4), dtype, 1, 0.1, 4), numbers((4,), dtype, 2, 0.1, 3)
    wanted = ort_run(name, [a.astype(np.float32), b.astype(np.float32)])[0].astype(dtype)
    (got,) = run(name, [a, b])
    assert got.dtype == dtype
    close(got, wanted, rtol=0.01 if dtype == BFLOAT16 else 2e-3, atol=0)


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul"])
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "u4", "u8"])
def test_integers_wrap_around_in_their_own_width(name, dtype):
    a, b = numbers((50,), dtype, 1, 1, 120), numbers((50,), dtype, 2, 1, 120)
    wanted = ort_run(name, [a.astype(np.int64), b.astype(np.int64)])[0].astype(dtype)
    np.testing.assert_array_equal(run(name, [a, b])[0], wanted)


def test_division_of_integers_is_cut_towards_zero():
    a, b = np.array([7, -7, 7, -7, -6], "i4"), np.array([2, 2, -2, -2, 3], "i4")
    assert check("Div", [a, b])[0].tolist() == [3, -3, -3, 3, -2]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
def test_mod_with_fmod_takes_the_sign_of_the_dividend(dtype):
    check("Mod", [numbers((40,), dtype, 1), numbers((40,), dtype, 2)], fmod=1)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtypes", ["f4 f4", "f4 i8", "f4 i4", "f4 f8", "f8 f4", "i4 i4", "i8 i8", "i4 f4", "i8 f4"])
def test_power_keeps_the_dtype_of_its_base(dtypes, shapes):
    base, exponent = dtypes.split()
    a, b = numbers(shapes[0], base, 1, 1, 9), numbers(shapes[1], exponent, 2, 1, 4)
    check("Pow", [a, b], rtol=1e-4)


@pytest.mark.parametrize("exponent", [2.0, 0.5, 1.0, 3.0, 0.0, -1.0, -0.5])
@pytest.mark.parametrize("shape", [(), (1,)], ids=str)
def test_the_usual_exponents_agree_with_onnxruntime(exponent, shape):
    check("Pow", [numbers((2, 5), "f4", 1, 0.1, 4), np.full(shape, exponent, np.float32)])


def test_an_exponent_of_one_element_may_still_add_an_axis():
    assert check("Pow", [np.float32(3), np.full((1, 1), 2, np.float32)])[0].shape == (1, 1)


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", ["u1", "u4", "u8"])
def test_bit_shifts_agree_with_onnxruntime(direction, dtype):
    check("BitShift", [numbers((3, 7), dtype, 1), numbers((7,), dtype, 2, 1, 7)], direction=direction)


def test_strings_may_be_compared_and_chosen():
    a, b = np.array(["a", "b", "c"], object), np.array(["a", "x", "c"], object)
    assert check("Equal", [a, b])[0].tolist() == [True, False, True]
    assert check("Where", [np.array([True, False, True]), a, b])[0].tolist() == ["a", "x", "c"]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u1"])
@pytest.mark.parametrize(
    "shapes", [((2, 3), (2, 3), (2, 3)), ((2, 1), (1, 3), ()), ((), (4,), (2, 1)), ((0, 2), (2,), ())], ids=str
)
def test_where_agrees_with_onnxruntime(dtype, shapes):
    check("Where", [numbers(shapes[0], bool, 3), numbers(shapes[1], dtype, 1), numbers(shapes[2], dtype, 2)])


@pytest.mark.parametrize("bounds", [(-1, 2), (None, 2), (-1, None), (None, None), (3, -3)], ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "i1", "u1"])
def test_clip_agrees_with_onnxruntime(bounds, dtype):
    bounds = [None if b is None else np.asarray(abs(b) if dtype == "u1" else b, dtype) for b in bounds]
    check("Clip", [numbers((3, 4), dtype, 1), *bounds])


def test_clip_of_opset_6_takes_its_bounds_as_attributes():
    check("Clip", [numbers((3, 4), "f4", 1)], opset=6 + 1, min=-1.5, max=2.5)
    check("Clip", [numbers((3, 4), "f4", 1)], opset=6 + 1, max=0.5)


def test_clip_refuses_bounds_that_are_not_one_number():
    with pytest.raises(OpError, match="one number"):
        run("Clip", [numbers((3,), "f4"), np.zeros(3, np.float32)])


@pytest.mark.parametrize("bounds", [(-1, 2), (None, 2), (-1, None), (None, None)], ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f2", "i8"])
def test_clip_may_overwrite_its_input_with_the_same_bits(bounds, dtype):
    args = [numbers((3, 40), dtype, 1), *(None if b is None else np.asarray(b, dtype) for b in bounds)]
    assert same(takes_over("Clip", args, 0)[0], run("Clip", args)[0])


@pytest.mark.parametrize("name", ["Min", "Max", "Sum", "Mean"])
def test_any_number_of_operands_is_folded(name):
    tensors = [numbers(shape, "f4", seed) for seed, shape in enumerate([(3,), (2, 1), (4, 1, 1), ()])]
    for count in range(1, 5):
        check(name, tensors[:count])


IN_PLACE = [
    ("Add", "f4", (0, 1)),
    ("Sub", "f4", (0, 1)),
    ("Mul", "f8", (0, 1)),
    ("Div", "f4", (0, 1)),
    ("Div", "i8", (0, 1)),
    ("Div", "u4", (0, 1)),
    ("Mod", "i4", (0, 1)),
    ("Pow", "f4", (0,)),
    ("Pow", "i4", (0,)),
    ("Pow", "f2", (0,)),
    ("And", "?", (0, 1)),
    ("Min", "f4", (0, 1)),
    ("Max", "i4", (0, 1)),
    ("Sum", "f4", (0, 1)),
    ("Mean", "f4", (0, 1)),
    ("Mean", "f2", (0, 1)),
    ("BitwiseXor", "u1", (0, 1)),
]


@pytest.mark.parametrize(("name", "dtype", "positions"), IN_PLACE)
@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_an_operand_may_be_overwritten_with_the_same_bits(name, dtype, positions, size):
    args = [numbers((3, size), dtype, 1, 1, 5), numbers((3, size), dtype, 2, 1, 5)]
    (fresh,) = run(name, args)
    assert spec_of(name).overwrites == positions
    for position in positions:
        assert same(takes_over(name, args, position)[0], fresh)


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Div", "Sum", "Max"])
def test_the_operand_that_has_the_output_shape_may_be_overwritten(name):
    small, large = numbers((1, 5), "f4", 1), numbers((2, 3, 5), "f4", 2)
    assert same(takes_over(name, [small, large], 1)[0], run(name, [small, large])[0])
    assert same(takes_over(name, [large, small], 0)[0], run(name, [large, small])[0])


@pytest.mark.parametrize("count", [3, 4])
def test_folding_in_place_reads_the_overwritten_operand_first(count):
    tensors = [numbers((2, 6), "f4", seed) for seed in range(count)]
    for name in ("Sum", "Max", "Mean"):
        (fresh,) = run(name, tensors)
        assert same(takes_over(name, tensors, 0)[0], fresh)
        assert same(takes_over(name, tensors, 1)[0], fresh)


@pytest.mark.parametrize("position", [1, 2])
def test_where_writes_only_over_the_branch_that_it_takes_over(position):
    args = [numbers((2, 1), bool, 3), numbers((2, 5), "f4", 1), numbers((2, 5), "f4", 2)]
    assert same(takes_over("Where", args, position)[0], run("Where", args)[0])


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


@pytest.mark.parametrize("name", ["Add", "Equal", "Max", "Mod", "Div", "Where", "Pow"])
def test_transposed_operands_give_an_output_in_c_order(name):
    a, b = numbers((4, 3), "i4", 1).T, numbers((4, 3), "i4", 2, 1, 3).T
    check(name, [a > 2, a, b] if name == "Where" else [a, b])


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
        assert same(takes_over(name, [a, b], 0, opset=6, **attributes)[0], got)


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
