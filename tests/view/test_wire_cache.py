"""What the cache view is told: cells that are those of the trace, each history once, meters of every run, warnings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.caches.cache_warnings import cache_warnings
from kvviz.trace.records import Cache, CacheRun, Rows
from kvviz.view.charts.heat_cells import STATES, cells, entries_of
from kvviz.view.page_data.packed_columns import unpack
from kvviz.view.page_data.payload_cache_rows import METERS, cache_payload
from tests.decode import small
from tests.view.conftest import STORYTELLER


def told_cells(head: dict[str, Any], col: dict[str, np.ndarray], stream: int, run: int) -> list[tuple[int, ...]]:
    at = stream * (len(head["runs"]) + 1) + run
    span = slice(col["cell.at"][at], col["cell.at"][at + 1])
    parts = [col[f"cell.{name}"][span].tolist() for name in ("start", "stop", "state", "fresh", "token")]
    return list(zip(*parts, strict=True))


@pytest.fixture(scope="module", params=["decoded", "copying", "circular", "batch"])
def trace(request: pytest.FixtureRequest) -> Any:
    if request.param == "circular":
        return kvviz.decode(kvviz.load(small.circular().proto), [1, 2, 3], 9, progress=False)
    if request.param == "batch":
        return kvviz.decode(kvviz.load(STORYTELLER / "concat" / "model.onnx"), [[1, 2, 3], [4]], 5, progress=False)
    return request.getfixturevalue(request.param)


def test_every_cell_of_every_cache_entry_and_run_is_told(trace: kvviz.Trace) -> None:
    head, col = unpack(cache_payload(trace))
    assert head["states"] == list(STATES)
    assert len(head["caches"]) == len(trace.caches)
    for cache, told in zip(trace.caches, head["caches"], strict=True):
        assert len(told["streams"]) == entries_of(cache)
        for entry, stream in enumerate(told["streams"]):
            for run in range(len(trace.runs)):
                assert told_cells(head, col, stream, run) == list(cells(cache, run, entry))


def test_meters_and_warnings_are_those_of_the_trace(trace: kvviz.Trace) -> None:
    head, col = unpack(cache_payload(trace))
    assert [(trace.caches[w["cache"]].input, w["run"], w["kind"], w["text"]) for w in head["warnings"]] == [
        (w.cache, w.run, w.kind, w.sentence) for w in cache_warnings(trace)
    ]
    runs = len(head["runs"])
    for i, cache in enumerate(trace.caches):
        for run, meters in enumerate(cache.runs):
            for name, *_ in METERS:
                told = col[f"meter.{name}"][i * runs + run]
                if name == "lost":
                    assert told == max((item.lost for item in meters.items), default=0)
                else:
                    assert told == getattr(meters, name)


def test_caches_of_one_history_share_it_and_each_tells_the_bytes_of_a_row(
    decoded: kvviz.Trace, looping: kvviz.Trace
) -> None:
    head, col = unpack(cache_payload(decoded))
    assert len(decoded.caches) > 1
    assert {tuple(cache["streams"]) for cache in head["caches"]} == {(0,)}
    assert len(col["cell.at"]) == len(decoded.runs) + 1
    for cache, told in zip(decoded.caches, head["caches"], strict=True):
        array = decoded.outputs[cache.output]
        assert told["unit"] == array.nbytes // array.shape[cache.axis or 0]
    assert cache_payload(looping) == b""


def test_4096_rows_over_512_runs_are_a_few_kilobytes(decoded: kvviz.Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    # given 60 caches of 4,096 rows that fill up
    runs = [
        CacheRun(4096, 900 + r, 0, 128, 1, items=(Rows(((0, 900 + r, 0),), ((899 + r, 900 + r),), ((0, 900 + r),)),))
        for r in range(512)
    ]
    caches = [
        Cache(f"{i}.key", cache.input, cache.output, "static", 2, runs)
        for i in range(60)
        for cache in decoded.caches[:1]
    ]
    monkeypatch.setattr(decoded, "caches", caches)
    monkeypatch.setattr(decoded, "runs", decoded.runs[:1] * 512)
    assert len(cache_payload(decoded)) < 40_000
