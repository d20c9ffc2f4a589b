"""Every way to keep a cache, in token loops and outside of them, as onnxruntime does it: same numbers, same caches."""

from functools import cache
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.caches.row_contents import live
from kvviz.errors import InputError
from kvviz.graph.cache_pairs import cache_pairs
from kvviz.graph.model import Graph
from tests.decode.oracle import assert_close, in_onnxruntime, told
from tests.decode.small import DECODERS, HEADS, MS, NAMES, SIZE, WIDTH, WINDOW, Feeds, filled, gathered, small
from tests.engine.graphs import numbers, proto_of
from tests.graph.build import MODELS, model, node

PROMPT, COUNT = [3, 7, 1, 9], 12


@cache
def loaded(name: str) -> Graph:
    return kvviz.load(small(name).proto)


@cache
def answer(name: str) -> tuple[list[int], list[np.ndarray], Feeds]:
    return told(small(name), PROMPT, COUNT)


def decode(name: str, **options: Any) -> Trace:
    options = {"poison": True, **small(name).options, **options}
    return kvviz.decode(loaded(name), PROMPT, COUNT, progress=False, **options)


# Token loops


@pytest.mark.parametrize("policy", ["ideal", "never", "rten", "onnxruntime"])
@pytest.mark.parametrize("name", DECODERS)
def test_a_decode_gives_what_onnxruntime_gives_whatever_keeps_the_cache(name: str, policy: str) -> None:
    tokens, logits, caches = answer(name)
    trace = decode(name, policy=policy, growth="start")
    assert trace.tokens == tokens
    for have, want in zip(trace.logits, logits, strict=True):
        assert_close(have, want)
    for kept in trace.caches:
        # Rows that hold no token may hold anything.
        for start, stop in live(kept.runs[-1].items[0].held):
            have, want = trace.outputs[kept.output], caches[kept.input]
            assert_close(have[:, :, start:stop], want[:, :, start:stop])


@pytest.mark.parametrize("name", DECODERS)
def test_the_protocol_of_each_decoder_is_recognised(name: str) -> None:
    pairs = cache_pairs(loaded(name))
    assert {pair.input: pair.output for pair in pairs} == NAMES
    assert {(pair.protocol, pair.axis) for pair in pairs} == {(small(name).protocol, 2)}


# One buffer for past and present


@pytest.mark.parametrize("name", ["o07_genai_llama_int4", "storyteller/gqa", "storyteller/gqa_int4"])
@pytest.mark.parametrize("capacity", [None, 160])
def test_a_shared_buffer_gives_the_reference_tokens_of_the_int4_models(name: str, capacity: int | None) -> None:
    ref = np.load(MODELS / name / "ref.npz")
    graph, count = kvviz.load(MODELS / name / "model.onnx"), len(ref["tokens"])
    options: dict[str, Any] = {"kv_capacity": capacity, "cache": "shared", "poison": True, "progress": False}
    trace = kvviz.decode(graph, ref["prompt"].tolist(), count, **options)
    assert trace.tokens == ref["tokens"].tolist()
    np.testing.assert_allclose(np.concatenate(trace.logits), ref["logits"], rtol=2e-4, atol=2e-4)
    needed = len(ref["prompt"]) + count - 1
    for kept in trace.caches:
        assert kept.protocol == "shared" and len({run.storage for run in kept.runs}) == 1
        assert {run.capacity for run in kept.runs} == {capacity or needed}
        # What is valid follows from the lengths that the graph computes, for the shape never changes.
        assert [run.valid for run in kept.runs] == list(range(len(ref["prompt"]), needed + 1))
        row = trace.outputs[kept.output].nbytes // (capacity or needed)
        assert [run.bytes_written for run in kept.runs[1:]] == [row] * (count - 1)
        assert not any(run.bytes_copied or run.reallocations for run in kept.runs)


def test_only_what_one_operator_can_share_is_shared() -> None:
    with pytest.raises(InputError, match="no cache of this graph can be shared: its caches are written by Concat"):
        decode("concat", cache="shared")
    with pytest.raises(InputError, match="cache must be 'growing', 'shared' or 'window', not 'ring'"):
        decode("grouped", cache="ring")
    with pytest.raises(InputError, match="holds 8 rows, but prompt and new tokens need 15"):
        decode("grouped", cache="shared", kv_capacity=8)
    # a window of open length takes the operator's own
    trace = decode("grouped_window", kv_capacity=None)
    assert {run.capacity for run in trace.caches[0].runs} == {WINDOW}
    assert trace.tokens == answer("grouped_window")[0]


# Batches


@pytest.mark.parametrize("options", [{}, {"cache": "shared"}], ids=["growing", "shared"])
def test_prompts_of_unequal_length_are_padded_where_row_counts_can_tell(options: dict[str, Any]) -> None:
    gqa = kvviz.load(MODELS / "storyteller" / "gqa" / "model.onnx")
    prompt = np.load(MODELS / "storyteller" / "gqa" / "ref.npz")["prompt"].tolist()
    prompts = [prompt[:5], prompt, prompt[:9]]
    trace = kvviz.decode(gqa, prompts, 6, progress=False, **options)
    for number, alone in enumerate(prompts):
        single = kvviz.decode(gqa, alone, 6, progress=False)
        assert trace.batch_tokens[number] == single.tokens
        for together, apart in zip(trace.logits, single.logits, strict=True):
            assert_close(together[number], apart[0])
    # they need an input that tells padding
    scatter = kvviz.load(MODELS / "storyteller" / "tensor_scatter" / "model.onnx")
    with pytest.raises(InputError, match="the graph has no attention_mask to tell it from tokens"):
        kvviz.decode(scatter, [[5, 6, 7], [8]], 2, progress=False)
    assert len(kvviz.decode(scatter, [[5, 6, 7], [8, 9, 10]], 2, progress=False).batch_tokens) == 2


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
