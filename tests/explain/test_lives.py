"""The lives of storages, worked out from the rows, against the bytes that the engine counted while it ran."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.debugger.cursor import Cursor
from kvviz.decode.run_sessions import SingleRun
from kvviz.report.explain import explain
from kvviz.trace.index.value_index import index_of, live_curve
from tests.engine.graphs import graph_of, numbers
from tests.explain.nested_graphs import nested
from tests.explain.test_fixes import DECODERS, decoded
from tests.graph.build import file_id

POLICIES = ["ideal", "never", "rten", "onnxruntime"]
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
        model, inputs, donate = nested(seed)
        given_ = {name: array.copy() for name, array in inputs.items()}
        assert_the_curve_is_the_engine_s(kvviz.run(kvviz.load(model), given_, donate=donate, policy=policy))


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
