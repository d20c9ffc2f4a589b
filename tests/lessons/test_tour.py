"""Guided tours: kept with the trace, told to the page with the steps that they mean.

And the animation of two decodes: what it shows is what the traces say.
"""

import re
import runpy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import kvviz
from kvviz.demo.storyteller import model as story_model
from kvviz.lessons import Tour, quickstart_tour, story_frames
from kvviz.trace.writer import Writer
from kvviz.view.page_data.payload import Payloads, decode
from tests.graph.build import model, node
from tests.lessons.story import ROOT, ROW, STORYTELLER, WORDS, story


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


def test_a_stop_that_leads_nowhere_is_named(trace: kvviz.Trace) -> None:
    cases: list[tuple[Any, str]] = [
        ({"caption": "x", "step": 2}, "stop 1 of the tour goes to step 2; the trace has 2 steps"),
        ({"caption": "x", "step": -3}, "goes to step -3"),
        ({"caption": "x", "query": "op:Concat"}, "'op:Concat', which finds no step"),
        ({"caption": "x", "pane": "cache"}, "lights 'cache'; did you mean 'caches'?"),
    ]
    for stop, said in cases:
        with pytest.raises(kvviz.KvvizError, match=said.replace("?", r"\?")):
            trace.to_html(tour=Tour("t", [stop]))


def test_a_stop_may_wait_for_what_has_not_run_yet(trace: kvviz.Trace) -> None:
    # given a debugger that stands before the first op
    debugger = kvviz.debug(trace.graph, {"x": np.ones(4, np.float32)}, tour=TOUR)
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
    path = STORYTELLER / "concat" / "model.onnx"
    trace = kvviz.decode(path, "once upon a time", max_new_tokens=4, tokenizer=WORDS, kv_capacity=room, progress=False)
    trace.tour = tour = quickstart_tour(trace)
    told = stops(trace)
    assert len(told) == 8
    prefill, rows, added, frontier, owner, how, copied, peak = told
    assert "5 tokens" in prefill["caption"] and prefill["step"] == 0
    assert ("room is reserved for 24 rows" if room else "no room is reserved") in rows["caption"]
    assert f"{ROW} B in all" in added["caption"] and "8 rows now" in added["caption"]
    for word, stop in (("row", rows), ("frontier", frontier), ("owner", owner), ("in place", how)):
        assert f"*{word}*" in stop["caption"]
    assert (frontier["pane"], owner["pane"]) == ("kv-frontier", "kv-this")
    assert added["step"] == trace.find("op:Concat run:3 present.1.key")[0].index
    assert ("in place" if room else "a new buffer") in how["caption"]
    # of seven rows that were there
    assert f"all caches together copied {0 if room else 7 * ROW:,} B of the past" in how["caption"]
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


def test_a_stop_that_no_file_could_keep_is_refused_where_it_is_made() -> None:
    cases: list[tuple[Any, str]] = [
        ({"caption": "x", "step": 1.0}, "the number of a step, not 1.0"),
        ({"caption": "x", "step": True}, "the number of a step, not True"),
        ({"caption": "x", "step": "3"}, "the number of a step, not '3'"),
        ({"caption": "x", "pane": None}, "pane= of a tour is a text"),
        ({"caption": 7}, "caption= of a tour is a text"),
        ({"caption": " "}, "needs a caption"),
        ({"caption": "x", "step": 1, "query": "op:Abs"}, "not to both"),
    ]
    for stop, said in cases:
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


animate = runpy.run_path(str(ROOT / ".ci" / "story_animation.py"))["animate"]
COMMITTED = ROOT / "assets" / "images" / "two_decodes.svg"
# Of the committed picture.
LENGTH = 24
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def pair() -> tuple[kvviz.Trace, kvviz.Trace]:
    return story("concat", LENGTH), story("concat", LENGTH, kv_capacity=40)


def counters(svg: str) -> tuple[list[int], list[list[int]]]:
    """Bytes on the big counters, and copied and added of each run, in the order of both halves."""
    big = [int(text.replace(",", "")) for text in re.findall(r"past copied: ([\d,]+) B", svg)]
    runs = [
        [int(number.replace(",", "")) for number in found]
        for found in re.findall(r"this run: ([\d,]+) B copied, ([\d,]+) B added", svg)
    ]
    return big, runs


def test_every_words_bytes_are_those_of_the_traces_and_of_the_closed_form(
    pair: tuple[kvviz.Trace, kvviz.Trace],
) -> None:
    big, runs = counters(animate(*pair))
    prompt = len(pair[0].prompt)
    # without room a run copies all rows that were there; with room none
    copied = [0, *((prompt + k - 1) * ROW for k in range(1, LENGTH))]
    assert runs[:LENGTH] == [[copied[k], ROW * (1 if k else prompt)] for k in range(LENGTH)]
    assert runs[LENGTH:] == [[0, ROW * (1 if k else prompt)] for k in range(LENGTH)]
    assert big == [*(sum(copied[: k + 1]) for k in range(LENGTH)), *[0] * LENGTH]
    assert copied == [sum(cache.runs[k].bytes_copied for cache in pair[0].caches) for k in range(LENGTH)]
    # and so are those of the committed picture
    assert counters(COMMITTED.read_text("utf-8")) == (big, runs)
    assert COMMITTED.stat().st_size < 150_000


def test_it_is_one_small_file_without_script_or_anything_to_fetch_and_tells_the_story(
    pair: tuple[kvviz.Trace, kvviz.Trace],
) -> None:
    svg = animate(*pair)
    assert len(svg.encode()) < 150_000
    root = ElementTree.fromstring(svg)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {"svg", "title", "style", "rect", "text", "g"}
    assert not re.search(r"href|url\(|@import|\bon\w+=", svg)
    # all that moves is behind the media query, and of each half's counters the last one is not hidden without it
    style, _, moving = svg.partition("@media(prefers-reduced-motion:no-preference)")
    assert "animation" not in style and "animation-duration" in moving.partition("</style>")[0]
    shown = re.findall(r'class="c n(\d+) last"', svg)
    assert shown == [str(LENGTH - 1)] * 2
    assert ".c{opacity:0}.c.last{opacity:1}" in style
    # the words of the story come one run after another
    told = [text.text for text in root.iter(f"{SVG}text") if (text.get("class") or "").startswith("w k")]
    words = pair[0].words
    assert words is not None
    assert told == [word.strip() for word in words[len(pair[0].prompt) :]]


def test_a_move_between_runs_counts_as_copied() -> None:
    # given caches whose caller makes room after a run
    trace = story("concat", 12, kv_capacity=16, growth="after")
    moved = [k for k, run in enumerate(trace.caches[0].runs) if run.bytes_moved_outside]
    frames = story_frames(trace)
    assert moved and moved == [k for k, frame in enumerate(frames) if frame.moved]
    for k in moved:
        assert frames[k].copied == sum(cache.runs[k].bytes_moved_outside for cache in trace.caches)
        # the room is there for the next run
        assert frames[k + 1].capacity > frames[k].capacity


def test_different_stories_and_other_protocols_are_refused(pair: tuple[kvviz.Trace, kvviz.Trace]) -> None:
    with pytest.raises(kvviz.KvvizError, match="tell different stories"):
        animate(pair[0], story("concat", 3))
    with pytest.raises(kvviz.KvvizError, match="two names="):
        animate(*pair, ("one",))
    with pytest.raises(kvviz.KvvizError, match="cache=6: the trace has 6 caches"):
        animate(*pair, cache=6)
