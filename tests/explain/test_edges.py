"""Graphs at the edge of what is usual: loops without an iteration, empty results, values that repeat one element."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.report.faces.report_html import report_html
from kvviz.trace.reasons import is_missed
from tests.engine.graphs import graph_of, numbers
from tests.explain.applying import problems

POLICIES = ["ideal", "never", "rten", "onnxruntime"]
LOOP = """g (int64 m, float[n] x, float[2] k) => (float[q] z) {
    y = Loop (m, , x) <body = b (int64 i, bool c, float[a] v) => (bool d, float[a] w) { d = Identity(c) w = Neg(v) }>
    z = Concat <axis = 0> (y, k) }"""
SCAN = """g (float[n, 2] s, float[n] x, float[2] k) => (float[q] z) {
    y = Scan (x, s) <num_scan_inputs = 1, body = b (float[a] v, float[2] r) => (float[a] w) { w = Neg(v) }>
    z = Concat <axis = 0> (y, k) }"""
REPEATED = """g (float[1] x, float[k] rows) => (float[m] z) <int64[1] three = {3}> {
    a = Sin (x) e = Expand (a, three) c = Concat <axis = 0> (e, rows) z = Relu (c) }"""


def assert_can_be_looked_at(trace: kvviz.Trace) -> None:
    """Every reader gets through, every missed op has a reason, and every fix works."""
    report = kvviz.explain(trace)
    assert "peak" in str(report) and "Peak" in report_html(report)
    assert trace.to_html() and len(trace.table()) == len(trace.steps)
    assert all(run.capacity >= 0 for cache in trace.caches for run in cache.runs)
    for entry in report.missed:
        assert entry.blockers and all(blocker.message for blocker in entry.blockers)
    assert not [hazard for hazard in kvviz.hazards(trace) if hazard.broken]
    assert problems(trace) == []


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("donate", [[], ["x"]], ids=["lent", "donated"])
@pytest.mark.parametrize("trips", [0, 1, 3])
def test_a_loop_whose_result_is_appended_to_is_explained_with_any_number_of_iterations(
    trips: int, donate: list[str], policy: str
) -> None:
    inputs = {"x": numbers(3), "k": numbers(2)}
    for text, more in ((LOOP, {"m": np.array(trips)}), (SCAN, {"s": numbers(trips, 2)})):
        trace = kvviz.run(graph_of(text), {**inputs, **more}, donate=donate, policy=policy)
        assert sum(row.iteration is not None for row in trace.frames) == trips
        assert_can_be_looked_at(trace)


def test_appending_to_what_a_loop_without_an_iteration_handed_on_needs_room_behind_the_loops_input() -> None:
    trace = kvviz.run(graph_of(LOOP), {"m": np.array(0), "x": numbers(3), "k": numbers(2)})
    (entry,) = kvviz.explain(trace).missed
    assert entry.fix is not None and entry.fix.label == "reserve 5 rows for x and donate it"
    after = entry.fix.apply()
    assert after.steps[-1].decision.dispatch == "in_place" and after.bytes_copied == 0


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("order", ["scatter, slice", "slice, scatter", "append, slice", "slice"])
def test_a_cache_that_is_sliced_to_nothing_has_meters(order: str, axis: int) -> None:
    ops: dict[str, str] = {
        "scatter": "{1} = ScatterND ({0}, at, new)",
        "append": "{1} = Concat <axis = 2> ({0}, row)",
        "slice": "{1} = Slice ({0}, o, o, axis)",
    }
    wanted = order.split(", ")
    names = ["past_key", "middle", "present_key"] if len(wanted) > 1 else ["past_key", "present_key"]
    body = "\n".join(ops[op].format(*pair) for op, pair in zip(wanted, pairwise(names)))
    text = f"""g (float[b, 2, n, 3] past_key, int64[p, 4] at, float[p] new, float[b, 2, 1, 3] row)
        => (float[d, e, f, h] present_key) <int64[1] o = {{0}}, int64[1] axis = {{{axis}}}> {{ {body} }}"""
    empty = wanted[0] == "slice"
    feeds: dict[str, Any] = {"past_key": numbers(2, 2, 4, 3), "row": numbers(2, 2, 1, 3)}
    feeds["at"] = np.zeros((0 if empty else 1, 4), np.int64)
    feeds["new"] = np.ones(len(feeds["at"]), np.float32)
    trace = kvviz.run(graph_of(text), feeds)
    (cache,) = trace.caches
    assert len(cache.runs) == 1
    assert_can_be_looked_at(trace)


@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_past_that_repeats_one_element_is_refused_for_a_reason(policy: str, rows: int) -> None:
    trace = kvviz.run(graph_of(REPEATED), {"x": numbers(1), "rows": numbers(rows)}, policy=policy)
    assert_can_be_looked_at(trace)
    if policy == "ideal" and not rows:
        assert is_missed(trace, trace.log[2])
        (blocker,) = trace.steps[2].decision.blockers
        assert (blocker.code, blocker.input) == ("NOT_CONTIGUOUS", "e")
