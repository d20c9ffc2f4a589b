"""Real exported models: the tokens and logits that onnxruntime gave, in every form of cache and under every policy."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz

MODELS = Path(__file__).parents[1] / "assets" / "models"
NAMES = sorted(str(p.parent.relative_to(MODELS)) for p in MODELS.glob("**/model.onnx"))
DECODERS = [name for name in NAMES if "silero" not in name]
WITH_META = [name for name in DECODERS if name.startswith("o0")]
# Caches that only grow, and are written by one op that can append.
APPENDED = ["o01_optimum_llama", "o05_dynamo_llama_op23", "o07_genai_llama_int4"] + [
    f"storyteller/{form}" for form in ("attention_23", "attention_24", "concat", "gqa")
]
LIMIT = 2e-4


@cache
def graph_of(name: str) -> Any:
    return kvviz.load(MODELS / name / "model.onnx")


@cache
def reference(name: str) -> dict[str, np.ndarray]:
    with np.load(MODELS / name / "ref.npz") as stored:
        return dict(stored)


def stored_runs(name: str) -> list[str]:
    return sorted({key.split(".")[0] for key in reference(name) if key.startswith("run")})


def inputs_of(name: str, run: str) -> dict[str, np.ndarray]:
    start = f"{run}.in."
    return {key[len(start) :]: value for key, value in reference(name).items() if key.startswith(start)}


@cache
def decoded(name: str, policy: str = "ideal", capacity: int | None = None) -> kvviz.Trace:
    """The stored decode, run again; with poison, so that a use after free would show."""
    stored = reference(name)
    encoder = {k: v for k, v in inputs_of(name, "run0").items() if k.startswith("encoder_")}
    return kvviz.decode(
        graph_of(name),
        stored["prompt"],
        len(stored["tokens"]),
        inputs=encoder,
        policy=policy,
        kv_capacity=capacity,
        poison=True,
        progress=False,
    )


def test_all_sixteen_models_are_here() -> None:
    assert len(NAMES) == 16 and len(DECODERS) == 15


@pytest.mark.parametrize("name", DECODERS)
def test_a_decode_gives_the_reference_tokens_and_logits(name: str) -> None:
    trace, stored = decoded(name), reference(name)
    assert trace.tokens == stored["tokens"].tolist()
    assert np.abs(np.concatenate(trace.logits) - stored["logits"]).max() <= LIMIT


@pytest.mark.parametrize("policy", ["ideal", "never"])
@pytest.mark.parametrize("name", NAMES)
def test_every_stored_run_gives_the_reference_outputs(name: str, policy: str) -> None:
    for run in stored_runs(name):
        # given
        feeds = inputs_of(name, run)
        kept = {key: value.copy() for key, value in feeds.items()}
        # when
        trace = kvviz.run(graph_of(name), feeds, policy=policy, poison=True)
        # then
        for key, value in trace.outputs.items():
            wanted = reference(name)[f"{run}.out.{key}"]
            assert value.shape == wanted.shape and value.dtype == wanted.dtype
            assert np.allclose(value, wanted, rtol=0, atol=LIMIT), (run, key)
        assert all(np.array_equal(feeds[key], kept[key]) for key in feeds)


@pytest.mark.parametrize("name", DECODERS)
def test_in_place_execution_does_not_change_a_bit(name: str) -> None:
    ideal, never = decoded(name), decoded(name, "never")
    assert any(step.decision.dispatch == "in_place" for step in ideal.steps)
    assert not any(step.decision.dispatch == "in_place" for step in never.steps)
    assert ideal.tokens == never.tokens
    assert all(np.array_equal(a, b) for a, b in zip(ideal.logits, never.logits, strict=True))
    assert ideal.outputs.keys() == never.outputs.keys()
    assert all(np.array_equal(ideal.outputs[key], never.outputs[key]) for key in ideal.outputs)


@pytest.mark.parametrize("name", WITH_META)
def test_nodes_run_and_cache_sizes_are_those_of_the_reference_runs(name: str) -> None:
    # given
    trace = decoded(name)
    wanted = json.loads((MODELS / name / "meta.json").read_text())["mechanics"]["steps"]
    caches = {cache.output: cache for cache in trace.caches}
    for run, told in zip(trace.runs, wanted, strict=True):
        # then
        assert run.last - run.first == told["nodes_executed"]
        for output, shape in told["present_shapes"].items():
            meter = caches[output].runs[run.index]
            if caches[output].protocol in ("growing", "static"):
                assert meter.valid == told["positions_filled"]
                assert meter.capacity == shape[caches[output].axis]


@pytest.mark.parametrize("name", APPENDED)
def test_with_room_reserved_nothing_of_the_past_is_copied_and_only_new_rows_are_written(name: str) -> None:
    # given
    stored = reference(name)
    first, rows = len(stored["prompt"]), len(stored["prompt"]) + len(stored["tokens"])
    # when
    trace = decoded(name, "ideal", rows)
    # then
    assert trace.tokens == stored["tokens"].tolist()
    for cache_ in trace.caches:
        present = trace.outputs[cache_.output]
        row = present.nbytes // present.shape[cache_.axis]
        assert [run.bytes_copied for run in cache_.runs] == [0] * len(trace.runs)
        assert [run.bytes_written for run in cache_.runs] == [first * row] + [row] * (len(trace.runs) - 1)
        assert {run.capacity for run in cache_.runs} == {rows}
        assert len({run.storage for run in cache_.runs}) == 1


@pytest.mark.parametrize("name", APPENDED)
def test_without_room_every_run_copies_the_whole_past(name: str) -> None:
    trace, first = decoded(name), len(reference(name)["prompt"])
    for cache_ in trace.caches:
        present = trace.outputs[cache_.output]
        row = present.nbytes // present.shape[cache_.axis]
        past = [0] + [(first + run) * row for run in range(len(trace.runs) - 1)]
        assert [run.bytes_copied for run in cache_.runs] == past
        assert len({run.storage for run in cache_.runs}) == len(trace.runs)


@pytest.mark.parametrize("name", ["o04_dynamo_static_llama_op18", "storyteller/tensor_scatter"])
def test_a_static_cache_is_written_in_place_once_it_is_the_runs_own(name: str) -> None:
    trace = decoded(name)
    for cache_ in trace.caches:
        present = trace.outputs[cache_.output]
        row = present.nbytes // present.shape[cache_.axis]
        assert [(run.bytes_copied, run.bytes_written) for run in cache_.runs[1:]] == [(0, row)] * (len(trace.runs) - 1)


def test_a_merged_decoder_throws_its_reserved_room_away_in_the_first_run() -> None:
    trace = decoded("o02_optimum1_merged_gpt2", "ideal", 32)
    assert trace.tokens == reference("o02_optimum1_merged_gpt2")["tokens"].tolist()
    for cache_ in trace.caches:
        assert [run.capacity for run in cache_.runs] == [run.valid for run in cache_.runs]
        concat = next(s for s in trace.steps if s.run == 1 and s.outputs[0] == cache_.output)
        assert "NO_CAPACITY" in {blocker.code for blocker in concat.decision.blockers}


def test_a_batch_padded_on_the_left_tells_the_same_as_its_prompts_alone() -> None:
    # given
    prompts = [[5, 17, 33, 60, 9], [60, 9], [33]]
    graph = graph_of("o01_optimum_llama")
    alone = [kvviz.decode(graph, prompt, 8, progress=False).tokens for prompt in prompts]
    # when
    together = kvviz.decode(graph, prompts, 8, kv_capacity=12, progress=False)
    # then
    assert together.batch_tokens == alone


def test_a_recurrent_state_is_carried_from_chunk_to_chunk() -> None:
    # given
    name = "o08_silero_vad_sequence"
    first = inputs_of(name, "run0")
    audio, window = reference(name)["audio"], first["input"].shape
    stored = [inputs_of(name, f"run{k}")["input"] for k in (0, 1)]
    # when
    trace = kvviz.stream(graph_of(name), [{"input": chunk} for chunk in stored], poison=True)
    # then
    assert audio.size and window == stored[1].shape
    wanted = reference(name)["probs"][:2]
    assert np.allclose([result["speech_probs"] for result in trace.results], wanted, atol=LIMIT)
    assert {cache_.protocol for cache_ in trace.caches} == {"state"}
