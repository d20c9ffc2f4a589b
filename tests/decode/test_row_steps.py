"""At which step a row of a cache is written: what lies in its bytes before and after it."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.caches.row_steps import row_steps
from tests.view.conftest import STORYTELLER

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
