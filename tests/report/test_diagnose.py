"""The report as a whole: that its numbers add up, what the peak is made of, and what it says about caches."""

from pathlib import Path

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.explain.retention import GROUPS
from kvviz.report.explain import explain
from kvviz.trace.outcome import spent
from kvviz.trace.reasons import is_missed
from tests.engine.graphs import graph_of, numbers
from tests.explain.test_fixes import DECODERS, POLICIES, decoded
from tests.explain.test_summary import adds_up
from tests.graph.build import MODELS, file_id
from tests.test_models import graph_of as model_of

MERGED = MODELS / "storyteller" / "merged_if" / "model.onnx"


@pytest.mark.parametrize("path", DECODERS, ids=file_id)
@pytest.mark.parametrize("turn", [0, 1])
def test_the_ranked_bytes_are_those_of_the_missed_steps(path: Path, turn: int) -> None:
    # Each model under two policies in turn.
    policy = POLICIES[(2 * DECODERS.index(path) + turn) % 4]
    trace = decoded(path, 3, policy=policy)
    report = explain(trace)
    rows = trace.log
    listed = [step for entry in report.missed for step in entry.steps]
    assert len(set(listed)) == len(listed) == report.counts.missed
    assert {step for step, row in enumerate(rows) if is_missed(trace, row)} <= set(listed)
    total = sum(entry.bytes for entry in report.missed)
    assert total == sum(spent(rows[step]) for step in listed) == report.counts.missed_bytes
    assert [entry.bytes for entry in report.missed] == sorted((e.bytes for e in report.missed), reverse=True)
    assert all(entry.blockers for entry in report.missed)
    ways = report.counts
    assert ways.in_place + ways.views + ways.missed + ways.cannot + ways.bodies == len(trace.steps)
    if policy == "ideal":
        told = [step for step in trace.steps if {"in place", "append"} & {out.how for out in step.outs}]
        assert ways.in_place == sum(step.index not in listed for step in told)
        assert ways.views == sum({out.how for out in step.outs} == {"view"} for step in trace.steps)
    assert (ways.in_place == 0 or policy != "never") and (total > 0 or policy in ("rten", "onnxruntime"))
    assert adds_up(report.peak, trace) and sum(report.peak.groups.values()) == trace.peak_bytes
    assert set(report.peak.groups) <= set(GROUPS) and "weights" in report.peak.groups


def test_a_view_that_had_to_copy_is_missed_too_and_a_cast_to_another_type_is_not() -> None:
    text = """g (float[2, 3] x) => (float[6] r) <int64[1] flat = {-1}> {
        a = Exp(x) t = Transpose(a) r = Reshape(t, flat) }"""
    (entry,) = explain(kvviz.run(graph_of(text), {"x": numbers(2, 3)}, donate=["x"])).missed
    assert (entry.op_type, entry.bytes, entry.step) == ("Reshape", 24, 2)
    assert [str(blocker.code) for blocker in entry.blockers] == ["NOT_CONTIGUOUS"] and entry.fix is None

    text = "g (float[2, 3] x) => (double[2, 3] t) { a = Exp(x) t = Cast <to = 11> (a) }"
    assert explain(kvviz.run(graph_of(text), {"x": numbers(2, 3)}, donate=["x"])).missed == ()


def test_the_groups_of_the_peak_say_whose_bytes_they_are() -> None:
    text = """g (float[64] x, float[2, 3] past_key) => (float[3, 3] present_key, float[64] z)
        <float[1, 3] row = {1, 2, 3}, int64[1] o = {0}, int64[1] i = {1}, int64[1] n = {64}> {
        present_key = Concat <axis = 0> (past_key, row)
        a = Exp(x) s = Slice(a, o, i) b = Neg(x) c = Exp(b) d = Mul(c, b) z = Add(d, s) }"""
    report = explain(kvviz.run(graph_of(text), {"x": numbers(64), "past_key": numbers(2, 3)}))
    groups = {part.name: part.group for part in report.peak.parts}
    assert groups["x"] == "inputs" and groups["present_key"] == "cache" and groups["row"] == "weights"
    assert groups["past_key"] == "cache" and groups["a"] == "views"
    assert "activations" in groups.values()
    text = """g (float[8, 3] x) => (float[8, 3] a, float[64, 3] z) <int64[2] to = {8, 3}, int64[2] times = {8, 1}> {
        a = Exp(x) b = Neg(x) c = Exp(b) z = Tile(c, times) }"""
    report = explain(kvviz.run(graph_of(text), {"x": numbers(8, 3)}))
    assert {part.name: part.group for part in report.peak.parts}["a"] == "held too long"


def test_a_reserved_block_that_the_first_branch_throws_away_is_reported_and_the_fix_keeps_it() -> None:
    graph = kvviz.load(MERGED)
    trace = kvviz.decode(graph, [1, 5, 9], 8, kv_capacity=64, progress=False)
    thrown, copied = explain(trace).caches
    block = next(bound.storage for bound in trace.log.frames[0].bindings if bound.name == "past_key_values.0.key")
    assert str(thrown).startswith(
        f"run 0: the buffer B{block} with room for 64 rows of 0.key was thrown away, "
        "because the branch that ran makes the cache anew"
    )
    assert thrown.fix is not None and thrown.fix.label == 'growth="after"'
    assert thrown.kind == "thrown away" and len(thrown.caches) == len(trace.caches)
    assert copied.bytes == sum(run.bytes_copied for cache in trace.caches for run in cache.runs)
    after = thrown.fix.apply()
    (moved,) = explain(after).caches
    assert moved.kind == "moved" and moved.bytes == sum(run.bytes_moved_outside for run in after.runs) > 0
    assert after.tokens == trace.tokens and after.bytes_copied < trace.bytes_copied


def test_caches_with_room_leave_nothing_to_say() -> None:
    graph = model_of("storyteller/concat")
    assert explain(kvviz.decode(graph, [1, 5, 9], 5, kv_capacity=64, progress=False)).caches == ()
    (copied,) = explain(kvviz.decode(graph, [1, 5, 9], 5, progress=False)).caches
    assert copied.fix is not None and copied.fix.label == "kv_capacity=7"
    assert explain(copied.fix.apply()).caches == ()


@pytest.mark.parametrize(("perm", "copied"), [("0, 1, 2", "112 B"), ("1, 0, 2", "48 B")])
def test_rows_that_went_through_a_transpose_are_counted_from_a_file_as_before(
    perm: str, copied: str, tmp_path: Path
) -> None:
    # given: a past that is made longer twice, and in between is turned, or stays as it is
    graph = graph_of(f"""g (float[2, 2, past] x) => (float[2, 2, more] y, float[2, 2, most] z)
        <float[2, 2, 1] w = {{1, 2, 3, 4}}> {{
        a = Concat <axis = -1> (x, w) y = Transpose <perm = [{perm}]> (a) z = Concat <axis = 2> (y, w) }}""")
    trace = kvviz.run(graph, {"x": np.zeros((2, 2, 3), np.float32)})
    trace.save(tmp_path / "trace")
    for told in (trace, Trace.load(tmp_path / "trace")):
        (found,) = explain(told).caches
        assert found.kind == "copied" and f"{copied} of past rows were copied" in str(found)
