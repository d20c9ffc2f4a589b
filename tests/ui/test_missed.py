"""The diagnosis in a real JupyterLab: what it lists is what the report says, and a fix that is applied works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import kvviz
from kvviz.widget import Debugger
from tests.ui.conftest import from_cells, opened
from tests.ui.page import NotebookPage
from tests.ui.server import Jupyter

pytestmark = pytest.mark.ui

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"
CELLS = [
    """
import kvviz
from kvviz.report.explain import explain
from kvviz.report.retention_groups import held_groups
graph = kvviz.load("assets/models/o01_optimum_llama/model.onnx")
trace = kvviz.decode(graph, [5, 17, 33], 3)
report = explain(trace)
debugger = kvviz.debug(trace)
debugger
""",
    """
live = kvviz.debug(graph, prompt=[5, 17, 33], max_new_tokens=3, recorded=1)
live
""",
    """
from onnx import parser
ops = "  ".join(f"v{i} = Relu(v{i - 1})" for i in range(1, 450))
text = '<ir_version: 10, opset_import: ["" : 21]> chain (float[4] x) => (float[4] v449) { v0 = Relu(x)  ' + ops + " }"
many = kvviz.debug(kvviz.run(kvviz.load(parser.parse_model(text)), {"x": [1, 2, 3, 4]}, policy="never", donate=["x"]))
many
""",
    """
ops = "  ".join(f"v{i} = Relu(v{i - 1})" for i in range(1, 6))
text = '<ir_version: 10, opset_import: ["" : 21]> short (float[400] x) => (float[400] v5) { v0 = Relu(x)  ' + ops + " }"
stepped = kvviz.debug(kvviz.load(parser.parse_model(text)), {"x": [1.0] * 400}, policy="never")
stepped
""",
]


class MissedPage:
    """Drive the missed pane of one debugger of a page."""

    def __init__(self, page: Page, number: int = 0) -> None:
        self.page = page
        self.root = page.locator(".kvviz").nth(number)
        self.root.scroll_into_view_if_needed()
        expect(self.kv("sentence").first).to_be_visible()

    def kv(self, name: str) -> Locator:
        return self.root.locator(f'[data-kv="{name}"]')

    def open(self) -> None:
        tab = self.root.locator('[data-kv="tab"][data-id="missed"]')
        if tab.get_attribute("aria-selected") != "true":
            tab.click()
        expect(self.kv("diagnosis")).to_be_visible()

    def only_fixes(self, on: bool) -> None:
        """List only ops with a known fix, or all."""
        toggle = self.kv("only-fixes")
        if (toggle.get_attribute("aria-pressed") == "true") != on:
            toggle.click()

    def row(self, number: int) -> Locator:
        return self.root.locator(f'[data-kv="missed-row"][data-id="{number}"]')


@pytest.fixture(scope="module")
def notebook(browser: Browser, jupyter: Jupyter) -> Iterator[NotebookPage]:
    nbformat.write(from_cells(CELLS), jupyter.root / "missed.ipynb")
    with opened(browser, jupyter, "missed.ipynb", width=1700) as page:
        page.run_all()
        yield page


@pytest.fixture
def missed(notebook: NotebookPage) -> Iterator[MissedPage]:
    page = MissedPage(notebook.page)
    if page.kv("lane-close").count():
        page.kv("lane-close").click()
    page.open()
    page.only_fixes(False)
    yield page
    notebook.check()


def test_the_list_is_the_reports_own_in_its_order(notebook: NotebookPage, missed: MissedPage) -> None:
    told = notebook.python("[[g.worst.node, g.role, g.bytes, len(g.layers), len(g.runs)] for g in report.groups[:6]]")
    for number, (node, role, size, layers, runs) in enumerate(told):
        row = missed.row(number)
        assert (row.get_attribute("title") or "").split(" in ")[0] == node
        cells = row.locator("td").all_inner_texts()
        assert cells[2:5] == [role, str(layers), str(runs)]
        if size < 10_000:
            assert cells[0] == f"{size:,} B"
    tab = missed.root.locator('[data-kv="tab"][data-id="missed"]')
    expect(tab).to_have_text(f"Missed {notebook.python('len(report.groups)')}")


def test_a_kind_opens_to_its_layers_and_a_layer_to_its_tokens(notebook: NotebookPage, missed: MissedPage) -> None:
    # given
    members = notebook.python("sorted([m.node, len(m.steps)] for m in report.groups[0].entries)")
    before = missed.root.get_attribute("data-step")
    # when
    missed.row(0).locator('[data-kv="missed-open"]').click()
    # then
    layers = missed.root.locator('[data-kv="missed-row"][data-depth="1"]')
    expect(layers).to_have_count(len(members))
    assert layers.evaluate_all("(rows) => rows.map((row) => row.title)") == [node for node, _ in members]
    # and with the keyboard: down to the first layer, open it, fold it, fold the kind
    rows = missed.root.locator(".kv-diagnosis > .kv-scroll")
    rows.focus()
    notebook.page.keyboard.press("ArrowDown")
    notebook.page.keyboard.press("ArrowRight")
    expect(missed.root.locator('[data-kv="missed-row"][data-depth="2"]')).to_have_count(members[0][1])
    notebook.page.keyboard.press("ArrowLeft")
    notebook.page.keyboard.press("ArrowUp")
    notebook.page.keyboard.press("ArrowLeft")
    expect(layers).to_have_count(0)
    # nothing of that has moved the cursor, and Enter does
    expect(missed.root).to_have_attribute("data-step", before or "")
    notebook.page.keyboard.press("Enter")
    expect(missed.root).to_have_attribute("data-step", str(notebook.python("report.groups[0].worst.step")))


def test_the_matrix_of_layers_has_the_bytes_of_the_report(notebook: NotebookPage, missed: MissedPage) -> None:
    # given
    missed.root.locator('[data-kv="tab"][data-id="layers"]').click()
    cells = missed.kv("layer-cells")
    expect(cells).to_be_visible()
    worst = notebook.python(
        "[[g.role, [e.bytes for e in sorted(g.entries, key=lambda e: e.node)], [e.step for e in sorted(g.entries,"
        " key=lambda e: e.node)]] for g in report.groups if len(g.layers) == 2][0]"
    )
    before = missed.root.get_attribute("data-step")
    # when one goes to the second layer of the worst role with the keyboard
    cells.focus()
    notebook.page.keyboard.press("PageUp")
    notebook.page.keyboard.press("End")
    # then
    detail = missed.kv("layer-detail")
    expect(detail).to_contain_text(f"{worst[0]}, layer 1")
    expect(detail).to_contain_text("Alike in 2 of 2 layers")
    assert str(worst[1][1] // 1000)[:2] in detail.inner_text()
    expect(missed.root).to_have_attribute("data-step", before or "")
    assert notebook.python("debugger.selection")["kind"] == "node"
    # and the step of it is a link that moves
    missed.kv("layer-step").click()
    expect(missed.root).to_have_attribute("data-step", str(worst[2][1]))
    # tokens of that layer
    missed.kv("layers-by").click()
    expect(detail).to_contain_text("layer 1, prefill")
    missed.kv("layers-by").click()


FIRST_FIX = """next([b.fix.label, b.fix.sentence, b.fix.code, m.step, m.node] for g in report.groups
  for m in [g.worst] for b in m.blockers if b.fix is not None)"""


def test_a_fix_is_told_with_the_change_of_code_to_copy(notebook: NotebookPage, missed: MissedPage) -> None:
    # given
    label, sentence, code, *_ = notebook.python(FIRST_FIX)
    notebook.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    # when
    missed.only_fixes(True)
    missed.row(0).click()
    # then
    fix = missed.root.locator('.kv-findings [data-kv="fix"]').first
    expect(fix).to_contain_text(label)
    expect(fix).to_contain_text(sentence)
    expect(fix.locator("pre")).to_have_text(code)
    fix.locator('[data-kv="copy"]').click()
    expect(fix.locator('[data-kv="copy"]')).to_have_text("Copied")
    assert notebook.page.evaluate("() => navigator.clipboard.readText()") == code


def test_what_was_held_at_the_peak_is_told_in_groups(notebook: NotebookPage, missed: MissedPage) -> None:
    told = notebook.python(
        "(lambda groups, rest: [sorted({p.group for p in report.peak.parts}),"
        " [[g.worst.reason, g.times] for g in groups],"
        " [c.sentence for c in report.caches], str(rest)])(*held_groups(trace, report.held_too_long))"
    )
    shares = missed.root.locator(".kv-shares li > b").all_inner_texts()
    assert sorted(shares) == told[0]
    held = missed.kv("held-row")
    assert held.count() == len(told[1])
    for row, (reason, times) in zip(held.all(), told[1][:6]):
        expect(row).to_contain_text(reason + (f", and {times - 1} more like it" if times > 1 else ""))
    # what is small is told in one line
    expect(missed.root.locator(".kv-detail", has_text=f"And {told[3]}.")).to_have_count(1)
    assert missed.kv("cache-finding").all_inner_texts() == told[2] != []


def test_at_the_live_edge_the_diagnosis_comes_when_the_pane_is_opened(notebook: NotebookPage) -> None:
    # given a debugger whose run goes on
    live = MissedPage(notebook.page, 1)
    assert notebook.python("live.trace.live is not None")
    # when
    live.open()
    # then
    expect(live.root.locator(".kv-shares li").first).to_be_visible()
    expect(live.kv("missed-row").first).to_be_visible()
    # and after a step the list goes on, with the diagnosis on demand
    live.root.focus()
    notebook.page.keyboard.press("End")
    live.kv("next").click()
    expect(live.kv("diagnose")).to_be_visible()
    live.kv("diagnose").click()
    expect(live.root.locator(".kv-shares li").first).to_be_visible()


def test_while_a_run_goes_on_the_list_its_number_and_the_live_bytes_follow(notebook: NotebookPage) -> None:
    # given a run before its first op: what it was given is there
    page = MissedPage(notebook.page, 3)
    bound = notebook.python("sum(storage.capacity for storage in stepped.trace.storages)")
    live = page.root.locator('.kv-timeline [data-part="live"] b')
    assert bound == 1600
    expect(live).to_have_text(f"{bound:,} B")
    page.root.locator('[data-kv="tab"][data-id="buffers"]').click()
    held = page.root.locator('.kv-panel[data-id="buffers"] .kv-hint')
    expect(held).to_have_text(f"{bound:,} B held before the first step")
    page.open()
    tab = page.root.locator('[data-kv="tab"][data-id="missed"]')
    expect(tab).to_have_text("Missed")
    for step in range(6):
        # when
        page.kv("next").click()
        # then
        expect(page.root).to_have_attribute("data-step", str(step))
        told = notebook.python("[m.node for m in explain(stepped.trace).missed]")
        assert len(told) == step + 1
        expect(tab).to_have_text(f"Missed {step + 1}")
        rows = page.kv("missed-row")
        expect(rows).to_have_count(step + 1)
        names = rows.evaluate_all("(rows) => rows.map((row) => row.title)")
        assert sorted(names) == sorted(told)
        expect(live).to_have_text(f"{notebook.python('stepped.trace.steps[-1].live_bytes'):,} B")


def test_of_a_long_list_the_first_entries_are_diagnosed_and_the_others_on_demand(notebook: NotebookPage) -> None:
    # given
    many = MissedPage(notebook.page, 2)
    many.open()
    told = many.root.locator(".kv-detail p:has(button)")
    total = notebook.python("len(explain(many.trace).missed)")
    assert total == 450
    expect(told).to_contain_text("the first 200 of 450")
    # when
    many.kv("more-missed").click()
    # then
    expect(told).to_contain_text("the first 400 of 450")
    many.kv("more-missed").click()
    expect(told).to_have_count(0)
    expect(many.kv("only-fixes")).to_have_text("with a fix 450")


@pytest.mark.parametrize(("width", "theme"), [(600, "dark"), (1000, "light"), (1400, "dark")])
def test_it_fits_its_width_in_both_themes(notebook: NotebookPage, missed: MissedPage, theme: str, width: int) -> None:
    notebook.theme("dark" if theme == "dark" else "light")
    missed.only_fixes(True)
    missed.row(0).click()
    missed.root.evaluate("(root, width) => { root.style.width = `${width}px`; }", width)
    overflow = missed.root.evaluate("(root) => root.scrollWidth - root.clientWidth")
    notebook.screenshot(f"missed-{theme}-{width}", missed.root)
    missed.root.evaluate("(root) => { root.style.width = ''; }")
    assert overflow <= 0


def test_without_a_kernel_the_change_of_code_is_there_but_not_the_button(browser: Browser, tmp_path: Path) -> None:
    # given
    graph = kvviz.load(MODELS / "o01_optimum_llama" / "model.onnx")
    Debugger(kvviz.decode(graph, [5, 17, 33], 2)).to_html(tmp_path / "trace.html")
    page = browser.new_page()
    page.goto((tmp_path / "trace.html").as_uri())
    # when
    missed = MissedPage(page)
    missed.open()
    missed.only_fixes(True)
    missed.row(0).click()
    # then
    expect(missed.root.locator('.kv-findings [data-kv="fix"]').first.locator("pre")).to_be_visible()
    expect(missed.kv("apply")).to_have_count(0)
    page.close()
