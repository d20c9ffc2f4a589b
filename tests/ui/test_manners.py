"""How the page behaves among others: keys of the host, the wheel, what opens over it, where the focus goes."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import kvviz
from tests.graph.build import MODELS
from tests.ui.conftest import OpenNotebook, Show
from tests.ui.debugger import DebuggerPage
from tests.ui.filepage import FilePage

STOPS = """(root) => [...root.querySelectorAll("*"), root].filter((node) => node.tabIndex >= 0 && !node.disabled
  && node.checkVisibility({ visibilityProperty: true })).map((node) =>
  `${node.tagName}.${node.getAttribute("class")} ${node.dataset.kv} ${node.getAttribute("aria-label")}`)"""
OVERLAP = """([toggle, panel]) => { const [a, b] = [toggle, panel].map((node) => node.getBoundingClientRect());
  return Math.max(0, Math.min(a.right, b.right) - Math.max(a.left, b.left))
    * Math.max(0, Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top)) }"""


@pytest.fixture
def page(show: Show, story: kvviz.Trace) -> Any:
    shown = show(story, "#step=700")
    shown.expect_step(700)
    return shown


def test_what_opens_can_be_closed_in_every_usual_way(page: FilePage) -> None:
    step = 700
    popovers = {"breakpoints": "breakpoint-menu", "help": "help-panel", "share": "share-menu", "fork": "fork-menu"}
    for toggle, panel in popovers.items():
        button = page.kv(toggle).first
        for way in ("button", "escape", "elsewhere", "toggle"):
            button.click()
            expect(page.kv(panel)).to_be_visible()
            expect(button).to_have_attribute("aria-expanded", "true")
            handles = [button.element_handle(), page.kv(panel).element_handle()]
            assert page.page.evaluate(OVERLAP, handles) == 0
            if way == "button":
                page.kv(panel).locator('[data-kv="close"]').click()
            elif way == "escape":
                page.page.keyboard.press("Escape")
            elif way == "toggle":
                button.click()
            else:
                page.root.locator(".kv-status").click(position={"x": 5, "y": 5})
            expect(page.kv(panel)).to_be_hidden()
            expect(button).to_have_attribute("aria-expanded", "false")
            if way != "elsewhere":
                assert page.focused() == toggle
            step += 1
            page.page.keyboard.press("n")
            page.expect_step(step)


def test_escape_closes_what_is_open_before_it_clears_the_selection_and_the_focus_goes_on(page: FilePage) -> None:
    this = page.root.locator(".kv-this")
    page.root.locator('[role="tab"][data-id="steps"]').click()
    page.kv("table-row").first.click()
    expect(this).to_contain_text("Selected")
    selected = this.text_content() or ""
    page.kv("help").click()
    expect(page.kv("help-panel")).to_be_visible()
    page.root.focus()
    page.page.keyboard.press("Escape")
    expect(page.kv("help-panel")).to_be_hidden()
    expect(this).to_have_text(selected)
    # what had the focus goes, and it goes on
    page.kv("breakpoints").click()
    page.kv("breakpoint-missed").click()
    page.kv("breakpoint-remove").focus()
    page.page.keyboard.press("Enter")
    expect(page.kv("breakpoint")).to_have_count(0)
    assert page.page.evaluate("() => document.activeElement.closest('[data-kv=breakpoint-menu]') !== null")
    page.page.keyboard.press("Escape")
    assert page.focused() == "breakpoints"


def test_tabs_name_their_panels_there_are_few_stops_and_arrows_walk_along_a_bar(page: FilePage) -> None:
    controls = page.kv("tab").evaluate_all("(tabs) => tabs.map((tab) => tab.getAttribute('aria-controls'))")
    roles = page.page.evaluate("(ids) => ids.map((id) => document.getElementById(id)?.getAttribute('role'))", controls)
    assert roles == ["tabpanel"] * len(controls) and len(set(controls)) == len(controls) > 3
    for tab in page.root.locator('[data-kv="tab"]:not([hidden])').all():
        tab.click()
        expect(tab).to_have_attribute("aria-selected", "true")
        page.page.wait_for_timeout(400)  # they are settled when nothing moves any more
        stops = page.root.evaluate(STOPS)
        assert len(stops) < 15, "\n".join(stops)
    page.root.focus()
    page.page.keyboard.press("Tab")
    assert page.focused() == "next"
    page.page.keyboard.press("ArrowRight")
    assert page.focused() == "into"
    page.expect_step(700)
    # and whoever presses with the mouse steps on with the arrows
    page.kv("next").click()
    page.expect_step(701)
    page.page.keyboard.press("ArrowRight")
    page.expect_step(702)


def test_the_wheel_moves_a_list_and_is_let_go_at_its_end_wherever_it_turns(page: FilePage) -> None:
    page.page.evaluate("() => { document.body.style.minHeight = '3000px'; scrollTo(0, 0); }")
    page.root.locator('[role="tab"][data-id="steps"]').click()
    rows = page.root.locator(".kv-steps").locator("xpath=..")
    rows.evaluate("(box) => { box.scrollTop = 0 }")
    rows.hover()
    page.page.mouse.wheel(0, 60)
    page.page.wait_for_function("(box) => box.scrollTop > 0", arg=rows.element_handle())
    assert page.page.evaluate("() => scrollY") == 0
    rows.evaluate("(box) => { box.scrollTop = box.scrollHeight }")
    page.page.wait_for_timeout(400)  # a turn of the wheel stays with what it began on for a moment
    page.page.mouse.wheel(0, 200)
    page.page.wait_for_function("() => scrollY > 0")
    # over every pane, after more than any could take
    for pane in page.root.locator(".kv-pane").all():
        box = pane.bounding_box()
        if box is None or box["height"] < 12:
            continue
        page.page.evaluate("() => scrollTo(0, 0)")
        page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        for _ in range(12):
            page.page.mouse.wheel(0, 4000)
        page.page.wait_for_timeout(500)
        page.page.mouse.wheel(0, 400)
        page.page.wait_for_function("() => scrollY > 0")


CELL = """
import kvviz
debugger = kvviz.debug(kvviz.load("assets/models/o01_optimum_llama/model.onnx"), prompt=[5, 17], max_new_tokens=2)
debugger
"""
SAVED = "() => !window.jupyterapp.shell.currentWidget.context.model.dirty"
COUNT = "() => window.jupyterapp.shell.currentWidget.content.widgets[0].model.executionCount"


def test_shortcuts_and_the_wheel_of_jupyterlab_work_while_the_page_has_the_focus(open_notebook: OpenNotebook) -> None:
    debugger = DebuggerPage(open_notebook([CELL, "1 + 1"]))
    page = debugger.notebook.page
    debugger.press("n")
    debugger.expect_step(0)
    at = debugger.step
    page.evaluate("() => { window.jupyterapp.shell.currentWidget.context.model.dirty = true }")
    debugger.press("Control+s")
    page.wait_for_function(SAVED)
    debugger.press("Control+Shift+c")
    expect(page.locator(".lm-CommandPalette, .jp-ModalCommandPalette").first).to_be_visible()
    page.keyboard.press("Escape")
    # none of them moved anything here
    assert debugger.step == at
    # plain letters stay ours: x would cut the cell, a and b make new ones
    debugger.press("x", "a", "d", "d", "n")
    assert page.locator(".jp-CodeCell").count() == 2
    debugger.expect_step(at + 1)
    # and in a field of ours all that is typed is ours, but for saving
    debugger.kv("query").fill("Mul")
    page.evaluate("() => { window.jupyterapp.shell.currentWidget.context.model.dirty = true }")
    page.keyboard.press("Control+s")
    page.wait_for_function(SAVED)
    page.keyboard.press("Control+a")
    page.keyboard.press("Backspace")
    expect(debugger.kv("query")).to_have_value("")
    before = page.evaluate(COUNT)
    debugger.kv("next").focus()
    page.keyboard.press("Shift+Enter")
    page.wait_for_function(f"(before) => ({COUNT})() !== before", arg=before)
    # the wheel goes on through a notebook that can scroll
    page.evaluate(
        """() => { const last = window.jupyterapp.shell.currentWidget.content.widgets[1];
          last.node.style.minHeight = "3000px"; }"""
    )
    below = "([root, top]) => root.getBoundingClientRect().top < top - 1"
    for part in ("sentence", "goto"):
        debugger.kv(part).hover()
        top = debugger.root.evaluate("(root) => root.getBoundingClientRect().top")
        page.mouse.wheel(0, 120)
        page.wait_for_function(below, arg=[debugger.root.element_handle(), top])
        page.mouse.wheel(0, -120)
        page.wait_for_timeout(300)


def test_a_verification_fits_a_narrow_window(show: Show, tmp_path: Path) -> None:
    found = kvviz.verify(MODELS / "storyteller" / "gqa" / "model.onnx")
    found.to_html(tmp_path / "verified.html")
    page = show(tmp_path / "verified.html", width=400)
    assert page.page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
