"""What the page is told of runs: as many as fit, their times and lanes, and the rows that caches began with."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvviz
from kvviz.decode.token_loop import DecodeSession
from kvviz.view.page_data import payload_runs
from kvviz.view.page_data.payload import Payloads, decode, payload
from kvviz.view.page_data.payload_cache_rows import cache_payload
from kvviz.view.page_data.payload_runs import few_runs
from tests.engine.graphs import graph_of
from tests.test_models import graph_of as model_of
from tests.trace.recordings import two_lanes

MB = 1_000_000


def runs_of(sizes: list[int]) -> list[Any]:
    """Runs of which only the number of steps matters."""
    ends = np.cumsum([0, *sizes]).tolist()
    return [SimpleNamespace(first=first, last=last) for first, last in pairwise(ends)]


@pytest.fixture(scope="module")
def long() -> kvviz.Trace:
    return kvviz.decode(model_of("storyteller/concat"), [1, 5, 9, 12], max_new_tokens=512, progress=False)


@pytest.fixture
def short_budget(monkeypatch: pytest.MonkeyPatch, decoded: kvviz.Trace) -> None:
    """A budget that the decode of four runs exceeds."""
    monkeypatch.setattr(payload_runs, "BUDGET", 2 * decoded.runs[0].last)


@given(st.lists(st.integers(0, 2000), min_size=2, max_size=700), st.integers(1, 20_000))
def test_the_first_and_the_last_run_are_always_told_and_the_others_fit_the_budget(
    sizes: list[int], budget: int
) -> None:
    chosen = few_runs(runs_of(sizes), budget)
    if chosen is None:
        assert sum(sizes) <= budget
        return
    assert {0, len(sizes) - 1} <= chosen <= set(range(len(sizes)))
    assert sum(sizes[i] for i in chosen - {0, len(sizes) - 1}) <= max(0, budget - sizes[0] - sizes[-1])
    assert len(chosen) <= 9


@given(st.integers(2, 600), st.integers(1, 1300))
def test_the_runs_in_between_stay_while_a_recording_goes_on(count: int, size: int) -> None:
    budget = 10 * size
    now, then = (few_runs(runs_of([size] * n), budget) for n in (count, count + 1))
    if now is None or then is None:
        return
    # at a power of two every second one is left out
    assert now - {count - 1} <= then or then - {count} <= now


def test_512_runs_are_told_in_a_few_of_them_and_all_their_totals(long: kvviz.Trace) -> None:
    assert few_runs(runs_of([500_000])) is None, "one run is told however long it is"
    told = Payloads(long).encode(lazy=True)
    head, col = decode(told)
    assert len(long.steps) > 280_000 and len(told) < 1 * MB
    assert head["total"] == len(long.steps)
    assert len(col["step.node"]) <= payload_runs.BUDGET
    with_steps = [i for i, run in enumerate(head["runs"]) if run["last"] > run["first"]]
    assert {0, 1, 511} < set(with_steps) and len(with_steps) < 12
    for told_run, run in zip(head["runs"], long.runs, strict=True):
        assert (told_run["from"], told_run["steps"]) == (run.first, run.last - run.first)
        totals = [told_run[key] for key in ("peak", "copied", "written", "allocated")]
        assert totals == [run.peak_bytes, run.bytes_copied, run.bytes_written, run.bytes_allocated]
    assert [len(cache["valid"]) for cache in head["caches"]] == [512] * len(long.caches)
    most = range(512)[: payload_runs.BUDGET // 554]
    told = Payloads(long, most).encode(lazy=True)
    assert len(decode(told)[1]["step.node"]) > 59_000
    assert len(told) < 8 * MB


def test_steps_of_a_told_run_are_those_of_the_whole_recording(decoded: kvviz.Trace) -> None:
    whole, every = decode(payload(decoded))
    part, some = decode(payload(decoded, detail={1, 3}))
    kept = [i for k in (1, 3) for i in range(decoded.runs[k].first, decoded.runs[k].last)]
    for name in ("node", "flags", "taken", "live", "alloc", "copied", "written"):
        assert np.array_equal(some[f"step.{name}"], every[f"step.{name}"][kept]), name
    texts = [part["strings"][i] for i in some["step.sentence"]]
    assert texts == [whole["strings"][i] for i in every["step.sentence"][kept]]
    # frames are numbered by their places, and are those of these runs only
    assert sorted(set(some["frame.run"].tolist())) == [1, 3]
    assert np.array_equal(some["frame.run"][some["step.frame"]], every["frame.run"][every["step.frame"][kept]])
    # a storage that no told step knows keeps its number only
    _, col = decode(payload(decoded, detail={3}))
    used = {*col["out.storage"].tolist(), *col["bind.storage"].tolist(), *col["free.storage"].tolist()}
    assert len(col["storage.capacity"]) == len(decoded.storages)
    for s in decoded.storages:
        told = int(col["storage.capacity"][s.id])
        assert told == (s.capacity if s.id in used else 0)
        if s.id not in used:
            assert col["storage.born"][s.id] == len(col["step.node"]), "it never comes to life"


@pytest.mark.usefixtures("short_budget")
def test_a_run_that_is_asked_for_is_told_and_the_last_few_are_kept(long: kvviz.Trace) -> None:
    payloads = Payloads(long)
    base = payloads.runs()
    assert base is not None
    for run in (20, 30, 40, 50, 60):
        assert payloads.show(run)
    assert not payloads.show(60), "it is told already"
    assert payloads.runs() == base | {30, 40, 50, 60}
    head, col = decode(payloads.encode(lazy=True))
    assert [run["last"] > run["first"] for run in head["runs"]][20:61:10] == [False, True, True, True, True]
    assert payloads.kept == sorted(payloads.kept) and len(payloads.kept) == len(col["step.node"])
    assert payloads.kept[head["runs"][40]["first"]] == long.runs[40].first


@pytest.mark.usefixtures("short_budget")
def test_what_goes_on_is_told_however_long_it_was_before(decoded: kvviz.Trace) -> None:
    # given a decode that is longer than the budget, in the middle of a run
    session = DecodeSession(decoded.graph, [1, 2, 3], max_new_tokens=9)
    payloads = Payloads(session.trace)
    for steps in (5 * 60, 9, 60, 31):
        for _ in range(steps):
            session.advance()
        session.look_ahead()
        grown, col = decode(payloads.encode())
        fresh, same = decode(payload(session.trace))
        for name in ("graphs", "drawings", "runs", "live", "caches", "total"):
            assert grown[name] == fresh[name]
        assert np.array_equal(col["step.node"], same["step.node"])
        assert np.array_equal(col["step.frame"], same["step.frame"])
        runs = col["frame.run"][col["step.frame"]]
        assert 0 in runs and len(session.trace.runs) - 1 in col["frame.run"]
        assert grown["live"]["frame"] < len(col["frame.run"])


def test_times_travel_with_their_lanes(decoded: kvviz.Trace) -> None:
    header, columns = decode(payload(two_lanes()))
    lanes = [header["strings"][lane] for lane in columns["time.lane"]]
    assert lanes == ["transfer", "queue 0", "transfer", "queue 0", "queue 0"]
    assert columns["time.step"].tolist() == [0, 1, 2, 3, 4]
    assert columns["time.start"].tolist() == [0, 4, 5, 9, 11]
    assert columns["time.end"].tolist() == [4, 9, 8, 11, 15]
    # a free that was refused is told, and one that was done is not
    assert columns["refused.step"].tolist() == [3] and columns["refused.storage"].tolist() == [0]
    assert header["strings"][columns["refused.why"][0]] == "a program that was submitted reads it"
    # and a recording whose time is the step number has neither
    assert not [name for name in decode(payload(decoded))[1] if name.startswith(("time.", "refused."))]


CONCAT = (
    "agraph (float[1,p,8] past, float[1,1,8] new) => (float[1,q,8] present) {present = Concat <axis = 1> (past, new)}"
)


@pytest.mark.parametrize(("capacity", "donate"), [(None, True), (None, False), (8, True)])
@pytest.mark.parametrize("rows", [0, 5])
def test_a_single_run_says_how_many_rows_its_past_had(rows: int, capacity: int | None, donate: bool) -> None:
    past = np.ones((1, rows, 8), np.float32)
    past = kvviz.reserve(past, 1, capacity) if capacity else past
    feeds = {"past": past, "new": np.ones((1, 1, 8), np.float32)}
    trace = kvviz.run(graph_of(CONCAT), feeds, donate=["past"] * donate)
    room = capacity if capacity and donate else rows
    (cache,) = decode(payload(trace))[0]["caches"]
    assert cache["given"] == [rows, room] and cache["valid"] == [rows + 1]
    assert decode(cache_payload(trace))[0]["caches"][0]["given"] == [rows, room]


def test_what_lies_beside_a_past_in_a_larger_buffer_is_no_room_and_a_decode_begins_with_no_rows(
    decoded: kvviz.Trace,
) -> None:
    big = np.ones((1, 9, 8), np.float32)
    trace = kvviz.run(graph_of(CONCAT), {"past": big[:, :5], "new": np.ones((1, 1, 8), np.float32)})
    (cache,) = decode(payload(trace))[0]["caches"]
    assert cache["given"] == [5, 5]
    assert all(cache["given"][0] == 0 for cache in decode(payload(decoded))[0]["caches"])
