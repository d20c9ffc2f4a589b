"""What a cache held before the first run: a single run with a past says its rows, as a decode says those of runs."""

from __future__ import annotations

import numpy as np
import pytest

import kvviz
from kvviz.view.payload import decode as unpacked
from kvviz.view.payload import payload
from kvviz.view.payload_cache_rows import cache_payload
from tests.engine.graphs import graph_of

CONCAT = (
    "agraph (float[1,p,8] past, float[1,1,8] new) => (float[1,q,8] present) {present = Concat <axis = 1> (past, new)}"
)


@pytest.mark.parametrize(("capacity", "donate"), [(None, True), (None, False), (8, True)])
@pytest.mark.parametrize("rows", [0, 5])
def test_a_single_run_says_how_many_rows_its_past_had(rows: int, capacity: int | None, donate: bool) -> None:
    # given
    past = np.ones((1, rows, 8), np.float32)
    past = kvviz.reserve(past, 1, capacity) if capacity else past
    feeds = {"past": past, "new": np.ones((1, 1, 8), np.float32)}
    # when
    trace = kvviz.run(graph_of(CONCAT), feeds, donate=["past"] * donate)
    # then
    room = capacity if capacity and donate else rows
    (cache,) = unpacked(payload(trace))[0]["caches"]
    assert cache["given"] == [rows, room] and cache["valid"] == [rows + 1]
    assert unpacked(cache_payload(trace))[0]["caches"][0]["given"] == [rows, room]


def test_what_lies_beside_a_past_in_a_larger_buffer_is_no_room_of_it() -> None:
    big = np.ones((1, 9, 8), np.float32)
    trace = kvviz.run(graph_of(CONCAT), {"past": big[:, :5], "new": np.ones((1, 1, 8), np.float32)})
    (cache,) = unpacked(payload(trace))[0]["caches"]
    assert cache["given"] == [5, 5]


def test_a_decode_begins_with_no_rows(decoded: kvviz.Trace) -> None:
    assert all(cache["given"][0] == 0 for cache in unpacked(payload(decoded))[0]["caches"])
