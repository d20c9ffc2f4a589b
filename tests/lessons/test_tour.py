"""Guided tours: kept with the trace, told to the page with the steps that they mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.lessons import Tour, TourStop
from kvviz.view.payload import Payloads, decode
from tests.graph.build import model, node


@pytest.fixture
def trace() -> kvviz.Trace:
    graph = kvviz.load(model([node("Neg", "x", "y"), node("Abs", "y", "z")], ["x"], ["z"]))
    return kvviz.run(graph, {"x": np.ones(4, np.float32)})


TOUR = (
    Tour("Two ops")
    .stop("It *negates*.", step=0, pane="graph")
    .stop("The last.", query="op:Abs", pane="caches", layout="Cache")
    .stop("That is all.")
)


def stops(trace: kvviz.Trace) -> list[dict[str, Any]]:
    header: dict[str, Any] = decode(Payloads(trace).tell())[0]
    told: list[dict[str, Any]] = header["tour"]["stops"]
    return told


def test_a_stop_tells_the_page_where_to_go_and_what_to_light(trace: kvviz.Trace) -> None:
    trace.tour = TOUR
    first, second, third = stops(trace)
    assert (first["step"], first["pane"], first["tab"]) == (0, "kv-graph", "")
    assert (second["step"], second["pane"], second["tab"], second["layout"]) == (1, "", "caches", "Cache")
    assert third == {"caption": "That is all.", "step": None, "waits": False, "tab": "", "pane": "", "layout": ""}


def test_a_trace_without_a_tour_says_nothing_of_one(trace: kvviz.Trace) -> None:
    assert "tour" not in decode(Payloads(trace).tell())[0]


def test_a_tour_goes_where_the_trace_goes(trace: kvviz.Trace, tmp_path: Path) -> None:
    trace.to_html(tmp_path / "a.html", tour=TOUR)
    trace.save(tmp_path / "a.kvviz")
    loaded = kvviz.Trace.load(tmp_path / "a.kvviz")
    assert loaded.tour == TOUR
    assert stops(loaded) == stops(trace)
    assert kvviz.debug(trace, tour=TOUR).trace.tour is TOUR


@pytest.mark.parametrize(
    ("stop", "said"),
    [
        ({"caption": "x", "step": 2}, "stop 1 of the tour goes to step 2; the trace has 2 steps"),
        ({"caption": "x", "step": -3}, "goes to step -3"),
        ({"caption": "x", "query": "op:Concat"}, "'op:Concat', which finds no step"),
        ({"caption": "x", "pane": "cache"}, "lights 'cache'; did you mean 'caches'?"),
        ({"caption": "x", "layout": "Wide"}, "has layout 'Wide'; there are Debug"),
    ],
)
def test_a_stop_that_leads_nowhere_is_named(trace: kvviz.Trace, stop: dict[str, Any], said: str) -> None:
    with pytest.raises(kvviz.KvvizError, match=said.replace("?", r"\?")):
        trace.to_html(tour=Tour("t", [stop]))


def test_a_stop_has_a_caption_and_one_place() -> None:
    with pytest.raises(kvviz.KvvizError, match="needs a caption"):
        TourStop(" ")
    with pytest.raises(kvviz.KvvizError, match="not to both"):
        TourStop("x", step=1, query="op:Abs")


def test_a_stop_may_wait_for_what_has_not_run_yet() -> None:
    # given a debugger that stands before the first op
    graph = kvviz.load(model([node("Neg", "x", "y"), node("Abs", "y", "z")], ["x"], ["z"]))
    debugger = kvviz.debug(graph, {"x": np.ones(4, np.float32)}, tour=TOUR)
    assert [s["step"] for s in stops(debugger.trace)] == [0, None, None]
    # when
    debugger.resume()
    # then
    assert [s["step"] for s in stops(debugger.trace)] == [0, 1, None]


def test_of_a_long_recording_the_page_has_the_runs_that_the_tour_stops_at(tmp_path: Path) -> None:
    from kvviz.trace.writer import Writer

    # given three runs of one op each, of which the page is told one
    writer = Writer("three", "demo", "")
    for run in range(3):
        writer.begin_run(f"run {run}")
        writer.op("NOP", [], [writer.value(f"v{run}", (1,), "float32", writer.storage(4))])
    trace = writer.finish([])
    assert Payloads(trace, [0]).runs() == {0}
    # when
    trace.tour = Tour("t").stop("the last", step=2)
    # then
    packing = Payloads(trace, [0])
    packing.tell()
    assert packing.runs() == {0, 2}


def test_a_saved_tour_that_was_tampered_with_is_refused(trace: kvviz.Trace, tmp_path: Path) -> None:
    trace.tour = TOUR
    object.__setattr__(trace.tour.stops[0], "step", "0")
    try:
        trace.save(tmp_path / "bad.kvviz")
    finally:
        object.__setattr__(TOUR.stops[0], "step", 0)
    with pytest.raises(kvviz.KvvizError, match="not a trace of kvviz, or it is damaged"):
        kvviz.Trace.load(tmp_path / "bad.kvviz")
