"""What is kept of an array, against NumPy: numbers, histograms, pictures, for every element type."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.trace.value_numbers import (
    ABOVE,
    BELOW,
    BINS,
    EMPTY,
    NAN,
    SHADES,
    SIDE,
    Numbers,
    Picture,
    as_floats,
    axes_of,
    has_numbers,
    histogram_of,
    numbers_of,
    picture_of,
)

SHAPES = st.lists(st.integers(0, 70), max_size=4).map(tuple).filter(lambda shape: np.prod(shape) < 40_000)
ODD = [np.nan, np.inf, -np.inf, 0.0, 1e-310, -1.7e308, 1.7e308, -1.0, 3.5]


def made(shape: tuple[int, ...], odd: list[float], seed: int) -> np.ndarray:
    """An array with some odd numbers in it."""
    rng = np.random.default_rng(seed)
    array = rng.normal(size=shape)
    if array.size:
        array.ravel()[rng.integers(0, array.size, len(odd))] = odd
    return array


TYPES = [
    *(np.float16, np.float32, np.float64, np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64, np.bool_),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint4),
]


def told(array: np.ndarray) -> tuple[Numbers, np.ndarray]:
    numbers, finite = numbers_of(as_floats(array))
    return numbers, histogram_of(finite, numbers.low, numbers.high)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_numbers_of_every_element_type_are_those_of_numpy(dtype: type) -> None:
    array: np.ndarray = (
        np.arange(-3, 4).clip(0 if np.dtype(dtype).kind in "ub" or dtype is ml_dtypes.uint4 else -3).astype(dtype)
    )
    wide = array.astype(np.float64)
    assert has_numbers(array.shape, array.dtype)
    numbers, histogram = told(array)
    assert numbers[:3] == (wide.min(), wide.max(), wide.mean()) and numbers[3:] == (0, 0, 0)
    assert histogram.tolist() == np.histogram(wide, BINS)[0].tolist()


def test_texts_sequences_and_blocks_have_no_numbers() -> None:
    for shape, dtype in (((2,), "object"), ((2,), "<U3"), (None, "sequence"), ((32,), "q4_0"), ((4,), "no type")):
        assert not has_numbers(shape, dtype)
    assert has_numbers((2,), "bfloat16") and has_numbers((), np.dtype(np.int64))


WIDEST, NARROWEST, DENORMAL = [-1.7e308, 0, 1.7e308], [1e16, 1e16 + 2], [5e-324, 0.0, 1e-323]


@pytest.mark.parametrize("numbers", [WIDEST, NARROWEST, DENORMAL, [2**63 - 1, -(2**63)], [1e300] * 7], ids=str)
def test_extreme_ranges_have_a_histogram_and_a_finite_mean(numbers: list[float]) -> None:
    found, histogram = told(np.array(numbers))
    assert np.isfinite(found[:3]).all() and histogram.sum() == len(numbers)
    assert histogram[0 if found.low < found.high else BINS // 2] > 0


@given(SHAPES, st.lists(st.sampled_from(ODD[:4]), max_size=6), st.integers(0, 99))
def test_any_array_has_numbers_that_agree_with_numpy(shape: tuple[int, ...], odd: list[float], seed: int) -> None:
    array = made(shape, odd, seed).astype(np.float32)
    numbers, histogram = told(array)
    finite = array[np.isfinite(array)].astype(np.float64)
    assert numbers.nan + numbers.above + numbers.below + histogram.sum() == array.size
    if finite.size:
        assert (numbers.low, numbers.high) == (finite.min(), finite.max())
        np.testing.assert_allclose(numbers.mean, finite.mean(), rtol=1e-9)
    else:
        assert np.isnan(numbers[:3]).all()


# -- pictures --------------------------------------------------------------------------------------------------------


def shown(array: np.ndarray, head: int = 0) -> Picture:
    axes = axes_of(array.shape)
    assert axes is not None
    return picture_of(as_floats(array), axes, head)


def about(picture: Picture) -> np.ndarray:
    """The numbers that cells stand for."""
    return picture.low + picture.cells / SHADES * (picture.high - picture.low)


def test_attention_shows_one_head_and_a_single_query_its_heads_down_and_its_numbers_across() -> None:
    scores = np.random.default_rng(0).normal(size=(1, 4, 17, 16))
    axes = axes_of(scores.shape)
    assert axes is not None
    assert (axes.down, axes.across, axes.head, axes.heads, axes.rows, axes.columns) == (2, 3, 1, 4, 17, 16)
    for head in range(4):
        picture = shown(scores, head)
        step = (picture.high - picture.low) / SHADES
        np.testing.assert_allclose(about(picture), scores[0, head], atol=step / 2 + 1e-12)
        assert (picture.low, picture.high) == (scores[0, head].min(), scores[0, head].max())
    query = np.arange(64.0).reshape(1, 4, 1, 16)
    axes = axes_of(query.shape)
    assert axes is not None and (axes.down, axes.across, axes.head) == (1, 3, -1)
    np.testing.assert_allclose(about(shown(query)), query[0, :, 0], atol=63 / SHADES / 2)


@pytest.mark.parametrize("shape", [(33, 70), (100, 3), (2, 500), (64, 64)])
def test_what_is_larger_than_a_picture_is_shown_by_means(shape: tuple[int, int]) -> None:
    array = np.random.default_rng(1).normal(size=shape)
    axes, picture = axes_of(shape), shown(array)
    assert axes is not None and max(picture.cells.shape) <= SIDE
    down, across = axes.each
    means = [
        [array[r : r + down, c : c + across].mean() for c in range(0, shape[1], across)]
        for r in range(0, shape[0], down)
    ]
    np.testing.assert_allclose(about(picture), means, atol=(picture.high - picture.low) / SHADES)


def test_a_long_row_is_read_on_from_row_to_row() -> None:
    logits = np.arange(5000.0).reshape(1, 1, 5000)
    axes, picture = axes_of(logits.shape), shown(logits)
    assert axes is not None and axes.each == (1, 5) and picture.cells.shape == (32, 32)
    flat = picture.cells.ravel()
    assert (flat[:1000] <= SHADES).all() and (flat[1000:] == EMPTY).all()
    assert (np.diff(flat[:1000].astype(int)) >= 0).all()


def test_cells_with_nan_and_infinities_are_told_apart_from_numbers() -> None:
    array = np.arange(16.0).reshape(4, 4)
    array[0, 0], array[1, 1], array[2, 2] = np.nan, np.inf, -np.inf
    cells = shown(array).cells
    assert (cells[0, 0], cells[1, 1], cells[2, 2]) == (NAN, ABOVE, BELOW)
    assert (np.delete(cells.ravel(), [0, 5, 10]) <= SHADES).all()
    # and one NaN among many numbers of a cell is not lost
    array = np.zeros((320, 320))
    array[315, 7] = np.nan
    assert np.argwhere(shown(array).cells == NAN).tolist() == [[31, 0]]


@given(SHAPES, st.lists(st.sampled_from(ODD), max_size=9), st.integers(0, 99))
def test_any_array_has_pictures_that_fit(shape: tuple[int, ...], odd: list[float], seed: int) -> None:
    array = made(shape, odd, seed)
    axes = axes_of(shape)
    if axes is None:
        assert array.size < 2
        return
    for head in {0, axes.heads - 1}:
        picture = shown(array, head)
        assert picture.cells.shape == (axes.rows, axes.columns) and max(picture.cells.shape) <= SIDE
        assert (picture.cells <= NAN).all()
        assert (picture.low <= picture.high) or np.isnan(picture.low)
