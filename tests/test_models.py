"""The real models: tokens, logits, single runs and cache traffic as their reference data has them."""

import json
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.graph.cache_pairs import cache_pairs
from kvviz.graph.model import Graph
from kvviz.trace.records import Cache

ROOT = Path(__file__).resolve().parent.parent / "assets" / "models"
VAD = "o08_silero_vad_sequence"
EXPORTED = sorted(path.parent.name for path in ROOT.glob("o0[1-7]_*/model.onnx"))
DECODERS = EXPORTED + sorted(f"storyteller/{path.parent.name}" for path in ROOT.glob("storyteller/*/model.onnx"))
MERGED = ["o02_optimum1_merged_gpt2", "o03_optimum1_merged_whisper", "storyteller/merged_if"]
STATIC = [name for name in DECODERS if "static" in name or "tensor_scatter" in name]
GROWING = [name for name in DECODERS if name not in (*MERGED, *STATIC)]


def assert_close(have: np.ndarray, want: np.ndarray, what: str = "") -> None:
    assert (have.dtype, have.shape) == (want.dtype, want.shape), what
    np.testing.assert_allclose(have, want, rtol=2e-4, atol=2e-4, err_msg=what)


@cache
def graph_of(name: str) -> Graph:
    return kvviz.load(ROOT / name / "model.onnx")


@cache
def reference(name: str) -> dict[str, np.ndarray]:
    return dict(np.load(ROOT / name / "ref.npz"))


def steps_of(name: str) -> list[dict[str, Any]]:
    return json.loads((ROOT / name / "meta.json").read_text("utf-8"))["mechanics"]["steps"]


@lru_cache(maxsize=4)
def decoded(name: str, policy: str = "ideal", capacity: int | None = None) -> Trace:
    ref = reference(name)
    inputs = {}
    if "encoder.out.last_hidden_state" in ref:
        inputs["encoder_hidden_states"] = ref["encoder.out.last_hidden_state"]
    options: dict[str, Any] = {"policy": policy, "kv_capacity": capacity, "poison": True, "progress": False}
    return kvviz.decode(graph_of(name), ref["prompt"].tolist(), len(ref["tokens"]), inputs, **options)


def single_runs(name: str) -> list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
    runs: dict[str, tuple[dict, dict]] = {}
    for key, array in reference(name).items():
        run, _, rest = key.partition(".")
        side, _, value = rest.partition(".")
        if run.startswith("run"):
            runs.setdefault(run, ({}, {}))[side == "out"][value] = array
    return list(runs.values())


@pytest.mark.parametrize("name", DECODERS, scope="module")
def test_a_decode_gives_the_reference_tokens_and_logits(name: str) -> None:
    trace, ref = decoded(name), reference(name)
    assert trace.tokens == ref["tokens"].tolist()
    assert_close(np.concatenate(trace.logits), ref["logits"])


@pytest.mark.parametrize("name", DECODERS, scope="module")
def test_running_in_place_changes_no_bit_of_a_decode(name: str) -> None:
    ideal, never = decoded(name), decoded(name, "never")
    assert [logits.tobytes() for logits in ideal.logits] == [logits.tobytes() for logits in never.logits]
    for output, value in never.outputs.items():
        assert ideal.outputs[output].tobytes() == value.tobytes(), output
    assert any(row.taken for row in ideal.log)
    assert not any(row.taken for row in never.log)


@pytest.mark.parametrize("name", [*DECODERS, VAD], scope="module")
def test_the_stored_single_runs_are_met_under_every_way_of_running(name: str) -> None:
    graph, runs = graph_of(name), single_runs(name)
    assert len(runs) >= 3
    for inputs, expected in runs:
        given = {value: array.copy() for value, array in inputs.items()}
        for array in given.values():
            array.flags.writeable = False
        ideal = kvviz.run(graph, given, poison=True)
        assert ideal.outputs.keys() == expected.keys()
        for output, value in expected.items():
            assert_close(ideal.outputs[output], value, output)
        mine = {key: array.copy() for key, array in inputs.items()}
        donated = kvviz.run(graph, mine, donate=[pair.input for pair in cache_pairs(graph)], poison=True)
        never = kvviz.run(graph, given, policy="never")
        for output, value in ideal.outputs.items():
            assert value.tobytes() == donated.outputs[output].tobytes() == never.outputs[output].tobytes()
        for key, array in inputs.items():
            borrowed = key not in {pair.input for pair in cache_pairs(graph)}
            assert given[key].tobytes() == array.tobytes()
            assert not borrowed or mine[key].tobytes() == array.tobytes()


@pytest.mark.parametrize("name", EXPORTED, scope="module")
def test_every_run_executes_as_many_nodes_as_the_reference_counted(name: str) -> None:
    expected = [step["nodes_executed"] for step in steps_of(name)]
    assert [run.last - run.first for run in decoded(name).runs] == expected
    taken = [list(step["if_branch"].items()) for step in steps_of(name)]
    for run, branches in zip(decoded(name).runs, taken):
        frames = {frame.path for frame in decoded(name).frames if frame.run == run.index and frame.path}
        assert frames == {(f"{node}[{'then' if chosen else 'else'}_branch]",) for node, chosen in branches}


@pytest.mark.parametrize("name", EXPORTED, scope="module")
def test_caches_are_as_large_and_as_full_as_the_reference_says(name: str) -> None:
    trace, graph = decoded(name), graph_of(name)
    meters = [meter for meter in trace.caches if meter.protocol != "cross"]
    for index, step in enumerate(steps_of(name)):
        assert {(c.runs[index].valid, c.runs[index].capacity) for c in meters} == {
            (step["positions_filled"], step["capacity"])
        }
        main = next(frame for frame in trace.frames if frame.run == index and not frame.path)
        past = {bound.name: bound.nbytes for bound in main.bindings}
        steps = trace.steps[trace.runs[index].first : trace.runs[index].last]
        present = {out.name: out.nbytes for s in steps if not s.frame for out in s.outs}
        assert sum(past[pair.input] for pair in cache_pairs(graph)) == step["past_bytes"]
        assert sum(present[pair.output] for pair in cache_pairs(graph)) == step["present_bytes"]


def row_bytes(trace: Trace, kept: Cache) -> int:
    present = trace.outputs[kept.output]
    return present.nbytes // present.shape[kept.axis]


@pytest.mark.parametrize("name", GROWING, scope="module")
def test_without_reserved_room_the_whole_past_is_copied_at_every_step(name: str) -> None:
    trace = decoded(name)
    prompt = len(reference(name)["prompt"])
    for kept in trace.caches:
        row = row_bytes(trace, kept)
        assert [r.bytes_copied for r in kept.runs[1:]] == [t * row for t in range(prompt, prompt + len(kept.runs) - 1)]
        assert [r.bytes_written for r in kept.runs] == [r.valid * row for r in kept.runs]


@pytest.mark.parametrize("name", GROWING, scope="module")
def test_with_reserved_room_only_the_new_row_is_written(name: str) -> None:
    ref = reference(name)
    room = len(ref["prompt"]) + len(ref["tokens"]) - 1
    trace = decoded(name, capacity=room)
    assert trace.tokens == ref["tokens"].tolist()
    assert_close(np.concatenate(trace.logits), ref["logits"])
    for kept in trace.caches:
        row = row_bytes(trace, kept)
        assert [r.bytes_copied for r in kept.runs] == [0] * len(kept.runs)
        assert [r.bytes_written for r in kept.runs] == [len(ref["prompt"]) * row] + [row] * (len(kept.runs) - 1)
        assert {r.capacity for r in kept.runs} == {room} and len({r.storage for r in kept.runs}) == 1
    saved = decoded(name).bytes_copied - trace.bytes_copied
    closed_form = sum(r.bytes_copied for kept in decoded(name).caches for r in kept.runs)
    assert saved == closed_form > 0


@pytest.mark.parametrize("name", STATIC, scope="module")
def test_a_static_cache_is_written_in_place_row_by_row(name: str) -> None:
    trace = decoded(name)
    # torch keeps the rows in another order than the input's: the first run turns them round, and copies for it.
    turned = "scatter_nd" in name or "o04" in name
    for kept in trace.caches:
        row, whole = row_bytes(trace, kept), trace.outputs[kept.output].nbytes
        assert [r.bytes_copied for r in kept.runs] == [turned * whole] + [0] * (len(kept.runs) - 1)
        first = turned * whole + len(trace.prompt) * row
        assert [r.bytes_written for r in kept.runs] == [first] + [row] * (len(kept.runs) - 1)
        assert len({r.storage for r in kept.runs}) == 1
    never = decoded(name, "never")
    for kept in never.caches:
        whole = never.outputs[kept.output].nbytes
        assert {r.bytes_copied for r in kept.runs} == {whole}


@pytest.mark.parametrize("name", MERGED, scope="module")
def test_a_merged_decoder_takes_one_branch_for_the_prompt_and_the_other_for_each_token(name: str) -> None:
    trace = decoded(name)
    branches = [f.attribute for f in trace.frames if len(f.path) == 1]
    assert branches == ["else_branch"] + ["then_branch"] * (len(trace.runs) - 1)
    for kept in trace.caches:
        if kept.protocol == "cross":
            # Written once from the encoder; the dummies of the cached branch do not replace them.
            assert len({r.storage for r in kept.runs[1:]}) == 1 and not any(r.bytes_written for r in kept.runs[1:])
            assert {(r.valid, r.rows_read, r.stale) for r in kept.runs} == {(20, 20, 0)}
            assert [r.rows_written for r in kept.runs] == [20] + [0] * (len(kept.runs) - 1)
        else:
            assert kept.runs[0].bytes_written == len(trace.prompt) * row_bytes(trace, kept)


@pytest.mark.parametrize("name", MERGED[::2], scope="module")
def test_a_merged_decoder_makes_caches_of_its_own_in_the_first_run_and_drops_the_reserved_room(name: str) -> None:
    ref = reference(name)
    trace = decoded(name, capacity=len(ref["prompt"]) + len(ref["tokens"]))
    assert trace.tokens == ref["tokens"].tolist()
    for kept in trace.caches:
        assert [r.capacity for r in kept.runs] == [r.valid for r in kept.runs]
        assert all(r.bytes_copied > 0 for r in kept.runs[1:])
    steps = trace.steps[trace.runs[1].first : trace.runs[1].last]
    (concat,) = [s for s in steps if s.outputs[0] == trace.caches[0].output and s.frame]
    assert [b.code for b in concat.decision.blockers] == ["NO_CAPACITY"]


def test_the_encoder_runs_too() -> None:
    name = "o03_optimum1_merged_whisper"
    encoder = kvviz.load(ROOT / name / "encoder.onnx")
    ref = reference(name)
    outputs = kvviz.run(encoder, {"input_features": ref["encoder.in.input_features"]}, poison=True).outputs
    assert_close(outputs["last_hidden_state"], ref["encoder.out.last_hidden_state"])


def test_a_recurrent_model_is_streamed_chunk_by_chunk() -> None:
    ref, graph = reference(VAD), graph_of(VAD)
    meta = json.loads((ROOT / VAD / "meta.json").read_text("utf-8"))
    # A chunk is one frame of 576 samples, given four times.
    chunks = [{"input": np.tile(ref["audio"][576 * k : 576 * (k + 1)], (4, 1))} for k in range(12)]
    np.testing.assert_array_equal(chunks[6]["input"], ref["run6.in.input"])
    trace = kvviz.stream(graph, chunks, poison=True)
    assert len(trace.runs) == len(trace.results) == 12
    for result, expected in zip(trace.results, ref["probs"], strict=True):
        assert_close(result["speech_probs"], expected)
    never = kvviz.stream(graph, chunks, policy="never")
    assert [r["speech_probs"].tobytes() for r in trace.results] == [r["speech_probs"].tobytes() for r in never.results]
    assert {kept.protocol for kept in trace.caches} == {"state"}
    assert sum(trace.outputs[c.output].nbytes for c in trace.caches) == meta["mechanics"]["state_bytes"]
