"""Values of the past, computed again, and a trace made again: from inputs as they were given, in memory as it was."""

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.engine.sessions import replay
from kvviz.engine.sessions.recipe import Kept
from kvviz.errors import ReplayError
from kvviz.memory.storage import find_room, root_of
from tests.decode.oracle import Watched
from tests.engine.graphs import graph_of, numbers, run
from tests.engine.test_control import FUNCTIONS
from tests.graph.build import MODELS
from tests.outside.told import loaded

DAG = """g (float[4, 4] x) => (float[4, 4] y, float[4] z) <int64[1] o = {1}> {
    a = Exp(x) b = Neg(a) c = Transpose(b) d = MatMul(c, x) e = Tanh(d) f = Add(e, c) h = Sqrt(a)
    i = Mul(f, h) z = ReduceSum <keepdims = 0> (i, o) y = Relu(i) }"""
CHAIN = "g (float[4] x) => (float[4] y) { a = Exp(x) b = Neg(a) c = Tanh(b) y = Relu(c) }"


@pytest.mark.parametrize("donate", [[], ["x"]])
@pytest.mark.parametrize("policy", ["ideal", "never"])
def test_every_value_at_every_step_is_what_a_run_that_returns_it_gives(policy: str, donate: list[str]) -> None:
    trace = run(DAG, {"x": numbers(4, 4)}, policy=policy, donate=donate)
    asked = [*trace.graph.producers, "x"]
    truth = kvviz.run(trace.graph, {"x": numbers(4, 4)}, outputs=asked, policy="never").outputs
    seen = 0
    for step in trace.steps:
        for out in step.outs:
            np.testing.assert_array_equal(trace.value(out.name, step.index), truth[out.name])
        for name in truth:
            # Every other value is right or said to be gone.
            with suppress(ReplayError):
                np.testing.assert_array_equal(trace.value(name, step.index), truth[name])
                seen += 1
    assert seen > 2 * len(trace.steps)


def test_the_replay_does_not_look_at_arrays_that_have_changed_since() -> None:
    mine, given = numbers(4), [numbers(2), numbers(2, seed=1)]
    trace = kvviz.run(graph_of(CHAIN), {"x": mine}, donate=["x"], poison=True)
    mine[:] = np.nan
    trace.outputs["y"][:] = np.nan
    trace.value("a", 0)[:] = 7
    np.testing.assert_array_equal(trace.value("a", 0), np.exp(numbers(4)))
    np.testing.assert_array_equal(trace.value("y"), np.maximum(np.tanh(-np.exp(numbers(4))), 0))
    graph = graph_of("g (seq(float[2]) s) => (float[2] y) <int64 one = {1}> { y = SequenceAt(s, one) }")
    trace = kvviz.run(graph, {"s": given})
    given[1][:] = 0
    np.testing.assert_array_equal(trace.value("y"), numbers(2, seed=1))


def test_values_inside_functions_are_right() -> None:
    trace = run(FUNCTIONS, {"x": numbers(4)})
    a = np.exp(numbers(4))
    for step, name, value in ((1, "q", a), (2, "s", -a), (4, "q", a + a), (6, "m", 6 * a), (8, "y", 4 * a)):
        np.testing.assert_allclose(trace.value(name, step), value, rtol=1e-6)


def test_values_of_every_iteration_are_those_that_the_loop_stacks() -> None:
    text = """g (float[2] x, int64 n) => (float[2] y, float[k, 2] s, float[k, 2] t) {
        y, s, t = Loop (n, "", x) <body = b (int64 i, bool go, float[2] v) => (
            bool on, float[2] w, float[2] so, float[2] to) {
            on = Identity(go) [sin] p = Sin(v) so = Identity(p) [neg] w = Neg(p) to = Identity(w) }> }"""
    trace = run(text, {"x": numbers(2), "n": np.array(5)})
    for name, by, stacked in (("p", "sin", "s"), ("w", "neg", "t")):
        values = [trace.value(name, s.index) for s in trace.steps if s.node == by]
        np.testing.assert_array_equal(values, trace.outputs[stacked])
    carried = [trace.value("v", s.index) for s in trace.steps if s.node == "on"]
    np.testing.assert_array_equal(carried[1:], trace.outputs["t"][:-1])


@pytest.mark.parametrize("form", ["concat", "merged_if", "tensor_scatter", "gqa"])
def test_values_of_the_fourth_run_of_a_decode_are_those_of_that_run_by_itself(form: str) -> None:
    graph = kvviz.load(MODELS / "storyteller" / form / "model.onnx")
    session = Watched(graph, [1, 5, 9], max_new_tokens=5, kv_capacity=80, poison=True)
    trace = session.run_to_end()
    steps = [s for s in trace.steps[trace.runs[3].first : trace.runs[3].last] if not s.frame]
    main = [s for s in steps if s.outs and s.outs[0].shape is not None]
    for step in main[:: max(1, len(main) // 12)]:
        name = step.outs[0].name
        alone = kvviz.run(graph, session.fed[3], outputs=[name], policy="never").outputs[name]
        np.testing.assert_array_equal(trace.value(name, step.index), alone)


def test_a_value_that_is_gone_not_there_yet_or_unknown_is_not_guessed() -> None:
    trace = run(CHAIN, {"x": numbers(4)})
    for name, step in (("a", 1), ("b", 3), ("c", 1), ("nothing", 2)):
        with pytest.raises(ReplayError, match=f"value '{name}' does not exist"):
            trace.value(name, step)
    for step in (-1, 4):
        with pytest.raises(ReplayError, match=f"step {step} does not exist; the trace has 4 steps"):
            trace.value("y", step)
    with pytest.raises(ReplayError, match="loaded from a file"):
        loaded(trace).value("y")


def test_inputs_beyond_the_budget_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "BUDGET", 15)
    trace = run(CHAIN, {"x": numbers(4)})
    with pytest.raises(ReplayError, match="value 'y' was not recorded: the inputs of its run were larger"):
        trace.value("y")
    with pytest.raises(ReplayError, match="larger than the budget"):
        trace.recipe.again()
    monkeypatch.setattr(replay, "BUDGET", 16)
    assert run(CHAIN, {"x": numbers(4)}).value("y").shape == (4,)


def test_random_numbers_are_not_drawn_again() -> None:
    text = "g (float[64] x) => (float[64] y) { a = Exp(x) [dice] r = RandomNormalLike%s(x) y = Add(a, r) }"
    trace = run(text % "", {"x": numbers(64)})
    np.testing.assert_array_equal(trace.value("a", 0), np.exp(numbers(64)))
    with pytest.raises(ReplayError, match="'y' was not recorded: dice would draw other random numbers"):
        trace.value("y")
    seeded = run(text % " <seed = 3.0>", {"x": numbers(64)})
    np.testing.assert_array_equal(seeded.value("y"), seeded.outputs["y"])


def test_values_of_a_run_that_carries_nothing_on_are_those_of_its_own_inputs() -> None:
    # given a stream whose chunks have nothing to do with each other, with a branch in every run
    text = """g (float[4] x) => (float[4] y) <bool c = {1}> { a = Exp(x)
        y = If (c) <then_branch = t () => (float[4] u) { p = Neg(a) u = Exp(p) },
                    else_branch = e () => (float[4] v) { v = Neg(a) }> }"""
    chunks = [{"x": numbers(4, seed=seed)} for seed in range(3)]
    trace = kvviz.stream(graph_of(text), chunks)
    # then what is read of each run, inside of the branch and out, follows from that run's chunk
    for chunk, recorded in zip(chunks, trace.runs, strict=True):
        steps = {out.name: step.index for step in trace.steps[recorded.first : recorded.last] for out in step.outs}
        np.testing.assert_array_equal(trace.value("a", steps["a"]), np.exp(chunk["x"]))
        np.testing.assert_array_equal(trace.value("p", steps["p"]), -np.exp(chunk["x"]))


APPEND = "g (float[1, N, 2] past, float[1, 1, 2] new) => (float[1, M, 2] t) { t = Concat <axis = 1> (past, new) }"
VAD = MODELS / "o08_silero_vad_sequence"


def totals(trace: Trace) -> list[Any]:
    runs = [(run.peak_bytes, run.bytes_copied, run.bytes_written, run.bytes_moved_outside) for run in trace.runs]
    return [runs, trace.peak_bytes, trace.bytes_allocated, trace.tokens, [s.decision.taken for s in trace.steps]]


def bits(outputs: dict[str, Any]) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in outputs.items()}


def test_kept_arrays_share_memory_as_the_given_ones_did() -> None:
    block, alone = numbers(20), numbers(2, 3)
    turned = np.asfortranarray(numbers(2, 3))
    given: dict[str, Any] = {
        "a": block[2:8],
        "b": block[4:12:2],
        "c": block[::-1],
        "d": alone,
        "e": turned,
        "f": [alone, alone],
        "g": np.broadcast_to(block[2:4], (3, 2)),
        "s": np.array(["a", "b"], object),
        "n": np.array(3),
        "z": np.zeros((0, 4), np.float32),
        "o": None,
    }
    fresh = Kept(given).fresh()
    for name in "abcdeg":
        np.testing.assert_array_equal(fresh[name], given[name])
        assert fresh[name].strides == given[name].strides
        assert not np.shares_memory(fresh[name], given[name])
        assert root_of(fresh[name]).nbytes == root_of(given[name]).nbytes
    assert root_of(fresh["a"]) is root_of(fresh["b"]) is root_of(fresh["c"]) is root_of(fresh["g"])
    assert np.shares_memory(fresh["a"], fresh["b"]) and not np.shares_memory(fresh["a"], fresh["d"])
    assert [element.tolist() for element in fresh["f"]] == [alone.tolist()] * 2
    assert fresh["s"].tolist() == ["a", "b"] and fresh["n"].shape == () and fresh["z"].shape == (0, 4)
    assert fresh["o"] is None


@pytest.mark.parametrize("rows", [0, 3])
def test_kept_room_is_room_again(rows: int) -> None:
    past = kvviz.reserve(numbers(2, rows, 4), 1, 9)
    kept = Kept({"past": past, "x": numbers(3)})
    fresh = kept.fresh()["past"]
    room = find_room(root_of(fresh), fresh)
    assert room is not None and (room.axis, room.rows, room.filled) == (1, 9, rows)
    assert kept.given.layouts["past"].room == (1, 9) and "x" not in kept.given.layouts
    np.testing.assert_array_equal(fresh, past)


def test_a_single_run_is_made_again_although_it_overwrote_its_inputs() -> None:
    past = kvviz.reserve(numbers(1, 4, 2), 1, 9)
    trace = kvviz.run(graph_of(APPEND), {"past": past, "new": numbers(1, 1, 2)}, donate=["past"])
    first = bits(trace.outputs)
    past[...] = 0
    again = trace.recipe.again()
    assert bits(again.outputs) == first != bits(trace.outputs) and totals(again) == totals(trace)
    assert bits(again.recipe.again().outputs) == first


def test_a_batch_of_prompts_that_goes_on_from_given_caches_is_made_again() -> None:
    graph = kvviz.load(MODELS / "storyteller" / "concat" / "model.onnx")
    first = kvviz.decode(graph, [[5, 6, 7], [8]], 2, progress=False)
    caches = {cache.input: first.outputs[cache.output] for cache in first.caches}
    trace = kvviz.decode(graph, [[3], [4]], 3, inputs=caches, donate=list(caches), progress=False)
    again = trace.recipe.again()
    assert again.batch_tokens == trace.batch_tokens and totals(again) == totals(trace)


def test_a_stream_is_made_again() -> None:
    reference = np.load(VAD / "ref.npz")
    chunks = [{"input": reference[f"run{run}.in.input"].copy()} for run in (0, 1)]
    trace = kvviz.stream(kvviz.load(VAD / "model.onnx"), chunks, donate="input")
    for chunk in chunks:
        chunk["input"][...] = 0
    again = trace.recipe.again()
    assert bits(again.outputs) == bits(trace.outputs) and totals(again) == totals(trace)
    assert [bits(result) for result in again.results] == [bits(result) for result in trace.results]
