"""The effect on the peak, found from lives alone, against the peak of the run with the fix applied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import kvviz
from kvviz import Trace
from kvviz.explain.changes import ByValue, Donate, Reserve
from kvviz.explain.diagnose import explain
from kvviz.explain.summary import Missed
from tests.engine.graphs import graph_of, numbers
from tests.engine.random_graphs import Example, examples
from tests.explain.test_fixes import DECODERS, decoded, of_example, of_seed
from tests.graph.build import file_id

# Changes that leave the order, the outputs and the rules as they are.
_QUIET = (Donate, Reserve, ByValue)


def changes_this_op_only(before: Trace, after: Trace, entry: Missed) -> bool:
    """Whether all steps of an op ran in place after a fix, and every other step did what it did before."""
    if len(before.log) != len(after.log):
        return False
    for step, (old, new) in enumerate(zip(before.log, after.log)):
        if step in entry.steps:
            if not new.taken:
                return False
        elif (old.taken, [p and p.how for p in old.outs]) != (new.taken, [p and p.how for p in new.outs]):
            return False
    return True


def compared(trace: Trace) -> list[int]:
    """Effects of those fixes that change one op only, after comparing each with the peak of the run with the fix."""
    effects = []
    for entry in explain(trace).missed:
        if entry.fix is not None and all(isinstance(change, _QUIET) for change in entry.fix.changes):
            after = entry.fix.apply()
            if changes_this_op_only(trace, after, entry):
                assert entry.peak_effect == trace.peak_bytes - after.peak_bytes, entry
                effects.append(entry.peak_effect)
    return effects


@settings(max_examples=300, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(example=examples())
def test_the_effect_is_what_the_applied_fix_saves(example: Example) -> None:
    compared(of_example(example, "ideal"))


def test_the_effect_is_true_inside_bodies_too() -> None:
    effects = [effect for seed in range(150) for effect in compared(of_seed(seed, "ideal"))]
    assert sum(effect > 0 for effect in effects) > 10 and 0 in effects


def test_a_cache_that_is_copied_in_every_run_is_one_storage_in_the_end() -> None:
    """Without room old and new rows live side by side; with room there is one block, as large as the last one."""
    text = "g (float[1, N, 2] past, float[1, 1, 2] new) => (float[1, M, 2] t) { t = Concat <axis = 1> (past, new) }"
    trace = kvviz.run(graph_of(text), {"past": numbers(1, 4, 2), "new": numbers(1, 1, 2)})
    (entry,) = explain(trace).missed
    assert entry.fix is not None
    assert trace.peak_bytes == 32 + 8 + 40
    assert entry.fix.apply().peak_bytes == 40 + 8
    assert entry.peak_effect == 32


def test_an_input_of_another_shape_could_not_have_held_the_output() -> None:
    text = "g (float[3] r, float[2, 3] x) => (float[2, 3] t) { a = Exp(r) t = Add(a, x) }"
    trace = kvviz.run(graph_of(text), {"r": numbers(3), "x": numbers(2, 3)}, donate=["r"])
    report = explain(trace)
    assert [entry.op_type for entry in report.missed] == ["Add"]
    assert report.missed[0].peak_effect == trace.peak_bytes - report.missed[0].fix.apply().peak_bytes  # type: ignore[union-attr]


def test_rows_that_are_repeated_without_memory_do_not_fit_where_they_came_from() -> None:
    text = """g (float[1, 3] x) => (float[6] t) <int64[2] to = {2, 3}, int64[1] flat = {-1}> {
        e = Expand(x, to) r = Reshape(e, flat) t = Relu(r) }"""
    (entry,) = explain(kvviz.run(graph_of(text), {"x": numbers(1, 3)})).missed
    assert (entry.op_type, entry.bytes, entry.peak_effect) == ("Reshape", 24, 0)


@pytest.mark.parametrize("path", DECODERS[:4], ids=file_id)
def test_nobody_saves_more_than_there_is_beside_the_weights(path: Any) -> None:
    trace = decoded(path, 3)
    weights = sum(s.capacity for s in trace.storages if s.origin == "weights")
    effects = np.array([entry.peak_effect for entry in explain(trace).missed])
    assert effects.max() <= trace.peak_bytes - weights
