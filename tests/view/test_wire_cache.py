"""Cells of caches are the rows of the decoder's picture; the cache view is told all, with meters and warnings."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.caches import cache_heat as oracle
from kvviz.caches.cache_warnings import cache_warnings
from kvviz.trace.records import Cache, CacheRun, Rows
from kvviz.view.charts.heat_cells import RESERVED, STATES, VALID, cells, entries_of, heads_of
from kvviz.view.page_data.packed_columns import unpack
from kvviz.view.page_data.payload_cache_rows import METERS, cache_payload
from tests.decode import small
from tests.outside.told import loaded
from tests.test_models import graph_of


def told_cells(head: dict[str, Any], col: dict[str, np.ndarray], stream: int, run: int) -> list[tuple[int, ...]]:
    at = stream * (len(head["runs"]) + 1) + run
    span = slice(col["cell.at"][at], col["cell.at"][at + 1])
    parts = [col[f"cell.{name}"][span].tolist() for name in ("start", "stop", "state", "fresh", "token")]
    return list(zip(*parts, strict=True))


def meaning(bits: int) -> str:
    """The name of a state of `kvviz.caches.cache_heat`."""
    if bits & 3 != oracle.VALID:
        return {oracle.RESERVED: "reserved", oracle.STALE: "stale"}[bits & 3]
    named = {oracle.OUTSIDE: "outside", oracle.WRITTEN: "written", oracle.WRAPPED: "wrapped"}
    return next((name for bit, name in named.items() if bits & bit), "valid")


@pytest.fixture(scope="module", params=["concat", "merged", "scatter_nd", "circular", "attention", "padded", "loaded"])
def trace(request: pytest.FixtureRequest) -> Any:
    """A decode for each way to keep a cache; one of two prompts, of which one is padded; and one from a file."""
    if request.param == "padded":
        return kvviz.decode(graph_of("storyteller/concat"), [[1, 2, 3, 4], [5, 6]], 6, progress=False)
    made = small.concat() if request.param == "loaded" else getattr(small, request.param)()
    trace = kvviz.decode(kvviz.load(made.proto), [1, 2, 3, 4], 9, progress=False, **made.options)
    return loaded(trace) if request.param == "loaded" else trace


def test_cells_are_the_rows_of_the_picture(trace: kvviz.Trace) -> None:
    compared = 0
    for cache in trace.caches:
        for run in range(len(cache.runs)):
            for entry in range(entries_of(cache)):
                shown = oracle.heat(trace, cache, run, entry)
                assert shown is not None
                end = 0
                for start, stop, state, fresh, token in cells(cache, run, entry):
                    assert start == end < stop
                    end = stop
                    for row in range(start, stop):
                        bits = int(shown.states[0, row])
                        assert STATES[state] == meaning(bits)
                        assert bool(fresh) == bool(bits & oracle.WRITTEN)
                        assert (token + row - start if token >= 0 else -1) == shown.positions[row]
                        compared += 1
                assert end == cache.runs[run].capacity
            # neighbours differ, so that no cell could be longer
            for (a, b, *before), (_, _, *after) in pairwise(cells(cache, run)):
                goes_on = before[2] == after[2] == -1 or (before[2] >= 0 and before[2] + b - a == after[2])
                assert before[:2] != after[:2] or not goes_on
    assert compared > 100
    assert [heads_of(trace, cache) for cache in trace.caches] == [small.HEADS] * len(trace.caches)


def test_where_rows_are_not_known_the_first_count_as_valid_and_a_state_has_none() -> None:
    cache = Cache("0.key", "past", "present", "static", 2, [CacheRun(8, 3, 0, 0, 1)])
    assert cells(cache, 0) == ((0, 3, VALID, 0, 0), (3, 8, RESERVED, 0, -1))
    state = Cache("h", "h", "h_out", "state", None, [CacheRun(1, 1, 0, 64, 1)])
    assert cells(state, 0) == cells(state, 1) == ()
    assert entries_of(state) == 1
    assert np.array_equal(STATES, ("reserved", "valid", "written", "stale", "outside", "wrapped"))


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
