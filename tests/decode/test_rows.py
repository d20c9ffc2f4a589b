"""Rows of a cache: sets of them, and at which step each is written."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvviz
from kvviz.caches import row_contents
from kvviz.caches.row_contents import EMPTY, NO_TOKEN, NOTHING, put
from kvviz.caches.stored_rows import row_steps
from kvviz.trace.records import Span
from tests.view.conftest import STORYTELLER

rows_of_a_cache = st.lists(st.sampled_from([EMPTY, NO_TOKEN, *range(6)]), max_size=12)
edges = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda pair: (min(pair), max(pair)))


@given(rows_of_a_cache)
def test_the_spans_of_rows_are_as_few_as_can_be_and_hold_the_same(rows: list[int]) -> None:
    cells = np.array(rows, np.int64)
    found = row_contents.held_in(cells)
    assert [(row, p) for row, p in enumerate(put(NOTHING, *found)) if p != EMPTY] == [
        (row, p) for row, p in enumerate(rows) if p != EMPTY
    ]
    starts = {start for start, _, _ in found}
    for row, p in enumerate(rows):
        follows = row > 0 and rows[row - 1] != EMPTY and p == rows[row - 1] + (rows[row - 1] >= 0)
        assert (row in starts) == (p != EMPTY and not follows)


@given(rows_of_a_cache, st.lists(edges, max_size=3))
def test_tokens_at_positions_of_padding_are_no_tokens(rows: list[int], padding: list[Span]) -> None:
    found = row_contents.without(np.array(rows, np.int64), padding)
    assert found.tolist() == [NO_TOKEN if p >= 0 and any(a <= p < b for a, b in padding) else p for p in rows]


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
