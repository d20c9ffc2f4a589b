"""Decodes of which less is kept: the steps of some runs, or no numbers; the rest is as in the whole decode."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.caches.cache_heat import attention
from kvviz.decode.token_loop import DecodeSession
from kvviz.errors import InputError, ReplayError
from kvviz.graph.model import Graph
from tests.decode.small import DECODERS, small
from tests.engine.dry_and_real import assert_agree, facts
from tests.engine.graphs import graph_of
from tests.graph.build import MODELS

STORIES = MODELS / "storyteller"
WORDS = json.loads((STORIES / "vocab.json").read_text())
WAYS: list[tuple[str, dict[str, Any]]] = [
    ("concat", {}),
    ("concat", {"kv_capacity": 80}),
    ("concat", {"growth": "after"}),
    ("merged_if", {}),
    ("gqa", {"cache": "shared"}),
    ("tensor_scatter", {}),
    ("static_scatter_nd", {"policy": "onnxruntime"}),
    ("attention_24", {"policy": "rten"}),
]
TOLD = {3, 4, 15, 19}
RUNS = 20


def story(form: str, **options: Any) -> kvviz.Trace:
    graph = kvviz.load(STORIES / form / "model.onnx")
    return kvviz.decode(graph, "once upon a time there was", RUNS, tokenizer=WORDS, progress=False, **options)


@pytest.mark.parametrize(
    ("form", "options"), WAYS, ids=[" ".join([form, *map(str, how.values())]) for form, how in WAYS]
)
def test_what_is_kept_or_counted_and_values_that_are_replayed_are_those_of_the_whole_decode(
    form: str, options: dict[str, Any]
) -> None:
    whole, some = story(form, **options), story(form, detail=TOLD, **options)
    # words, totals and meters are of all runs
    assert some.words == whole.words
    for mine, other in zip(some.runs, whole.runs, strict=True):
        assert replace(mine, first=0, last=0) == replace(other, first=0, last=0)
    for cache, twin in zip(some.caches, whole.caches, strict=True):
        # Numbers of storages differ: those of forgotten runs are not there.
        assert [replace(run, storage=0) for run in cache.runs] == [replace(run, storage=0) for run in twin.runs]
    assert some.peak_bytes == whole.peak_bytes
    # steps are those of the runs that are kept
    assert [run.index for run in some.runs if run.last > run.first] == [0, *sorted(TOLD)]
    for mine, other in zip(some.runs, whole.runs):
        if mine.last == mine.first:
            continue
        assert mine.last - mine.first == other.last - other.first
        for i, k in zip(range(mine.first, mine.last), range(other.first, other.last)):
            a, b = some.steps[i], whole.steps[k]
            for field in ("run", "node", "frame", "live_bytes", "copied", "allocated"):
                assert getattr(a, field) == getattr(b, field)
            assert (a.decision.dispatch, a.decision.taken) == (b.decision.dispatch, b.decision.taken)
            assert len(a.freed) == len(b.freed) or k + 1 == other.last
    # values are replayed through runs that were forgotten
    for run in (4, 15, 19):
        for place in (0, 5, -1):
            i, k = (range(trace.runs[run].first, trace.runs[run].last)[place] for trace in (some, whole))
            for out in some.steps[i].outs[:1]:
                assert np.array_equal(some.value(out.name, i), whole.value(out.name, k))


def test_the_attention_of_a_forgotten_run_is_said_not_to_be_recorded() -> None:
    trace = story("concat", detail={2})
    assert attention(trace, trace.caches[0], 2) is not None
    with pytest.raises(ReplayError, match="the steps of run 7 were not kept"):
        attention(trace, trace.caches[0], 7)


def test_the_ledger_does_not_grow_with_forgotten_runs() -> None:
    few = story("concat", detail=(), kv_capacity=80)
    longer = kvviz.decode(few.graph, few.prompt, 60, kv_capacity=80, detail=(), progress=False)
    assert len(longer.log) == len(few.log)
    assert len(longer.log.storages) == len(few.log.storages)
    assert len(longer.log.frames) == len(few.log.frames) == 1


def test_values_of_a_late_run_do_not_need_the_first_one() -> None:
    graph = kvviz.load(STORIES / "concat" / "model.onnx")
    trace = kvviz.decode(graph, [1, 2, 3], 140, detail={139}, progress=False)
    whole = kvviz.decode(graph, [1, 2, 3], 140, progress=False)
    starts = [run for run, fed in enumerate(trace.replayer.runs) if not fed.carried]
    assert starts == [0, 64, 128]
    assert np.array_equal(trace.value("logits", trace.runs[139].last - 1), whole.outputs["logits"])


def model(name: str) -> Graph:
    return kvviz.load(MODELS / name / "model.onnx")


@pytest.mark.parametrize("policy", ["ideal", "never", "rten", "onnxruntime"])
@pytest.mark.parametrize("name", DECODERS)
def test_a_dry_decode_of_every_cache_protocol_has_the_figures_of_the_real_one(name: str, policy: str) -> None:
    graph, options = kvviz.load(small(name).proto), small(name).options
    for prompt in ([3, 1, 4], [[3, 1, 4], [1, 5, 9]]):
        for growth in ("start", "after"):
            how: dict[str, Any] = {"max_new_tokens": 4, "policy": policy, "growth": growth, **options}
            real = kvviz.decode(graph, prompt, progress=False, **how)
            assert_agree(kvviz.decode(graph, prompt, dry=True, **how), real)
    chunked = DecodeSession(graph, [3, 1, 4, 1, 5], max_new_tokens=3, chunk=2, policy=policy, **options).run_to_end()
    assert_agree(kvviz.dry(graph, prompt_tokens=5, max_new_tokens=3, chunk=2, policy=policy, **options), chunked)
    whole = kvviz.decode(graph, [3, 1, 4, 1, 5], 3, policy=policy, progress=False, **options)
    assert chunked.tokens == whole.tokens


def test_inputs_that_a_dry_decode_makes_are_of_all_its_sequences() -> None:
    graph, states = model("o03_optimum1_merged_whisper"), np.zeros((2, 20, 32), np.float32)
    real = kvviz.decode(graph, [[1, 2, 3]] * 2, 3, {"encoder_hidden_states": states}, progress=False)
    dims = {"encoder_sequence_length / 2": 20}
    assert_agree(kvviz.dry(graph, prompt_tokens=3, max_new_tokens=3, batch=2, dims=dims), real)


@pytest.mark.parametrize("room", [False, True])
@pytest.mark.parametrize("donated", [False, True])
def test_caches_to_start_from_are_as_the_caller_gave_them(donated: bool, room: bool) -> None:
    graph = model("storyteller/concat")
    before = kvviz.decode(graph, [1, 2, 3, 4], 2, progress=False)
    past = {cache.input: before.outputs[cache.output] for cache in before.caches}

    def given() -> dict[str, np.ndarray]:
        return {name: kvviz.reserve(array, 2, 20) if room else array.copy() for name, array in past.items()}

    donate = tuple(past) if donated else ()
    real = kvviz.decode(graph, [7], 3, given(), donate=donate, progress=False)
    assert_agree(kvviz.decode(graph, [7], 3, given(), donate=donate, dry=True), real)
    assert_agree(kvviz.dry(graph, given(), prompt_tokens=1, max_new_tokens=3, donate=donate), real)


def test_run_with_dry_is_the_same_as_dry() -> None:
    graph = model("o08_silero_vad_sequence")
    inputs = kvviz.inputs(graph)
    real = kvviz.run(graph, dict(inputs), policy="rten")
    assert_agree(kvviz.run(graph, dict(inputs), policy="rten", dry=True), real)
    assert facts(kvviz.run(graph, {}, dry=True)) == facts(kvviz.dry(graph))


@pytest.mark.parametrize("dry", [False, True])
def test_a_capacity_without_a_cache_is_warned_of_and_one_below_its_window_refused(dry: bool) -> None:
    with pytest.warns(UserWarning, match=r"kv_capacity=8 has no use for \w+: it keeps no cache; leave it out"):
        kvviz.decode(model("o09_dynamo_qwen2_nocache"), [1, 2, 3], 2, kv_capacity=8, dry=dry)

    graph = kvviz.load(small("grouped_window").proto)
    with pytest.raises(InputError, match=r"kv_capacity=4: cache .* holds a window of 6 rows at least"):
        kvviz.decode(graph, [3, 1, 4], 2, kv_capacity=4, dry=dry)


BRANCH = graph_of("""g (float[4] x) => (float[4] y) <bool go = {1}> {
    s = ReduceSum <keepdims = 0> (x)  k = Softmax (x)
    y = If (go) <then_branch = t () => (float[4] a) { a = Neg (k) },
                 else_branch = e () => (float[4] b) { b = Add (k, s) }> }""")


OFTEN = "how often a Loop runs"


@pytest.mark.parametrize(
    ("op", "count", "why"),
    [
        ("ReduceSum", 3, OFTEN),
        ("Softmax", 4, OFTEN),
        ("Neg", 1, OFTEN),
        ("If", 0, "known to be True"),
        ("If", 2, ""),
    ],
)
def test_a_count_that_data_does_not_decide_is_refused(op: str, count: int, why: str) -> None:
    named = {node.op_type: node.name for _, node in BRANCH.walk()}
    assert "Neg" in [step.op_type for step in kvviz.dry(BRANCH, counts={named["If"]: 1}).steps]
    with pytest.raises(InputError, match=rf"counts says {count} for node '{named[op]}' \({op}\).*{why}"):
        kvviz.dry(BRANCH, counts={named[op]: count})
