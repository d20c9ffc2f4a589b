"""Making a trace again: from inputs as they were given, in memory that is shared and reserved as it was."""

from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.engine.sessions.recipe import Kept
from kvviz.memory.storage import find_room, root_of
from tests.engine.graphs import graph_of, numbers
from tests.graph.build import MODELS

APPEND = "g (float[1, N, 2] past, float[1, 1, 2] new) => (float[1, M, 2] t) { t = Concat <axis = 1> (past, new) }"
VAD = MODELS / "o08_silero_vad_sequence"


def totals(trace: Trace) -> list[Any]:
    runs = [(run.peak_bytes, run.bytes_copied, run.bytes_written, run.bytes_moved_outside) for run in trace.runs]
    return [runs, trace.peak_bytes, trace.bytes_allocated, trace.tokens, [s.decision.taken for s in trace.steps]]


def bits(trace: Trace) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in trace.outputs.items()}


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
    graph = graph_of(APPEND)
    past = kvviz.reserve(numbers(1, 4, 2), 1, 9)
    trace = kvviz.run(graph, {"past": past, "new": numbers(1, 1, 2)}, donate=["past"])
    first = bits(trace)
    past[...] = 0
    again = trace.recipe.again()
    assert bits(again) == first != bits(trace) and totals(again) == totals(trace)
    assert bits(again.recipe.again()) == first


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
    assert bits(again) == bits(trace) and totals(again) == totals(trace)
    for first, second in zip(trace.results, again.results, strict=True):
        assert {n: v.tobytes() for n, v in first.items()} == {n: v.tobytes() for n, v in second.items()}
