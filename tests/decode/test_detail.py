"""A decode that keeps the steps of some runs is the whole decode with steps left out."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.caches.cache_heat import attention
from kvviz.errors import ReplayError
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
