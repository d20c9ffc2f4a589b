"""A decode that keeps the steps of some runs is the whole decode with steps left out."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.caches.cache_heat import attention
from kvviz.errors import ReplayError

STORIES = Path(__file__).resolve().parents[2] / "assets" / "models" / "storyteller"
WORDS = json.loads((STORIES / "vocab.json").read_text())
WAYS = [
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


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: " ".join([way[0], *map(str, way[1].values())]))
def both(request: pytest.FixtureRequest) -> tuple[kvviz.Trace, kvviz.Trace]:
    form, options = request.param
    return story(form, **options), story(form, detail=TOLD, **options)


def test_totals_words_and_meters_are_those_of_all_runs(both: tuple[kvviz.Trace, kvviz.Trace]) -> None:
    whole, some = both
    assert some.words == whole.words
    for mine, other in zip(some.runs, whole.runs, strict=True):
        assert replace(mine, first=0, last=0) == replace(other, first=0, last=0)
    for cache, twin in zip(some.caches, whole.caches, strict=True):
        # Numbers of storages differ: those of forgotten runs are not there.
        assert [replace(run, storage=0) for run in cache.runs] == [replace(run, storage=0) for run in twin.runs]
    assert some.peak_bytes == whole.peak_bytes


def test_steps_that_are_kept_are_those_of_the_whole_decode(both: tuple[kvviz.Trace, kvviz.Trace]) -> None:
    whole, some = both
    assert [run.index for run in some.runs if run.last > run.first] == [0, *sorted(TOLD)]
    for mine, other in zip(some.runs, whole.runs):
        if mine.last == mine.first:
            continue
        assert mine.last - mine.first == other.last - other.first
        for i, k in zip(range(mine.first, mine.last), range(other.first, other.last)):
            a, b = some.steps[i], whole.steps[k]
            assert (a.run, a.node, a.frame, a.live_bytes, a.copied) == (b.run, b.node, b.frame, b.live_bytes, b.copied)
            assert (a.allocated, a.decision.dispatch, a.decision.taken) == (
                b.allocated,
                b.decision.dispatch,
                b.decision.taken,
            )
            if k + 1 < other.last:
                assert len(a.freed) == len(b.freed)


def test_values_are_replayed_through_runs_that_were_forgotten(both: tuple[kvviz.Trace, kvviz.Trace]) -> None:
    whole, some = both
    for run in (4, 15, 19):
        for place in (0, 5, -1):
            i, k = (range(trace.runs[run].first, trace.runs[run].last)[place] for trace in (some, whole))
            name = some.steps[i].outs[0].name if some.steps[i].outs else None
            if name is not None:
                assert np.array_equal(some.value(name, i), whole.value(name, k))


def test_the_attention_of_a_forgotten_run_is_said_not_to_be_recorded() -> None:
    trace = story("concat", detail={2})
    assert attention(trace, trace.caches[0], 2) is not None
    with pytest.raises(ReplayError, match="the steps of run 7 were not kept"):
        attention(trace, trace.caches[0], 7)


def test_the_ledger_does_not_grow_with_forgotten_runs() -> None:
    few, many = (story("concat", detail=(), kv_capacity=80) for _ in range(2))
    longer = kvviz.decode(few.graph, few.prompt, 60, kv_capacity=80, detail=(), progress=False)
    assert len(longer.log) == len(many.log)
    assert len(longer.log.storages) == len(many.log.storages)
    assert len(longer.log.frames) == len(many.log.frames) == 1


def test_values_of_a_late_run_do_not_need_the_first_one() -> None:
    graph = kvviz.load(STORIES / "concat" / "model.onnx")
    trace = kvviz.decode(graph, [1, 2, 3], 140, detail={139}, progress=False)
    whole = kvviz.decode(graph, [1, 2, 3], 140, progress=False)
    starts = [run for run, fed in enumerate(trace.replayer.runs) if not fed.carried]
    assert starts == [0, 64, 128]
    assert np.array_equal(trace.value("logits", trace.runs[139].last - 1), whole.outputs["logits"])
