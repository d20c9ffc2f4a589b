"""A decode that keeps the steps of some runs is the whole decode with steps left out."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.caches.cache_heat import attention, heat
from kvviz.caches.cache_warnings import cache_warnings
from kvviz.errors import ReplayError
from kvviz.report.explain import explain
from kvviz.view.page_data.packed_columns import unpack
from kvviz.view.page_data.payload import payload

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


@pytest.mark.parametrize("both", [WAYS[0], WAYS[3], WAYS[7]], indirect=True, ids=lambda way: way[0])
def test_it_can_be_explained_drawn_shown_and_saved(both: tuple[kvviz.Trace, kvviz.Trace], tmp_path: Path) -> None:
    whole, some = both
    report, of_all = explain(some), explain(whole)
    assert str(report) and report.missed[0].op_type == of_all.missed[0].op_type
    assert {warning.kind for warning in cache_warnings(some)} == {warning.kind for warning in cache_warnings(whole)}
    for run in (0, 7, 15):
        mine, other = (heat(trace, trace.caches[0], run) for trace in (some, whole))
        assert (mine is None) == (other is None)
        if mine is not None and other is not None:
            assert np.array_equal(mine.states, other.states)
    header, _ = unpack(payload(some))
    assert [run["steps"] > 0 for run in header["runs"]] == [run in {0, *TOLD} for run in range(RUNS)]
    some.save(tmp_path / "some.kvviz")
    again = kvviz.Trace.load(tmp_path / "some.kvviz")
    assert again.runs == some.runs and len(again.steps) == len(some.steps)


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


def test_the_page_shows_what_a_run_hands_on_as_held_at_its_end() -> None:
    trace = story("concat", detail={3})
    _, columns = unpack(payload(trace))
    last = trace.runs[3].last - 1
    at = columns["step.free"]
    freed = set(columns["free.storage"][at[last] : at[last + 1]])
    presents = {entry.storage for entry in (cache.runs[3] for cache in trace.caches)}
    assert presents and not freed & presents
    assert all(columns["storage.freed"][storage] > last for storage in presents)
    # in the records the step is the last one that knew of them
    assert presents <= set(trace.steps[last].freed)
