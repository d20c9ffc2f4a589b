"""The golden states and queries that the page replays are what Python says today, and say what the trace says."""

import gzip
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import kvviz
from kvviz.query.grammar import FIELDS
from tests.view.golden import FOLDER, TRACES, as_json, contents, files, read
from tests.view.query_cases import FILE, cases

Traces = dict[str, Callable[[], kvviz.Trace]]


@pytest.fixture(scope="module")
def traces() -> Traces:
    return {name: cache(make) for name, make in TRACES.items()}


@pytest.fixture(scope="module")
def today(traces: Traces) -> dict[str, Any]:
    return dict(files(traces))


@pytest.fixture(scope="module")
def asked(traces: Traces) -> dict[str, Any]:
    return cases(traces)


def test_committed_golden_files_are_what_python_writes(today: dict[str, Any]) -> None:
    assert today.keys() == {path.name for path in FOLDER.iterdir()}
    stale = []
    for name, value in today.items():
        now = contents(value) if isinstance(value, bytes) else as_json(value)
        if read(name) != now:
            stale.append(name)
    assert not stale, "the page is tested on what Python said before; if it is right now: make golden"


def test_golden_states_are_of_bodies_and_bindings_of_every_kind(today: dict[str, Any]) -> None:
    told = {name: today[f"{name}.json.gz"]["states"] for name in TRACES}
    stacks = {label.split("[")[-1].split(":")[0] for state in told["bodies"] for (label,) in state["frames"]}
    assert stacks >= {"main", "body", "then_branch]", "function]"}, stacks
    hows = {place[3] for states in told.values() for state in states for frame in state["places"] for place in frame}
    assert hows >= {"new", "in place", "view", "append", "pool", "passed", "borrowed", "donated"}, hows
    assert {state["decision"]["dispatch"] for state in told["static"][1:]} == {"run", "in_place"}


def test_storages_that_are_told_as_alive_have_the_bytes_that_were_recorded(
    today: dict[str, Any], traces: Traces
) -> None:
    for name, make in traces.items():
        trace = make()
        for state in today[f"{name}.json.gz"]["states"]:
            step = state["step"]
            if step >= 0:
                sizes = [trace.storages[s] for s in state["live"]]
                grown = [size.capacity - sum(more for at, more in size.grew if at > step) for size in sizes]
                assert sum(grown) == trace.steps[step].live_bytes, (name, step)


def test_committed_cases_are_what_python_reads_and_finds(asked: dict[str, Any]) -> None:
    told = json.loads(gzip.decompress(FILE.read_bytes()))
    now = as_json(asked)
    assert told["read"] == now["read"], "if it is right now: make golden"
    assert told["found"] == now["found"], "if it is right now: make golden"


def test_every_field_finds_something(asked: dict[str, Any]) -> None:
    found = {
        text.split(":")[0] for of_trace in asked["found"].values() for text, (hits, *_) in of_trace.items() if hits
    }
    assert found >= {field.name for field in FIELDS}
