"""Rows of a cache: sets of them, and at which step each is written."""

from functools import cache
from typing import Any

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
flags = st.lists(st.booleans(), min_size=SIZE, max_size=SIZE)
edges = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(lambda pair: (min(pair), max(pair)))


def held(array: list[int]) -> tuple[Held, ...]:
    return row_contents.joined((i, i + 1, p) for i, p in enumerate(array) if p != NOTHING)


def cells_of(spans: tuple[Held, ...]) -> list[int]:
    array = [NOTHING] * SIZE
    for start, stop, position in spans:
        for row in range(start, stop):
            array[row] = position if position == NO_TOKEN else position + row - start
    return array


def flags_of(spans: tuple[Span, ...]) -> list[bool]:
    return [any(a <= row < b for a, b in spans) for row in range(SIZE)]


def spans(some: list[bool]) -> tuple[Span, ...]:
    return row_contents.spans_of(np.array(some, bool))


def is_short(found: tuple[Held, ...]) -> bool:
    """Sorted, without overlaps, and with no two spans that could be one."""
    return found == row_contents.joined(found) and all(a < b for a, b, _ in found)


@given(cells, edges, st.sampled_from([NO_TOKEN, 0, 3]))
def test_put_writes_rows_and_leaves_the_others(array: list[int], at: Span, position: int) -> None:
    found = row_contents.put(held(array), *at, position)
    for number, row in enumerate(range(*at)):
        array[row] = position if position == NO_TOKEN else position + number
    assert cells_of(found) == array and is_short(found)


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


@given(cells)
def test_live_and_stale_rows_are_told_apart(array: list[int]) -> None:
    assert flags_of(row_contents.live(held(array))) == [p >= 0 for p in array]
    assert flags_of(row_contents.stale(held(array))) == [p == NO_TOKEN for p in array]
    assert row_contents.count(held(array)) == sum(p != NOTHING for p in array)


@given(flags, flags)
def test_sets_of_rows_are_joined_met_and_taken_away(first: list[bool], second: list[bool]) -> None:
    a, b = spans(first), spans(second)
    assert flags_of(a) == first
    assert row_contents.union([*a, *b]) == spans([x or y for x, y in zip(first, second)])
    assert row_contents.both(a, b) == spans([x and y for x, y in zip(first, second)])
    assert row_contents.minus(a, b) == spans([x and not y for x, y in zip(first, second)])


@given(st.permutations(range(SIZE)), st.integers(0, SIZE))
def test_rows_in_the_order_of_writing_keep_their_numbers(order: list[int], length: int) -> None:
    written = order[:length]
    array = [NOTHING] * SIZE
    for number, row in enumerate(written):
        array[row] = number
    assert cells_of(row_contents.runs_of(written)) == array


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
    # then
    row = ((4, 5),)
    assert [one.written for one in between] == [row, row, (), (), (), ()]
    assert [one.pending for one in between] == [(), (), row, row, row, row]
    assert [one.written for one in trace.caches_at(steps[0] - 1)] == [()] * 6
    assert [one.pending for one in trace.caches_at(trace.runs[2].last - 1)] == [()] * 6


def test_the_bytes_of_a_row_are_there_after_its_step_and_not_before() -> None:
    trace = story("tensor_scatter", "ideal")
    told = row_steps(trace, 2)
    for one, (step,) in zip(trace.caches, told, strict=True):
        node = trace.steps[step.step].graph_node
        before, after = (_value(trace, *at) for at in ((node.inputs[0], step.step - 1), (node.outputs[0], step.step)))
        changed = np.flatnonzero((before != after).any(axis=tuple(a for a in range(before.ndim) if a != one.axis)))
        assert [(int(changed[0]), int(changed[-1]) + 1)] == list(step.rows)


def _value(trace: kvviz.Trace, name: str, step: int) -> Any:
    return np.array(trace.value(name, step))
