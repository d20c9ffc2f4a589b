"""The cells of a cache say of every row what the row-by-row picture of the decoder says."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.caches import cache_heat as oracle
from kvviz.trace.records import Cache, CacheRun
from kvviz.view.charts.heat_cells import RESERVED, STATES, VALID, cells, entries_of, heads_of
from tests.decode import small
from tests.view.conftest import STORYTELLER

KINDS = ("concat", "merged", "scatter_nd", "circular", "attention")


def meaning(bits: int) -> str:
    """The name of a state of `kvviz.caches.cache_heat`."""
    if bits & 3 != oracle.VALID:
        return {oracle.RESERVED: "reserved", oracle.STALE: "stale"}[bits & 3]
    named = {oracle.OUTSIDE: "outside", oracle.WRITTEN: "written", oracle.WRAPPED: "wrapped"}
    return next((name for bit, name in named.items() if bits & bit), "valid")


@pytest.fixture(scope="module", params=[*KINDS, "padded", "loaded"])
def decoded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A decode for each way to keep a cache; one of two prompts, of which one is padded; and one from a file."""
    if request.param == "padded":
        graph = kvviz.load(STORYTELLER / "concat" / "model.onnx")
        return kvviz.decode(graph, [[1, 2, 3, 4], [5, 6]], 6, progress=False)
    made = small.concat() if request.param == "loaded" else getattr(small, request.param)()
    trace = kvviz.decode(kvviz.load(made.proto), [1, 2, 3, 4], 9, progress=False, **made.options)
    if request.param != "loaded":
        return trace
    path = tmp_path_factory.mktemp("trace") / "trace"
    trace.save(path)
    return kvviz.Trace.load(path)


def test_cells_are_the_rows_of_the_picture(decoded: kvviz.Trace) -> None:
    compared = 0
    for cache in decoded.caches:
        for run in range(len(cache.runs)):
            for entry in range(entries_of(cache)):
                shown = oracle.heat(decoded, cache, run, entry)
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
    assert [heads_of(decoded, cache) for cache in decoded.caches] == [small.HEADS] * len(decoded.caches)


def test_where_rows_are_not_known_the_first_count_as_valid_and_a_state_has_none() -> None:
    cache = Cache("0.key", "past", "present", "static", 2, [CacheRun(8, 3, 0, 0, 1)])
    assert cells(cache, 0) == ((0, 3, VALID, 0, 0), (3, 8, RESERVED, 0, -1))
    state = Cache("h", "h", "h_out", "state", None, [CacheRun(1, 1, 0, 64, 1)])
    assert cells(state, 0) == cells(state, 1) == ()
    assert entries_of(state) == 1
    assert np.array_equal(STATES, ("reserved", "valid", "written", "stale", "outside", "wrapped"))
