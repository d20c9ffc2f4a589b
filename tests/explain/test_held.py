"""Storages that are held too long, by each kind of holder and on unusual graphs; and the lives of storages, worked out
from the rows, against the bytes that the engine counted."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.debugger.cursor import Cursor
from kvviz.decode.run_sessions import SingleRun
from kvviz.explain.retention import Held
from kvviz.report.explain import explain
from kvviz.report.faces.report_html import report_html
from kvviz.report.finding_groups import held_groups
from kvviz.trace.index.value_index import index_of, live_curve
from kvviz.trace.reasons import is_missed
from tests.engine.graphs import graph_of, numbers
from tests.explain.applying import problems
from tests.explain.nested_graphs import nested
from tests.explain.test_fixes import DECODERS, POLICIES, decoded, of_seed
from tests.graph.build import file_id

X = {"x": numbers(2, 3)}
TAIL = "b = Exp(y) c = Neg(b) d = Relu(c) e = Tanh(d) z = Abs(e)"


def held(text: str, inputs: dict[str, Any] | None = None, **options: Any) -> dict[str, Held]:
    feeds = {**X, **(inputs or {})}
    report = explain(kvviz.run(graph_of(text), {n: np.array(a) for n, a in feeds.items()}, **options))
    return {one.name: one for one in report.held_too_long}


def test_an_output_of_the_run_is_held_because_it_was_asked_for_and_is_told_last() -> None:
    found = held(
        f"g (float[2, 3] x, float[2, 3] y) => (float[2, 3] a, float[2, 3] z) {{ a = Exp(x) {TAIL} }}", {"y": X["x"]}
    )
    one = found["a"]
    assert (one.last_use, one.freed, one.bytes, one.byte_steps) == (0, None, 24, 24 * 5)
    assert one.reason == "a is an output of the run, which the caller asked for"
    asked = [one.reason.endswith("which the caller asked for") for one in found.values()]
    assert asked == sorted(asked)
    others = [one.byte_steps for one, last in zip(found.values(), asked) if not last]
    assert others == sorted(others, reverse=True)


def test_a_borrowed_input_is_held_by_the_caller_and_a_donated_one_where_no_op_reads_it() -> None:
    text = "g (float[2, 3] x) => (float[2, 3] z) { y = Exp(x) " + TAIL + " }"
    assert held(text)["x"].reason == "x belongs to the caller, who did not donate it"
    assert held(text)["x"].byte_steps == 24 * 5
    assert "x" not in held(text, donate=["x"])
    text = "g (float[2, 3] x, float[2, 3] y) => (float[2, 3] z) { " + TAIL + " }"
    assert held(text, {"y": X["x"]}, donate=["x", "y"])["x"].reason == "x was donated, but no op reads it"


def test_a_small_view_keeps_a_large_block_alive() -> None:
    text = """g (float[8, 3] x, float[2, 3] y) => (float[2, 3] z) <int64[1] o = {0}, int64[1] i = {1}> {
        a = Exp(x) s = Slice(a, o, i) b = Exp(y) c = Neg(b) d = Relu(c) z = Add(d, s) }"""
    one = held(text, {"x": numbers(8, 3), "y": numbers(2, 3)})["a"]
    assert one.reason == "a small view, s of 12 B, keeps the buffer of 96 B alive"
    assert (one.bytes, one.last_use, one.byte_steps) == (84, 1, 84 * 4)


def test_an_outer_frame_holds_what_a_body_has_read_for_the_last_time() -> None:
    text = """g (float[2, 3] x) => (float[2, 3] t, float[2, 3] w) <bool c = {1}> {
        a = Exp(x)
        [if] t = If (c) <then_branch = yes () => (float[2, 3] z) { y = Neg(a) b = Exp(y) z = Relu(b) },
                         else_branch = no () => (float[2, 3] v) { v = Neg(a) }>
        [spare] p = Neg(x) w = Relu(p) }"""
    found = held(text, policy="never")
    assert found["a"].reason == "an outer frame holds a while the body of if runs"
    # Under the policy ideal the branch takes it over.
    assert not any("outer frame" in one.reason for one in held(text).values())


def test_scan_outputs_are_collected_until_the_loop_ends() -> None:
    text = """g (float[2, 3] x) => (float[2, 3] y, float[3, 2, 3] s) <int64 n = {3}, bool c = {1}> {
        [loop] y, s = Loop (n, c, x) <body = b (int64 i, bool g, float[2, 3] v)
                                             => (bool h, float[2, 3] w, float[2, 3] e) {
            h = Identity(g) e = Exp(v) w = Neg(v) }> }"""
    reasons = [one.reason for one in explain(kvviz.run(graph_of(text), dict(X))).held_too_long]
    assert not any("not recorded" in reason for reason in reasons)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("path", DECODERS, ids=file_id)
def test_whatever_is_held_in_a_decode_is_not_used_again(path: Path, policy: str) -> None:
    trace = decoded(path, 3, policy=policy)
    index = index_of(trace)
    used: dict[int, list[int]] = {}
    for step, row in enumerate(index.rows):
        for name in () if row.op.control else row.op.node.inputs:
            if (place := index.places.get((row.frame, name))) is not None:
                used.setdefault(place.storage, []).append(step)
    origins = {storage.id: storage.origin for storage in trace.storages}
    for one in explain(trace).held_too_long:
        assert origins[one.storage] != "weights" and one.reason and one.byte_steps > 0
        assert "not recorded" not in one.reason
        end = len(index.rows) if one.freed is None else one.freed
        if "small view" not in one.reason:
            assert not any(one.last_use < step <= end for step in used.get(one.storage, ()))


def test_the_same_of_many_runs_is_one_group_and_small_storages_are_left_out() -> None:
    path = next(path for path in DECODERS if "o01" in str(path))
    trace = decoded(path, 4)
    every = explain(trace).held_too_long
    groups = held_groups(trace, every)
    # then each is in at most one group, and what is left out is smaller
    grouped = [one for group in groups for one in group]
    left = [one for one in every if one not in grouped]
    assert len(grouped) + len(left) == len(every) and left
    assert max(one.bytes for one in left) < min(one.bytes for one in grouped)
    # and keys of all layers are one group, as is the mask of all runs
    assert len({(group[0].name, group[0].reason) for group in groups}) == len(groups) < len(every)
    mask = next(group for group in groups if group[0].name == "attention_mask")
    keys = next(group for group in groups if group[0].name == "present.0.key")
    assert {one.name for one in keys} == {one.name for one in every if re.fullmatch(r"present\.\d+\.key", one.name)}
    assert len(mask) == 4 and {one.name for one in mask} == {"attention_mask"}
    # and of a graph in which all is small everything is listed
    trace = kvviz.run(graph_of("g (float[2, 3] x) => (float[2, 3] z) { y = Exp(x) " + TAIL + " }"), X)
    groups = held_groups(trace, explain(trace).held_too_long)
    assert [[one.name for one in group] for group in groups] == [["x"]]


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


CAPTURING = """g (float[2, 3] x) => (float[2, 3] y) <int64 trips = {3}, bool go = {1}> {
    c = Exp(x)
    y = Loop <body = body (int64 i, bool on, float[2, 3] z) => (bool on2, float[2, 3] z2) {
        on2 = Identity(on) m = ReduceMax <keepdims = 1> (c) z2 = Sub(z, m) }> (trips, go, x) }"""


def assert_the_curve_is_the_engine_s(trace: Trace) -> None:
    index, live = index_of(trace), live_curve(index_of(trace))
    assert [live[index.moment(step)] for step in range(len(index.rows))] == [row.live for row in index.rows]
    assert live.max() == trace.peak_bytes


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("path", DECODERS, ids=file_id)
def test_the_bytes_alive_in_a_decode_are_those_that_were_counted(path: Path, policy: str) -> None:
    for options in ({}, {"kv_capacity": 40}, {"growth": "after"}):
        assert_the_curve_is_the_engine_s(decoded(path, 3, policy=policy, **options))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_bytes_alive_in_bodies_inside_bodies_are_those_that_were_counted(policy: str) -> None:
    for seed in range(150):
        assert_the_curve_is_the_engine_s(of_seed(seed, policy))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_captured_copy_is_dead_before_the_next_iteration_gets_its_own(policy: str) -> None:
    trace = kvviz.run(graph_of(CAPTURING), {"x": numbers(2, 3)}, policy=policy)
    assert_the_curve_is_the_engine_s(trace)
    copies = [placed.how for frame in trace.frames for placed in frame.bindings if placed.name == "c"]
    assert copies == ["captured by value" if policy == "rten" else "captured by reference"] * 3


def test_values_that_share_bytes_are_told_apart_from_what_was_written_over_them() -> None:
    text = """g (float[2, 3] x) => (float[6] z) <int64[1] flat = {-1}> {
        a = Exp(x) v = Reshape(a, flat) b = Neg(v) z = Relu(b) }"""
    index = index_of(kvviz.run(graph_of(text), {"x": numbers(2, 3)}))
    a, v, b = (index.places[0, name] for name in "avb")
    assert a.storage == v.storage == b.storage
    assert index.sharing((0, "a")) == index.sharing((0, "v")) == ((0, "a"), (0, "v"))
    assert index.sharing((0, "b"))[0] == (0, "b")


def test_a_trace_can_be_diagnosed_at_every_moment() -> None:
    for seed in range(12):
        model, inputs, _ = nested(seed)
        cursor = Cursor(SingleRun(kvviz.load(model), inputs))
        for _ in range(300):
            report = explain(cursor.trace)
            assert report.peak.bytes == sum(part.bytes for part in report.peak.parts)
            assert all(entry.blockers for entry in report.missed)
            if cursor.next().reason == "end":
                break
        assert_the_curve_is_the_engine_s(cursor.trace)


def test_a_trace_without_steps_can_be_diagnosed_and_the_index_is_made_anew_when_one_has_grown() -> None:
    trace = kvviz.run(graph_of("g (float[2] x) => (float[2] t) { t = Relu(x) }"), {"x": [1, 2]}, record=False)
    report = explain(trace)
    assert report.missed == () and report.held_too_long == ()
    assert report.peak.bytes == trace.peak_bytes == sum(part.bytes for part in report.peak.parts)
    text = "g (float[2] x) => (float[2] t) { a = Exp(x) t = Relu(a) }"
    session = SingleRun(graph_of(text), {"x": np.ones(2, np.float32)})
    session.advance()
    first: Any = index_of(session.trace)
    assert index_of(session.trace) is first
    session.run_to_end()
    assert index_of(session.trace) is not first


@pytest.mark.parametrize(("trips", "capacity"), [(3, 288), (4, 384)])
def test_what_a_loop_puts_together_may_make_the_buffer_larger_that_it_is_put_into(
    trips: int, capacity: int, tmp_path: Path
) -> None:
    # given: in rten 36 whole numbers fit into a buffer that held 48 floats; in NumPy they have eight bytes each
    text = """g (float[48] x, int64 n, int64[12] i) => (float[1] m, int64[12] e, int64[k, 12] s) {
        a = Exp(x) m = ReduceMax(a) r = Cast <to = 7> (m) c = Add(i, r)
        e, s = Loop (n, "", c) <body = b (int64 j, bool go, int64[12] v) => (bool on, int64[12] w, int64[12] u)
            { on = Identity(go) w = Neg(v) u = Abs(v) }> }"""
    feeds = {"x": numbers(48), "n": np.array(trips), "i": np.arange(12)}
    trace = kvviz.run(graph_of(text), feeds, policy="rten")
    trace.save(tmp_path / "trace")
    for told in (trace, Trace.load(tmp_path / "trace")):
        (block,) = [storage for storage in told.storages if storage.name == "a"]
        loop = next(step for step in told.steps if step.op_type == "Loop")
        assert block.capacity == capacity and loop.outs[1].storage == block.id
        assert block.grew == ((loop.index, capacity - 192),)
        assert_the_curve_is_the_engine_s(told)
