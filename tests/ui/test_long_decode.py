"""A decode of 320 runs in a real JupyterLab: totals of all runs, steps of some, and of others on demand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import nbformat
import pytest
from playwright.sync_api import Browser, Page, expect

import kvviz
from kvviz.report.explain import explain
from kvviz.trace.recording import Trace
from kvviz.view.export import to_html
from kvviz.view.page_data.payload_runs import BUDGET
from tests.ui import pace
from tests.ui.conftest import from_cells, opened
from tests.ui.debugger import DebuggerPage
from tests.ui.page import RESULTS
from tests.ui.server import Jupyter

pytestmark = pytest.mark.ui

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"
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
SLIDE = """(slider, run) => {
  slider.value = String(run);
  slider.dispatchEvent(new Event("input", { bubbles: true }));
}"""


def to_run(debugger: DebuggerPage, run: int) -> None:
    debugger.kv("decode-slider").evaluate(SLIDE, run)


@pytest.fixture(scope="module")
def debugger(browser: Browser, jupyter: Jupyter) -> Iterator[DebuggerPage]:
    nbformat.write(from_cells([LONG]), jupyter.root / "long.ipynb")
    with opened(browser, jupyter, "long.ipynb") as notebook:
        notebook.run_all()
        yield DebuggerPage(notebook)


def test_the_page_says_of_how_many_runs_it_has_the_steps(debugger: DebuggerPage) -> None:
    steps, runs, told, size = debugger.python("[len(t.steps), len(t.runs), len(d._payloads.kept), len(d.payload)]")
    assert runs == RUNS and steps > 170_000 > 2 * BUDGET
    assert told <= BUDGET and size < 1_000_000
    assert debugger.steps == steps
    here = len(debugger.python("sorted(d._payloads.runs())"))
    debugger.root.locator('[role="tab"][data-id="steps"]').click()
    hint = debugger.root.locator(".kv-searchline .kv-hint").first
    expect(hint).to_have_text(f"steps of {here} of {RUNS} runs are here")


def test_a_run_that_one_goes_to_is_told_by_the_kernel(debugger: DebuggerPage) -> None:
    # given an op of the first run
    first = debugger.python("t.runs[1].first")
    debugger.goto(first + 40)
    to_run(debugger, BETWEEN)
    # then its totals are there at once
    expect(debugger.root).to_have_attribute("data-bare", str(BETWEEN))
    expect(debugger.kv("step-number")).to_contain_text("totals only")
    # and soon its steps, at the same op
    expect(debugger.root).not_to_have_attribute("data-bare", re.compile(".*"), timeout=30_000)
    run = debugger.python(f"[t.runs[{BETWEEN}].first, t.steps[{first + 40}].node]")
    debugger.expect_step(run[0] + 40)
    expect(debugger.root.locator(".kv-this .kv-big")).to_have_attribute("title", run[1])
    expect(debugger.kv("sentence")).to_contain_text(f"Step {run[0] + 40}:")
    assert debugger.python("[d.cursor, d.decode_step]") == [run[0] + 40, BETWEEN]
    debugger.notebook.screenshot("long-told", debugger.root)


def test_the_next_run_is_reached_by_stepping(debugger: DebuggerPage) -> None:
    # given the last step of a run after which there are only totals
    last = debugger.python("t.runs[1].last - 1")
    debugger.goto(last)
    debugger.press("n")
    expect(debugger.root).to_have_attribute("data-bare", "2")
    debugger.expect_step(debugger.python("t.runs[2].last - 1"))
    # and what the kernel sends is the run that was gone to
    expect(debugger.root).not_to_have_attribute("data-bare", re.compile(".*"), timeout=30_000)
    assert debugger.python("d.decode_step") == 2


def test_who_passes_by_asks_for_nothing(debugger: DebuggerPage) -> None:
    debugger.goto(0)
    before = debugger.python("sorted(d._payloads.runs())")
    passed = [*range(30, 60, 3), 0]
    debugger.kv("decode-slider").evaluate(f"(slider, runs) => runs.forEach((run) => ({SLIDE})(slider, run))", passed)
    debugger.notebook.page.wait_for_timeout(600)
    assert debugger.python("sorted(d._payloads.runs())") == before


def test_dragging_over_all_runs_is_fast(debugger: DebuggerPage) -> None:
    debugger.goto(0)
    assert pace.cost_of(debugger.root, pace.DRAG_RUNS, 128) < pace.DRAG


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decode in a file, with the steps of its first and last run; of run 2 they were not even recorded."""
    graph = kvviz.load(MODELS / "o01_optimum_llama" / "model.onnx")
    trace = kvviz.decode(graph, [5, 17, 33], 6, progress=False)
    trace.runs[2].last = trace.runs[2].first
    path = tmp_path_factory.mktemp("exported") / "trace.html"
    to_html(trace, path, detail={0, 5})
    return path


@pytest.fixture
def exported(browser: Browser, file: Path) -> Iterator[Page]:
    page = browser.new_page()
    page.goto(file.as_uri())
    expect(page.locator('[data-kv="sentence"]')).to_be_visible()
    yield page
    page.close()


@pytest.mark.parametrize(("run", "why"), [(1, "needs a running kernel"), (2, "were not recorded")])
def test_without_a_kernel_a_run_has_its_totals_and_says_why_not_more(exported: Page, run: int, why: str) -> None:
    exported.locator('[data-kv="decode-slider"]').evaluate(SLIDE, run)
    expect(exported.locator('[data-kv="totals-why"]')).to_contain_text(why)
    expect(exported.locator(f'[data-kv="run-row"][data-id="{run}"]')).to_have_attribute("aria-current", "step")
    # and the keys go on from run to run
    exported.locator(".kvviz").focus()
    for expected in range(run + 1, 5):
        exported.keyboard.press(".")
        expect(exported.locator(".kvviz")).to_have_attribute("data-bare", str(expected))
    exported.keyboard.press(".")
    expect(exported.locator(".kvviz")).not_to_have_attribute("data-bare", re.compile(".*"))


@pytest.fixture(scope="module")
def sparse(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Trace, Page]]:
    """120 runs without room in a file, with the steps of the first one and two more; run 57 ends a line."""
    graph = kvviz.load(MODELS / "storyteller" / "concat" / "model.onnx")
    trace = kvviz.decode(graph, [5, 17, 33], 120, detail=(1, 119), progress=False)
    trace.runs[57].text = "\n"
    assert trace.words is not None
    trace.words[60] = "\n"
    path = tmp_path_factory.mktemp("sparse") / "trace.html"
    to_html(trace, path)
    page = browser.new_page()
    page.goto(path.as_uri())
    expect(page.locator('[data-kv="sentence"]')).to_be_visible()
    yield trace, page
    page.close()


def test_buffers_count_as_caches_what_the_peak_of_the_report_does(sparse: tuple[Trace, Page]) -> None:
    trace, page = sparse
    page.set_viewport_size({"width": 1440, "height": 900})
    peak = explain(trace).peak
    assert peak.step is not None and peak.groups["cache"] > 10_000
    page.locator('[data-kv="goto"]').fill(str(peak.step))
    page.locator('[data-kv="goto"]').press("Enter")
    expect(page.locator(".kvviz")).to_have_attribute("data-step", str(peak.step))
    page.locator('[data-kv="tab"][data-id="buffers"]').click()
    told = page.locator('.kv-panel[data-id="buffers"] .kv-legend [data-part="caches"] b').inner_text()
    assert float(told.removesuffix(" kB")) * 1000 == pytest.approx(peak.groups["cache"], rel=0.005)
    # and before its first cache is made, run 119 has those that it was given
    first = trace.runs[119].first
    page.locator('[data-kv="goto"]').fill(str(first))
    page.locator('[data-kv="goto"]').press("Enter")
    expect(page.locator('.kv-mem-row[data-origin="cache"]')).to_have_count(len(trace.caches))


@pytest.mark.parametrize("width", [640, 700, 860, 1400])
def test_nothing_of_runs_is_cut_off_at_any_width(sparse: tuple[Trace, Page], width: int) -> None:
    page = sparse[1]
    page.set_viewport_size({"width": width + 36, "height": 900})
    page.locator('[data-kv="decode-slider"]').evaluate(SLIDE, 57)
    row = page.locator('[data-kv="run-row"][data-id="57"]')
    expect(row).to_have_attribute("aria-current", "step")
    # the end of a line has a sign
    expect(row.locator("td").nth(1)).to_have_text("⏎")
    expect(page.locator('[data-kv="story-word"][data-id="57"]')).to_have_text("⏎")
    # no column of the totals is out of sight, no number of a run is cut, and no text touches the tabs
    assert page.locator(".kv-totals .kv-scroll").evaluate(CUT) == 0
    assert [
        cut for cut in page.locator('.kv-steps td[data-column="run"]').evaluate_all(f"(all) => all.map({CUT})") if cut
    ] == []
    last = page.locator('[data-kv="tab"]:visible').last.bounding_box()
    hint = page.locator(".kv-searchline .kv-hint").first.bounding_box()
    assert last and (hint is None or hint["x"] >= last["x"] + last["width"] + 10)


@pytest.mark.parametrize(("width", "theme"), [(600, "dark"), (1400, "light")])
def test_totals_fit_their_width_in_both_themes(exported: Page, theme: Literal["light", "dark"], width: int) -> None:
    exported.emulate_media(color_scheme=theme)
    root = exported.locator(".kvviz")
    expect(root).to_have_attribute("data-theme", theme)
    exported.set_viewport_size({"width": width + 40, "height": 900})
    exported.locator('[data-kv="decode-slider"]').evaluate(SLIDE, 3)
    expect(root).to_have_attribute("data-bare", "3")
    root.screenshot(path=RESULTS / f"long-totals-{theme}-{width}.png")
    assert root.evaluate("(root) => root.scrollWidth - root.clientWidth") <= 0
    assert exported.locator('[data-kv="run-row"]').count() == 6
