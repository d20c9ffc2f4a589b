"""Caches outside of a plain token loop: beams, loops inside the graph, states, the encoder's rows, joined halves."""

from typing import Any

import numpy as np

import kvviz
from kvviz import Trace
from tests.decode.oracle import assert_close, in_onnxruntime
from tests.decode.small import HEADS, MS, NAMES, SIZE, WIDTH, Feeds, filled, gathered
from tests.engine.graphs import numbers, proto_of
from tests.graph.build import model, node

PROMPT = [3, 7, 1, 9]


def streamed(proto: Any, chunks: list[Feeds], states: Feeds, pairs: dict[str, str]) -> Trace:
    """The trace of some chunks, which give what they give in onnxruntime."""
    trace, carried = kvviz.stream(kvviz.load(proto), chunks, states=states, poison=True), dict(states)
    for chunk, have in zip(chunks, trace.results, strict=True):
        outputs = in_onnxruntime(proto, {**chunk, **carried})
        carried = {input: outputs[output] for input, output in pairs.items()}
        for name, value in have.items():
            assert_close(value, outputs[name])
    for name, value in trace.outputs.items():
        assert_close(value, outputs[name])
    return trace


def test_beams_that_change_places_are_copied_before_they_are_appended_to() -> None:
    orders = [[0, 1], [1, 0], [1, 1], [0, 0]]
    chunks: list[Feeds] = []
    for past, order in enumerate(orders):
        ids = np.array([[past + 1], [past + 9]])
        chunks.append({"input_ids": ids, "cache_position": np.array([past]), "beam_idx": np.array(order)})
    trace = streamed(gathered().proto, chunks, filled(0, [0, 0]), NAMES)
    row = 2 * HEADS * SIZE * 4
    for kept in trace.caches:
        assert (kept.protocol, kept.axis) == ("growing", 2)
        assert [run.valid for run in kept.runs] == [1, 2, 3, 4]
        # Once to sort, once to append.
        assert [run.bytes_copied for run in kept.runs] == [2 * past * row for past in range(4)]
        assert [run.reallocations for run in kept.runs] == [1, 2, 2, 2]


def test_a_cache_that_a_loop_carries_is_written_at_every_turn() -> None:
    proto = proto_of("""g (int64 trips, int64 start, float[1,2,8,4] past, float[1,2,1,4] x)
        => (float[1,2,8,4] present, float[1,2,1,4] end) <int64[4] rowshape = {1, 2, 1, 4}> {
        present, end = Loop (trips, , past, x) <body = b (int64 i, bool go, float[1,2,8,4] inner, float[1,2,1,4] new)
            => (bool go2, float[1,2,8,4] written, float[1,2,1,4] new2) {
            go2 = Identity (go)  place = Add (i, start)  at = Expand (place, rowshape)
            written = ScatterElements <axis = 2> (inner, at, new)  new2 = Neg (new) }> }""")
    feeds: Feeds = {"trips": np.array(3), "start": np.array(2), "x": np.ones((1, 2, 1, 4), np.float32)}
    feeds["past"] = np.zeros((1, 2, 8, 4), np.float32)
    feeds["past"][:, :, :2] = 5
    wanted = in_onnxruntime(proto, feeds)
    for donated in (False, True):
        mine = {**feeds, "past": feeds["past"].copy()}
        trace = kvviz.run(kvviz.load(proto), mine, donate=["past"] if donated else (), poison=True)
        assert_close(trace.outputs["present"], wanted["present"])
        (kept,) = trace.caches
        (run,) = kept.runs
        assert (kept.protocol, kept.axis) == ("static", 2)
        assert (run.rows_written, run.valid, run.capacity, run.stale) == (3, 5, 8, 0)
        assert run.items[0].wrote == ((2, 5),) and run.items[0].held == ((0, 5, 0),)
        # The first turn copies a borrowed buffer, and owns what it made.
        assert (run.bytes_copied, run.reallocations) == ((0, 0) if donated else (feeds["past"].nbytes, 1))


def test_keys_and_values_in_one_tensor_are_appended_apart_and_joined() -> None:
    proto = proto_of("""g (float[2,1,4,s,8] past_0, float[1,4,n,8] k, float[1,4,n,8] v) => (float[2,1,4,t,8] present_0)
        <int64[1] zero = {0}> {
        pk, pv = Split <axis = 0, num_outputs = 2> (past_0)  k0 = Squeeze (pk, zero)  v0 = Squeeze (pv, zero)
        nk = Neg (k)  k1 = Concat <axis = 2> (k0, nk)  k2 = Unsqueeze (k1, zero)
        nv = Neg (v)  v1 = Concat <axis = 2> (v0, nv)  v2 = Unsqueeze (v1, zero)
        present_0 = Concat <axis = 0> (k2, v2) }""")
    feeds: Feeds = {"past_0": numbers(2, 1, 4, 3, 8), "k": numbers(1, 4, 2, 8), "v": numbers(1, 4, 2, 8, seed=1)}
    trace = kvviz.run(kvviz.load(proto), feeds)
    assert_close(trace.outputs["present_0"], in_onnxruntime(proto, feeds)["present_0"])
    (kept,) = trace.caches
    (run,) = kept.runs
    assert (kept.protocol, kept.axis, run.valid, run.rows_written) == ("growing", 3, 5, 2)
    assert run.items[0].held == ((0, 5, 0),) and run.items[0].wrote == ((3, 5),)
    # Both halves are copied to be longer, and once more to be joined.
    written = sum(step.written for step in trace.steps if step.op_type == "Concat")
    assert run.bytes_written == written == 2 * trace.outputs["present_0"].nbytes


def test_one_operator_may_keep_keys_and_values_in_one_tensor() -> None:
    weights: Any = {"w": numbers(WIDTH, 3 * WIDTH), "b": numbers(3 * WIDTH)}
    fused = node("Attention", "x w b - past_0", "y present_0", domain=MS, num_heads=HEADS, unidirectional=1)
    proto = model(
        [fused],
        [f"x float 1 n {WIDTH}", f"past_0 float 2 1 {HEADS} s {SIZE}"],
        [f"y float 1 n {WIDTH}", f"present_0 float 2 1 {HEADS} t {SIZE}"],
        domains=[MS],
        **weights,
    )
    chunks: list[Feeds] = [{"x": numbers(1, size, WIDTH, seed=past)} for past, size in ((0, 3), (3, 1), (4, 1))]
    states: Feeds = {"past_0": np.zeros((2, 1, HEADS, 0, SIZE), np.float32)}
    trace = streamed(proto, chunks, states, {"past_0": "present_0"})
    (kept,) = trace.caches
    row = 2 * HEADS * SIZE * 4
    assert (kept.protocol, kept.axis) == ("growing", 3)
    assert [(run.valid, run.rows_written, run.rows_read) for run in kept.runs] == [(3, 3, 3), (4, 1, 4), (5, 1, 5)]
    assert [run.bytes_copied for run in kept.runs] == [0, 3 * row, 4 * row]
    assert [run.bytes_written for run in kept.runs] == [3 * row, 4 * row, 5 * row]
