"""Guided tours: kept with the trace, told to the page with the steps that they mean."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.demo.storyteller import model as story_model
from kvviz.lessons import Tour, quickstart_tour
from kvviz.trace.writer import Writer
from kvviz.view.page_data.payload import Payloads, decode
from tests.graph.build import model, node

STORYTELLER = Path(__file__).resolve().parents[2] / "assets" / "models" / "storyteller"


@pytest.fixture
def trace() -> kvviz.Trace:
    graph = kvviz.load(model([node("Neg", "x", "y"), node("Abs", "y", "z")], ["x"], ["z"]))
    return kvviz.run(graph, {"x": np.ones(4, np.float32)})


TOUR = (
    Tour("Two ops")
    .stop("It *negates*.", step=0, pane="graph")
    .stop("The last.", query="op:Abs", pane="caches")
    .stop("That is all.")
)


def stops(trace: kvviz.Trace) -> list[dict[str, Any]]:
    header: dict[str, Any] = decode(Payloads(trace).encode())[0]
    told: list[dict[str, Any]] = header["tour"]["stops"]
    return told


def test_a_stop_tells_the_page_where_to_go_and_what_to_light(trace: kvviz.Trace) -> None:
    assert "tour" not in decode(Payloads(trace).encode())[0]
    trace.tour = TOUR
    first, second, third = stops(trace)
    assert (first["step"], first["pane"], first["tab"]) == (0, "kv-graph", "")
    assert (second["step"], second["pane"], second["tab"]) == (1, "", "caches")
    assert third == {"caption": "That is all.", "step": None, "waits": False, "tab": "", "pane": ""}


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
    ],
)
def test_a_stop_that_leads_nowhere_is_named(trace: kvviz.Trace, stop: dict[str, Any], said: str) -> None:
    with pytest.raises(kvviz.KvvizError, match=said.replace("?", r"\?")):
        trace.to_html(tour=Tour("t", [stop]))


def test_a_stop_may_wait_for_what_has_not_run_yet() -> None:
    # given a debugger that stands before the first op
    graph = kvviz.load(model([node("Neg", "x", "y"), node("Abs", "y", "z")], ["x"], ["z"]))
    debugger = kvviz.debug(graph, {"x": np.ones(4, np.float32)}, tour=TOUR)
    assert [s["step"] for s in stops(debugger.trace)] == [0, None, None]
    debugger.resume()
    assert [s["step"] for s in stops(debugger.trace)] == [0, 1, None]


def test_of_a_long_recording_the_page_has_the_runs_that_the_tour_stops_at(tmp_path: Path) -> None:
    # given three runs of one op each, of which the page is told one
    writer = Writer("three", "demo", "")
    for run in range(3):
        writer.begin_run(f"run {run}")
        writer.op("NOP", [], [writer.value(f"v{run}", (1,), "float32", writer.storage(4))])
    trace = writer.finish([])
    assert Payloads(trace, [0]).runs() == {0}
    trace.tour = Tour("t").stop("the last", step=2)
    packing = Payloads(trace, [0])
    packing.encode()
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


@pytest.mark.parametrize("room", [None, 24])
def test_the_quickstart_has_eight_stops_whose_figures_are_those_of_the_trace(room: int | None) -> None:
    words = json.loads((STORYTELLER / "vocab.json").read_text())
    graph = kvviz.load(STORYTELLER / "concat" / "model.onnx")
    trace = kvviz.decode(graph, "once upon a time", max_new_tokens=4, tokenizer=words, kv_capacity=room, progress=False)
    trace.tour = tour = quickstart_tour(trace)
    told = stops(trace)
    assert len(told) == 8
    prefill, rows, added, frontier, owner, how, copied, peak = told
    assert "5 tokens" in prefill["caption"] and prefill["step"] == 0
    assert ("room is reserved for 24 rows" if room else "no room is reserved") in rows["caption"]
    # three layers, keys and values, two heads of 16 floats
    assert f"{3 * 2 * 2 * 16 * 4} B in all" in added["caption"] and "8 rows now" in added["caption"]
    for word, stop in (("row", rows), ("frontier", frontier), ("owner", owner), ("in place", how)):
        assert f"*{word}*" in stop["caption"]
    assert (frontier["pane"], owner["pane"]) == ("kv-frontier", "kv-this")
    assert added["step"] == trace.find("op:Concat run:3 present.1.key")[0].index
    assert ("in place" if room else "a new buffer") in how["caption"]
    # of seven rows that were there; each word's are 768 B
    assert f"all caches together copied {0 if room else 7 * 768:,} B of the past" in how["caption"]
    run = trace.runs[3]
    assert trace.steps[copied["step"]].copied == max(step.copied for step in trace.steps[run.first : run.last])
    assert trace.steps[peak["step"]].live_bytes == trace.peak_bytes
    assert "The prefill needs most" in peak["caption"]
    assert all(stop.pane for stop in tour.stops)
    # it looks at a step behind the prefill
    assert quickstart_tour(trace, 0) == quickstart_tour(trace, 1)


def test_the_tour_of_a_long_decode_ends_where_the_caches_have_grown(trace: kvviz.Trace) -> None:
    with pytest.raises(kvviz.KvvizError, match="leads through a decode"):
        quickstart_tour(trace)
    trace = kvviz.decode(story_model(), [1, 77, 108], max_new_tokens=40, progress=False)
    peak = quickstart_tour(trace).stops[-1]
    assert peak.step is not None and trace.steps[peak.step].live_bytes == trace.peak_bytes
    assert trace.steps[peak.step].run > 30
    assert f"is in decode step {trace.steps[peak.step].run}." in peak.caption


def test_a_stop_takes_the_number_of_a_step_as_numpy_gives_it(trace: kvviz.Trace, tmp_path: Path) -> None:
    trace.to_html(tmp_path / "a.html", tour=Tour("t").stop("x", step=np.int64(1)))
    trace.save(tmp_path / "a.kvviz")
    loaded = kvviz.Trace.load(tmp_path / "a.kvviz").tour
    assert loaded == Tour("t").stop("x", step=1) and type(loaded.stops[0].step) is int


@pytest.mark.parametrize(
    ("stop", "said"),
    [
        ({"caption": "x", "step": 1.0}, "the number of a step, not 1.0"),
        ({"caption": "x", "step": True}, "the number of a step, not True"),
        ({"caption": "x", "step": "3"}, "the number of a step, not '3'"),
        ({"caption": "x", "pane": None}, "pane= of a tour is a text"),
        ({"caption": 7}, "caption= of a tour is a text"),
        ({"caption": " "}, "needs a caption"),
        ({"caption": "x", "step": 1, "query": "op:Abs"}, "not to both"),
    ],
)
def test_a_stop_that_no_file_could_keep_is_refused_where_it_is_made(stop: dict[str, Any], said: str) -> None:
    with pytest.raises(kvviz.KvvizError, match=said):
        Tour("t", [stop])
    with pytest.raises(kvviz.KvvizError, match="title= of a tour is a text"):
        Tour(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("tour", [Tour("t").stop("x", pane="zzz"), Tour("t").stop("x", step=99), "x"])
def test_a_tour_that_is_refused_leaves_the_trace_as_it_was(trace: kvviz.Trace, tmp_path: Path, tour: Any) -> None:
    trace.tour = TOUR
    for show in (lambda: trace.to_html(tmp_path / "a.html", tour=tour), lambda: kvviz.debug(trace, tour=tour)):
        with pytest.raises(kvviz.KvvizError):
            show()
        assert trace.tour is TOUR
    kvviz.debug(trace)
