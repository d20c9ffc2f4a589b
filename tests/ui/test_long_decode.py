"""A decode of 320 runs in a real JupyterLab: totals of all runs, steps of some, and of others on demand."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

import kvviz
from kvviz.report.explain import explain
from kvviz.trace.units import size
from kvviz.view.export import to_html
from kvviz.view.page_data.payload_runs import BUDGET
from tests.test_models import graph_of
from tests.ui.caches import SLIDE
from tests.ui.conftest import OpenNotebook, Show
from tests.ui.debugger import DebuggerPage

RUNS = 320  # more than twice the steps that a page opens with; that 512 fit as well is for the tests of the payload
LONG = f"""
import json, kvviz
graph = kvviz.load("assets/models/storyteller/concat/model.onnx")
words = json.load(open("assets/models/storyteller/vocab.json"))
trace = kvviz.decode(graph, "once upon a time there was a", {RUNS}, tokenizer=words)
debugger = kvviz.debug(trace)
debugger
"""
BETWEEN = 200  # a run whose steps are not in the page when it opens
CUT = "(box) => box.scrollWidth - box.clientWidth"
BARE = re.compile(".*")


def test_a_run_whose_steps_are_not_here_is_told_by_the_kernel_when_one_goes_there(open_notebook: OpenNotebook) -> None:
    debugger = DebuggerPage(open_notebook([LONG]))
    steps, runs, told, size = debugger.python("[len(t.steps), len(t.runs), len(d._payloads.kept), len(d.payload)]")
    assert runs == RUNS and steps > 170_000 > 2 * BUDGET
    assert told <= BUDGET and size < 1_000_000
    assert debugger.steps == steps
    kept = "sorted(d._payloads.runs())"
    here = debugger.python(kept)
    debugger.root.locator('[role="tab"][data-id="steps"]').click()
    hint = debugger.root.locator(".kv-searchline .kv-hint").first
    expect(hint).to_have_text(f"steps of {len(here)} of {RUNS} runs are here")
    slider = debugger.kv("decode-slider")
    first = debugger.python("t.runs[1].first")
    debugger.goto(first + 40)
    slider.evaluate(SLIDE, BETWEEN)
    # then the totals of the other are there at once, and soon its steps, at the same op
    expect(debugger.root).to_have_attribute("data-bare", str(BETWEEN))
    expect(debugger.kv("step-number")).to_contain_text("totals only")
    expect(debugger.root).not_to_have_attribute("data-bare", BARE, timeout=90_000)
    at, node = debugger.python(f"[t.runs[{BETWEEN}].first + 40, t.steps[{first + 40}].node]")
    debugger.expect_step(at)
    expect(debugger.root.locator(".kv-this .kv-big")).to_have_attribute("title", node)
    expect(debugger.kv("sentence")).to_contain_text(f"Step {at}:")
    assert debugger.python("[d.cursor, d.decode_step]") == [at, BETWEEN]
    # the next run is reached by stepping, from the last step of one after which there are only totals
    debugger.goto(debugger.python("t.runs[1].last - 1"))
    debugger.press("n")
    expect(debugger.root).to_have_attribute("data-bare", "2")
    debugger.expect_step(debugger.python("t.runs[2].last - 1"))
    expect(debugger.root).not_to_have_attribute("data-bare", BARE, timeout=90_000)
    assert debugger.python("d.decode_step") == 2
    # who passes by asks for nothing
    debugger.goto(0)
    here = debugger.python(kept)
    passed = [*range(30, 60, 3), 0]
    slider.evaluate(f"(slider, runs) => runs.forEach((run) => ({SLIDE})(slider, run))", passed)
    debugger.page.wait_for_timeout(600)
    assert debugger.python(kept) == here


def test_without_a_kernel_a_run_has_its_totals_and_says_why_not_more(show: Show, tmp_path: Path) -> None:
    # given the steps of the first and last run; of run 2 they were not even recorded
    trace = kvviz.decode(graph_of("o01_optimum_llama"), [5, 17, 33], 6, progress=False)
    trace.runs[2].last = trace.runs[2].first
    to_html(trace, tmp_path / "trace.html", detail={0, 5})
    page = show(tmp_path / "trace.html")
    for run, why in ((1, "needs a running kernel"), (2, "were not recorded")):
        page.kv("decode-slider").evaluate(SLIDE, run)
        expect(page.kv("totals-why")).to_contain_text(why)
        copied = size(trace.runs[run].bytes_copied)
        expect(page.kv("total", id="copied").locator("dd").first).to_have_text(copied)
        expect(page.kv("run-row", id=run)).to_have_attribute("aria-current", "step")
    page.root.focus()
    for expected in (3, 4):
        page.page.keyboard.press(".")
        expect(page.root).to_have_attribute("data-bare", str(expected))
    page.page.keyboard.press(".")
    expect(page.root).not_to_have_attribute("data-bare", BARE)


def test_of_120_runs_nothing_is_cut_at_any_width_and_caches_are_those_of_the_report(show: Show) -> None:
    # given runs without room, with the steps of the first one and two more; run 57 ends a line
    trace = kvviz.decode(graph_of("storyteller/concat"), [5, 17, 33], 120, detail=(1, 119), progress=False)
    trace.runs[57].text = "\n"
    assert trace.words is not None
    trace.words[60] = "\n"
    page = show(trace, width=1440)
    peak = explain(trace).peak
    assert peak.step is not None and peak.groups["cache"] > 10_000
    page.goto(peak.step)
    page.kv("tab", id="buffers").click()
    told = page.root.locator('.kv-panel[data-id="buffers"] .kv-legend [data-part="caches"] b').inner_text()
    assert float(told.removesuffix(" kB")) * 1000 == pytest.approx(peak.groups["cache"], rel=0.005)
    # and before its first cache is made, run 119 has those that it was given
    page.goto(trace.runs[119].first)
    expect(page.root.locator('.kv-mem-row[data-origin="cache"]')).to_have_count(len(trace.caches))
    page.kv("tab", id="steps").click()
    for width in (640, 700, 860, 1400):
        page.page.set_viewport_size({"width": width + 36, "height": 900})
        page.kv("decode-slider").evaluate(SLIDE, 57)
        row = page.kv("run-row", id=57)
        expect(row).to_have_attribute("aria-current", "step")
        expect(row.locator("td").nth(1)).to_have_text("⏎")
        expect(page.kv("story-word", id=57)).to_have_text("⏎")
        # no column of the totals is out of sight, no number of a run is cut, and no text touches the tabs
        assert page.root.evaluate(CUT) <= 0
        assert page.root.locator(".kv-totals .kv-scroll").evaluate(CUT) == 0
        assert not any(page.root.locator('.kv-steps td[data-column="run"]').evaluate_all(f"(all) => all.map({CUT})"))
        last = page.kv("tab").filter(visible=True).last.bounding_box()
        hint = page.root.locator(".kv-searchline .kv-hint").first.bounding_box()
        assert last and (hint is None or hint["x"] >= last["x"] + last["width"] + 10)
