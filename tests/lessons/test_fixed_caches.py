"""Fixed caches in one's own hands, and loops on a device: what the lessons on them stand on."""

import runpy
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import parser

import kvviz
from kvviz.lessons.cache_rows import RowTest, cache_path, circular, feed_chunks, first_difference, probabilities
from kvviz.lessons.run_meters import per_run
from kvviz.verification.session_record import run_bound
from tests.lessons.story import ROOT, STORYTELLER

MODEL = STORYTELLER / "tensor_scatter" / "model.onnx"


@pytest.fixture(scope="module")
def whole() -> kvviz.Trace:
    prompt = np.load(STORYTELLER / "tensor_scatter" / "ref.npz")["prompt"].ravel().tolist()
    return kvviz.decode(kvviz.load(MODEL), prompt, 12, progress=False)


def test_what_is_said_without_losing_a_row_is_what_the_decode_said(whole: kvviz.Trace) -> None:
    test = RowTest(whole)
    for run in (1, 5, 11):
        found = test.without(len(whole.prompt) + run - 1)
        np.testing.assert_allclose(found, probabilities(whole.logits[run][0]), atol=1e-6)
        assert found.sum() == pytest.approx(1)
    # the order of the rows does not matter
    at = len(whole.prompt) + 4
    mixed = np.random.default_rng(0).permutation(at)
    rows = {cache.input: whole.outputs[cache.output][:, mixed] for cache in whole.caches}
    np.testing.assert_allclose(test.from_rows(at, rows), test.without(at), atol=1e-5)


def test_known_tokens_in_chunks_say_what_they_say_word_by_word(whole: kvviz.Trace) -> None:
    tokens = [*whole.prompt, *whole.tokens]
    _, one = feed_chunks(whole.graph, tokens, [1] * 20, lambda past, new: past + new)
    _, some = feed_chunks(whole.graph, tokens, [7, 6, 5, 2], lambda past, new: past + new)
    assert one.tolist() == some.tolist()
    assert one[len(whole.prompt) - 1 :].tolist() == whole.tokens[: 20 - len(whole.prompt) + 1]
    # what the meters and the first other word are
    assert per_run(whole, "bytes_written")[1:] == [768] * 11
    assert first_difference(["a", "b", "c"], ["a", "x", "c"]) == 1
    assert first_difference(["a", "b"], ["a", "b", "c"]) is None


def test_a_circular_cache_has_the_rows_that_were_asked_for_where_there_is_a_fixed_one() -> None:
    graph = kvviz.load(circular(MODEL, 16))
    shapes = {value.shape for value in graph.inputs if "cache" in value.name}
    assert {shape[1] for shape in shapes if shape} == {16}
    with pytest.raises(kvviz.KvvizError, match="no TensorScatter"):
        circular(STORYTELLER / "concat" / "model.onnx", 16)


def test_a_bound_buffer_is_overwritten_before_it_is_read() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[4] x) => (float[4] y, float[4] z)
        { y = Neg(x)  z = Identity(x) }"""
    x = np.arange(4, dtype=np.float32)
    found = run_bound(parser.parse_model(text), {"x": x}, {"y": "x"})
    assert found["y"].tolist() == [0, -1, -2, -3]
    assert x.tolist() == [0, 1, 2, 3]


def test_a_cache_is_followed_through_the_ops_that_carry_it() -> None:
    # given torch's static cache: rows to the front, written by their numbers, and back
    trace = kvviz.decode(kvviz.load(STORYTELLER / "static_scatter_nd" / "model.onnx"), [1, 2, 3], 2, progress=False)
    path = cache_path(trace, 1, 2)
    assert [step.op_type for step in path] == ["Transpose", "ScatterND", "Transpose"]
    assert path[0].inputs[0] == trace.caches[2].input and trace.caches[2].output in path[-1].outputs
    assert {step.run for step in path} == {1}


device_loops = SimpleNamespace(**runpy.run_path(str(ROOT / "notebooks" / "device_loops.py")))


@pytest.mark.parametrize("stitched", [False, True])
def test_a_decode_tells_the_tokens_of_the_graph_and_frees_all(stitched: bool) -> None:
    graph = kvviz.load(MODEL)
    told = device_loops.decode(graph, [5, 17, 33, 9], stitched, new=4)
    assert told.results == kvviz.decode(graph, [5, 17, 33, 9], 4, progress=False).tokens
    assert not any(told.device.live_bytes.values())
    # stitched: a token id up, the logits down
    assert (told.link[-1] == 8 + 128 * 4) == stitched


@pytest.mark.parametrize("stitched", [False, True])
def test_training_on_a_device_learns_what_numpy_learns(stitched: bool) -> None:
    batch, start = device_loops.training_data()
    told = device_loops.train(batch, start, stitched, epochs=10)
    w1, w2 = start.values()
    for _ in range(10):
        hidden = np.maximum(batch["x"] @ w1, 0)
        error = hidden @ w2 - batch["t"]
        w1, w2 = w1 - 0.002 * batch["x"].T @ (error @ w2.T * (hidden > 0)), w2 - 0.002 * hidden.T @ error
    for mine, theirs in zip(told.weights, (w1, w2), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-4)
    assert told.link[-1] == 4 + (0 if stitched else 2 * (w1.nbytes + w2.nbytes))


def test_a_second_buffer_hides_transfers_behind_programs_and_a_naive_round_sends_all() -> None:
    values = np.random.default_rng(0).standard_normal((5, 256, 256), np.float32)
    (_, _, one), (_, _, two) = (device_loops.buffered(values, double) for double in (False, True))
    assert two < one
    # both inputs up and the result down
    x, w = (np.random.default_rng(seed).standard_normal((64, 64), np.float32) / 8 for seed in range(2))
    device, last = device_loops.rounds(x, w, 3)
    assert device.host_bytes == 3 * 3 * 16384 and sum(device.live_bytes.values()) == 0
    assert np.allclose(last, np.maximum(np.maximum(np.maximum(x @ w, 0) @ w, 0) @ w, 0), atol=1e-5)
