"""Rows of a cache: sets of them, and at which step each is written."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvviz
from kvviz.caches import row_contents
from kvviz.caches.row_contents import NO_TOKEN
from kvviz.caches.stored_rows import row_steps
from kvviz.trace.records import Held, Span
from tests.view.conftest import STORYTELLER

SIZE, NOTHING = 12, -2
cells = st.lists(st.sampled_from([NOTHING, NO_TOKEN, *range(6)]), min_size=SIZE, max_size=SIZE)
edges = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(lambda pair: (min(pair), max(pair)))


def held(array: list[int]) -> tuple[Held, ...]:
    return row_contents.joined((i, i + 1, p) for i, p in enumerate(array) if p != NOTHING)


def cells_of(spans: tuple[Held, ...]) -> list[int]:
    array = [NOTHING] * SIZE
    for start, stop, position in spans:
        for row in range(start, stop):
            array[row] = position if position == NO_TOKEN else position + row - start
    return array


def spans(some: list[bool]) -> tuple[Span, ...]:
    return row_contents.spans_of(np.array(some, bool))


def is_short(found: tuple[Held, ...]) -> bool:
    """Sorted, without overlaps, and with no two spans that could be one."""
    return found == row_contents.joined(found) and all(a < b for a, b, _ in found)


@given(cells, edges)
def test_cut_and_drop_are_a_part_and_the_rest(array: list[int], at: Span) -> None:
    inside = [p if at[0] <= row < at[1] else NOTHING for row, p in enumerate(array)]
    outside = [NOTHING if at[0] <= row < at[1] else p for row, p in enumerate(array)]
    assert cells_of(row_contents.cut(held(array), *at)) == inside
    assert cells_of(row_contents.drop(held(array), *at)) == outside


@given(cells, st.lists(edges, max_size=3))
def test_tokens_at_positions_of_padding_are_no_tokens(array: list[int], padding: list[Span]) -> None:
    found = row_contents.without(held(array), padding)
    assert cells_of(found) == [
        NO_TOKEN if p >= 0 and any(a <= p < b for a, b in padding) else p for p in array
    ] and is_short(found)


FORMS = ("concat", "gqa", "static_scatter_nd", "tensor_scatter", "merged_if", "attention_24")


@cache
def story(form: str, policy: str) -> kvviz.Trace:
    graph = kvviz.load(STORYTELLER / form / "model.onnx")
    return kvviz.decode(graph, [1, 77, 108], 4, policy=policy, progress=False)


@pytest.mark.parametrize("policy", ["ideal", "never"])
@pytest.mark.parametrize("form", FORMS)
def test_every_row_that_a_run_writes_is_written_by_one_of_its_ops(form: str, policy: str) -> None:
    trace = story(form, policy)
    for run in trace.runs:
        for one, told in zip(trace.caches, row_steps(trace, run.index), strict=True):
            rows = [row for step in told for span in step.rows for row in range(*span)]
            wrote = {row for item in one.runs[run.index].items for span in item.wrote for row in range(*span)}
            assert sorted(rows) == sorted(wrote), (one.name, run.index)
            assert wrote
            for step in told:
                # the op stores into the block in which the cache leaves the run
                outs = [out.storage for out in trace.steps[step.step].outs if out.how not in ("view", "passed")]
                assert one.runs[run.index].storage in outs


@pytest.mark.parametrize("form", ["concat", "static_scatter_nd"])
def test_the_cache_of_a_later_layer_waits_while_that_of_an_earlier_one_has_its_row(form: str) -> None:
    trace = story(form, "ideal")
    steps = [told[-1].step for told in row_steps(trace, 2)]
    assert steps == sorted(steps)
    # when the cursor stands between the layers
    between = trace.caches_at(steps[1])
    row = ((4, 5),)
    assert [one.written for one in between] == [row, row, (), (), (), ()]
    assert [one.pending for one in between] == [(), (), row, row, row, row]
    assert [one.written for one in trace.caches_at(steps[0] - 1)] == [()] * 6
    assert [one.pending for one in trace.caches_at(trace.runs[2].last - 1)] == [()] * 6
