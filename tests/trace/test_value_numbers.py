"""What is kept of an array, against NumPy: numbers, histograms, pictures; and what of it all goes into a budget."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.errors import InputError
from kvviz.trace import value_numbers as vn
from kvviz.trace.value_numbers import SHADES, Plan, Seen, as_floats, axes_of, has_numbers, plan
from kvviz.trace.value_summaries import Collector, Counted, ValueSummaries

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


def told(array: np.ndarray) -> tuple[vn.Numbers, np.ndarray]:
    numbers, finite = vn.numbers_of(as_floats(array))
    return numbers, vn.histogram_of(finite, numbers.low, numbers.high)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_numbers_of_every_element_type_are_those_of_numpy(dtype: type) -> None:
    low = 0 if np.dtype(dtype).kind in "ub" or dtype is ml_dtypes.uint4 else -3
    array: np.ndarray = np.arange(-3, 4).clip(low).astype(dtype)
    wide = array.astype(np.float64)
    assert has_numbers(array.shape, array.dtype)
    numbers, histogram = told(array)
    assert numbers[:3] == (wide.min(), wide.max(), wide.mean()) and numbers[3:] == (0, 0, 0)
    assert histogram.tolist() == np.histogram(wide, vn.BINS)[0].tolist()


def test_texts_sequences_and_blocks_have_no_numbers() -> None:
    for shape, dtype in (((2,), "object"), ((2,), "<U3"), (None, "sequence"), ((32,), "q4_0"), ((4,), "no type")):
        assert not has_numbers(shape, dtype)
    assert has_numbers((2,), "bfloat16") and has_numbers((), np.dtype(np.int64))


WIDEST, NARROWEST, DENORMAL = [-1.7e308, 0, 1.7e308], [1e16, 1e16 + 2], [5e-324, 0.0, 1e-323]


@pytest.mark.parametrize("numbers", [WIDEST, NARROWEST, DENORMAL, [2**63 - 1, -(2**63)], [1e300] * 7], ids=str)
def test_extreme_ranges_have_a_histogram_and_a_finite_mean(numbers: list[float]) -> None:
    found, histogram = told(np.array(numbers))
    assert np.isfinite(found[:3]).all() and histogram.sum() == len(numbers)
    assert histogram[0 if found.low < found.high else vn.BINS // 2] > 0


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


def shown(array: np.ndarray, head: int = 0) -> vn.Picture:
    axes = axes_of(array.shape)
    assert axes is not None
    return vn.picture_of(as_floats(array), axes, head)


def about(picture: vn.Picture) -> np.ndarray:
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
    assert axes is not None and max(picture.cells.shape) <= vn.SIDE
    down, across = axes.each
    rows, columns = (range(0, n, step) for n, step in zip(shape, axes.each))
    means = [[array[r : r + down, c : c + across].mean() for c in columns] for r in rows]
    np.testing.assert_allclose(about(picture), means, atol=(picture.high - picture.low) / SHADES)


def test_a_long_row_is_read_on_from_row_to_row() -> None:
    logits = np.arange(5000.0).reshape(1, 1, 5000)
    axes, picture = axes_of(logits.shape), shown(logits)
    assert axes is not None and axes.each == (1, 5) and picture.cells.shape == (32, 32)
    flat = picture.cells.ravel()
    assert (flat[:1000] <= SHADES).all() and (flat[1000:] == vn.EMPTY).all()
    assert (np.diff(flat[:1000].astype(int)) >= 0).all()


def test_cells_with_nan_and_infinities_are_told_apart_from_numbers() -> None:
    array = np.arange(16.0).reshape(4, 4)
    array[0, 0], array[1, 1], array[2, 2] = np.nan, np.inf, -np.inf
    cells = shown(array).cells
    assert (cells[0, 0], cells[1, 1], cells[2, 2]) == (vn.NAN, vn.ABOVE, vn.BELOW)
    assert (np.delete(cells.ravel(), [0, 5, 10]) <= SHADES).all()
    # and one NaN among many numbers of a cell is not lost
    array = np.zeros((320, 320))
    array[315, 7] = np.nan
    assert np.argwhere(shown(array).cells == vn.NAN).tolist() == [[31, 0]]


@given(SHAPES, st.lists(st.sampled_from(ODD), max_size=9), st.integers(0, 99))
def test_any_array_has_pictures_that_fit(shape: tuple[int, ...], odd: list[float], seed: int) -> None:
    array = made(shape, odd, seed)
    axes = axes_of(shape)
    if axes is None:
        assert array.size < 2
        return
    for head in {0, axes.heads - 1}:
        picture = shown(array, head)
        assert picture.cells.shape == (axes.rows, axes.columns) and max(picture.cells.shape) <= vn.SIDE
        assert (picture.cells <= vn.NAN).all()
        assert (picture.low <= picture.high) or np.isnan(picture.low)


# -- what goes into a budget ------------------------------------------------------------------------------------------

ANY = st.lists(st.integers(1, 50), max_size=4).map(tuple)
VALUES = st.lists(st.tuples(st.integers(0, 2), ANY), min_size=1, max_size=12)
HEADS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 20)), max_size=5)


def seen(values: Sequence[tuple[int, tuple[int, ...]]]) -> list[Seen]:
    return [Seen(at, 0, rank, 4 * int(np.prod(shape)), shape) for at, (rank, shape) in enumerate(values)]


def kept(values: Sequence[Seen], attention: Sequence[tuple[int, int]], budget: int) -> ValueSummaries:
    chosen = plan(values, [heads * keys for heads, keys in attention], budget)
    collector = Collector(chosen)
    rng = np.random.default_rng(0)
    for one in values:
        collector.add(one.at, one.slot, rng.normal(size=one.shape).astype(np.float32))
    for cache, (heads, keys) in enumerate(attention[: chosen.attention]):
        collector.attend([cache], 0, 0, np.full((heads, keys), 0.25))
    return collector.done(budget, Counted(len(values), 0, len(attention), 0))


@given(VALUES, HEADS, st.integers(0, 40_000))
def test_a_budget_is_never_exceeded(values: list, attention: list, budget: int) -> None:
    assert kept(seen(values), attention, budget).nbytes <= budget


@given(VALUES, HEADS, st.integers(0, 20_000), st.integers(0, 20_000))
def test_a_larger_budget_keeps_all_that_a_smaller_one_does(values: list, attention: list, few: int, more: int) -> None:
    costs = [heads * keys for heads, keys in attention]
    small, large = plan(seen(values), costs, few), plan(seen(values), costs, few + more)
    assert small.numbers <= large.numbers and small.histograms <= large.histograms
    assert small.attention <= large.attention
    assert all(heads <= large.heads.get(key, 0) for key, heads in small.heads.items())


@given(VALUES, HEADS)
def test_a_large_budget_keeps_everything(values: list, attention: list) -> None:
    chosen = plan(seen(values), [heads * keys for heads, keys in attention], 10**9)
    keys = {(at, 0) for at in range(len(values))}
    assert chosen.numbers == chosen.histograms == keys and chosen.attention == len(attention)
    everything = Collector(None)
    for one in seen(values):
        everything.add(one.at, one.slot, np.ones(one.shape))
    pictures = everything.done(0, Counted(0, 0, 0, 0)).columns["picture"]
    assert sum(chosen.heads.values()) == len(pictures)


def test_numbers_of_all_come_first_then_histograms_attention_and_pictures_and_of_each_the_caches() -> None:
    values = seen([(1, (8, 8)), (1, (9, 9)), (1, ())])
    everything = frozenset((at, 0) for at in range(3))
    assert plan(values, [6], 3 * vn.NUMBERS) == Plan(everything, frozenset(), 0, {})
    assert plan(values, [6], 3 * (vn.NUMBERS + vn.HISTOGRAM)) == Plan(everything, everything, 0, {})
    with_rows = 3 * (vn.NUMBERS + vn.HISTOGRAM) + vn.ATTENTION + 12
    assert plan(values, [6], with_rows) == Plan(everything, everything, 1, {})
    # and then the largest first, of what there is a picture
    assert plan(values, [6], with_rows + 60 + 81).heads == {(1, 0): 1}
    # caches and logits come before what is larger, and views last
    values = seen([(2, (50, 50)), (1, (40, 40)), (0, (2, 2))])
    assert plan(values, [], vn.NUMBERS).numbers == {(2, 0)}
    assert plan(values, [], 2 * vn.NUMBERS).numbers == {(2, 0), (1, 0)}


def test_the_first_nan_is_known_even_where_nothing_of_it_is_kept() -> None:
    collector = Collector(plan([], [], 0))
    for at, number in enumerate([1.0, np.inf, np.nan, np.nan]):
        collector.add(at, 0, np.array([number]))
    found = collector.done(0, Counted(4, 0, 0, 4))
    assert found.nbytes == 0 and found.first == {"inf": (1, 0), "nan": (2, 0)}


def test_budgets_are_read_and_what_is_none_is_refused() -> None:
    assert [vn.as_bytes(text) for text in ("64 kB", "1.5MB", "2 MiB", 7)] == [64_000, 1_500_000, 2 << 20, 7]
    wrong: list[Any] = ["64 apples", "-1", "", -1, 1.5, True]
    for one in wrong:
        with pytest.raises(InputError, match="a budget is"):
            vn.as_bytes(one)
