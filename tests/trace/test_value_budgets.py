"""What goes into a budget: never more than its bytes, and the more of them the more is told."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.errors import InputError
from kvviz.trace.value_numbers import ATTENTION, HISTOGRAM, NUMBERS, Plan, Seen, as_bytes, plan
from kvviz.trace.value_summaries import Collector, Counted, ValueSummaries

SHAPES = st.lists(st.integers(1, 50), max_size=4).map(tuple)
VALUES = st.lists(st.tuples(st.integers(0, 2), SHAPES), min_size=1, max_size=12)
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
    assert plan(values, [6], 3 * NUMBERS) == Plan(everything, frozenset(), 0, {})
    assert plan(values, [6], 3 * (NUMBERS + HISTOGRAM)) == Plan(everything, everything, 0, {})
    with_rows = 3 * (NUMBERS + HISTOGRAM) + ATTENTION + 12
    assert plan(values, [6], with_rows) == Plan(everything, everything, 1, {})
    # and then the largest first, of what there is a picture
    assert plan(values, [6], with_rows + 60 + 81).heads == {(1, 0): 1}
    # caches and logits come before what is larger, and views last
    values = seen([(2, (50, 50)), (1, (40, 40)), (0, (2, 2))])
    assert plan(values, [], NUMBERS).numbers == {(2, 0)}
    assert plan(values, [], 2 * NUMBERS).numbers == {(2, 0), (1, 0)}


def test_the_first_nan_is_known_even_where_nothing_of_it_is_kept() -> None:
    collector = Collector(plan([], [], 0))
    for at, number in enumerate([1.0, np.inf, np.nan, np.nan]):
        collector.add(at, 0, np.array([number]))
    found = collector.done(0, Counted(4, 0, 0, 4))
    assert found.nbytes == 0 and found.first == {"inf": (1, 0), "nan": (2, 0)}


def test_budgets_are_read_and_what_is_none_is_refused() -> None:
    assert [as_bytes(text) for text in ("64 kB", "1.5MB", "2 MiB", 7)] == [64_000, 1_500_000, 2 << 20, 7]
    wrong: list[Any] = ["64 apples", "-1", "", -1, 1.5, True]
    for one in wrong:
        with pytest.raises(InputError, match="a budget is"):
            as_bytes(one)
