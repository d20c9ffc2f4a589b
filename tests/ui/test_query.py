"""Queries in a file without a kernel: found, ticked, filtered, ordered and stopped at, as Python finds them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import kvviz
from kvviz.view.export import to_html

pytestmark = pytest.mark.ui

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"
COPIES = "op:Concat layer:1 copied>0"


@pytest.fixture(scope="module")
def trace() -> kvviz.Trace:
    return kvviz.decode(kvviz.load(MODELS / "o01_optimum_llama" / "model.onnx"), [5, 17, 33], 4, progress=False)


@pytest.fixture(scope="module")
def file(trace: kvviz.Trace, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("query") / "page.html"
    path.write_text(to_html(trace), "utf-8")
    return path.as_uri()


@pytest.fixture
def page(browser: Browser, file: str) -> Iterator[Page]:
    shown = browser.new_page(viewport={"width": 1500, "height": 950})
    wrong: list[str] = []
    shown.on("pageerror", lambda error: wrong.append(str(error)))
    shown.goto(f"{file}#step=0")
    shown.locator('[role="tab"][data-id="steps"]').click()
    expect(shown.locator(".kv-steps [data-kv=table-row]").first).to_be_visible()
    yield shown
    shown.close()
    assert not wrong


def ask(page: Page, text: str) -> None:
    page.locator(".kvviz").focus()
    page.keyboard.press("/")
    expect(kv(page, "query")).to_be_focused()
    kv(page, "query").fill(text)


def kv(page: Page, name: str) -> Locator:
    return page.locator(f'.kvviz [data-kv="{name}"]')


def rows(page: Page) -> list[int]:
    return [int(text) for text in page.locator(".kv-steps [data-kv=step-link]").all_inner_texts()]


def expect_step(page: Page, number: int) -> None:
    expect(page.locator(".kvviz")).to_have_attribute("data-step", str(number))


def dark(page: Page) -> int:
    """How many columns of the timeline have a tick above the axis."""
    count: int = page.locator(".kv-plot canvas").evaluate(
        """(canvas) => {
          const bottom = parseFloat(document.querySelector(".kv-yaxis span:nth-child(2)").style.top);
          const pixels = canvas.getContext("2d").getImageData(0, bottom - 6, canvas.width, 1).data;
          const [r, g, b] = getComputedStyle(canvas).color.match(/\\d+/g).map(Number);
          let found = 0;
          const off = (i) => Math.abs(pixels[i] - r) + Math.abs(pixels[i + 1] - g) + Math.abs(pixels[i + 2] - b);
          for (let i = 0; i < pixels.length; i += 4) found += +(off(i) < 12);
          return found;
        }"""
    )
    return count


def test_a_query_filters_the_table_and_enter_goes_from_hit_to_hit(page: Page, trace: kvviz.Trace) -> None:
    found = list(trace.find(COPIES).numbers)
    assert len(found) > 5
    before = dark(page)
    ask(page, COPIES)
    expect(kv(page, "query-count")).to_have_text(f"{len(found)} hits")
    assert rows(page) == found[: len(rows(page))]
    assert dark(page) > before
    for number in found[:3]:
        kv(page, "query").press("Enter")
        expect_step(page, number)
    expect(kv(page, "query-count")).to_have_text(f"3 of {len(found)} hits")
    kv(page, "query").press("Shift+Enter")
    expect_step(page, found[1])
    kv(page, "query").press("Escape")
    expect(kv(page, "query-count")).to_have_text("")
    assert dark(page) == before


def test_a_click_on_a_row_selects_and_the_number_or_two_clicks_move(page: Page) -> None:
    expect(page.locator(".kvviz")).to_have_attribute("data-step", re.compile(r"\d+"))
    ask(page, "op:MatMul step>100 limit:9")
    expect(kv(page, "query-count")).to_have_text("9 hits")
    expect(page.locator(".kv-steps [data-kv=step-link]")).to_have_count(9)
    start = int(page.locator(".kvviz").get_attribute("data-step") or 0)
    numbers = rows(page)
    row = page.locator(".kv-steps [data-kv=table-row]")
    row.nth(1).locator(".kv-op").click()
    expect(row.nth(1)).to_have_attribute("data-lit", "1")
    expect_step(page, start)
    row.nth(2).locator(".kv-op").dblclick()
    expect_step(page, numbers[2])
    row.nth(4).locator("[data-kv=step-link]").click()
    expect_step(page, numbers[4])
    page.locator(".kv-steps").locator("..").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect_step(page, numbers[5])


def test_the_palette_runs_commands_goes_to_steps_and_asks(page: Page, trace: kvviz.Trace) -> None:
    page.locator(".kvviz").focus()
    page.keyboard.press("Control+k")
    box = kv(page, "palette-input")
    expect(box).to_be_focused()
    box.fill("go to step 42")
    box.press("Enter")
    expect_step(page, 42)
    expect(kv(page, "palette-dialog")).to_have_count(0)
    assert page.evaluate("document.activeElement.classList.contains('kvviz')")
    page.keyboard.press(":")
    box.fill("first step")
    box.press("Enter")
    expect_step(page, -1)
    page.keyboard.press("Control+k")
    box.fill("show buffers")
    box.press("Enter")
    expect(page.locator('.kvviz [data-kv="tab"][data-id="buffers"]')).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Control+k")
    box.fill(COPIES)
    box.press("Enter")
    expect(kv(page, "query")).to_have_value(COPIES)
    expect_step(page, trace.find(COPIES).numbers[0])
    page.keyboard.press("Control+k")
    page.keyboard.press("ArrowDown")
    expect(kv(page, "palette-entry").nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Escape")
    expect(kv(page, "palette-dialog")).to_have_count(0)
    page.keyboard.press("Control+k")
    page.mouse.click(5, 5)
    expect(kv(page, "palette-dialog")).to_have_count(0)


LATE = """async (field) => {
  const write = (text) => { field.value = text; field.dispatchEvent(new Event("input", { bubbles: true })); };
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const kept = [];
  for (let i = 0; i < 12; i++) {
    write("Mul");
    await pause(121); // just when it is asked, and not yet drawn
    write("");
    await pause(300);
    kept.push(field.value);
  }
  return kept;
}"""


def test_an_answer_that_comes_late_does_not_undo_what_was_written_since(page: Page) -> None:
    # given the code that answers is there
    ask(page, "Mul")
    expect(kv(page, "query-count")).not_to_be_empty()
    assert kv(page, "query").evaluate(LATE) == [""] * 12
    expect(kv(page, "query-count")).to_be_empty()


def test_the_graph_shows_which_of_its_ops_the_query_finds(page: Page, trace: kvviz.Trace) -> None:
    found = trace.find(COPIES).numbers
    names = {trace.steps[int(number)].node for number in found}
    expect(page.locator(".kvviz [data-hit]")).to_have_count(0)
    kv(page, "unfold").click()
    picture = "(canvas) => canvas.toDataURL()"
    ask(page, COPIES)
    expect(page.locator(".kvviz [data-hit]")).to_have_count(len(names))
    # then they are those, and the canvas shows it
    told = page.locator(".kvviz [data-hit]").evaluate_all("(nodes) => nodes.map((node) => node.ariaLabel)")
    assert {label.split(", ")[0].split(" ", 1)[1] for label in told} == names
    first = int(found[0])
    kv(page, "goto").fill(str(first))
    kv(page, "goto").press("Enter")
    expect_step(page, first)
    page.wait_for_timeout(400)
    marked = kv(page, "graph-canvas").evaluate(picture)
    # and no longer when nothing is asked
    ask(page, "")
    expect(page.locator(".kvviz [data-hit]")).to_have_count(0)
    page.wait_for_timeout(400)
    assert kv(page, "graph-canvas").evaluate(picture) != marked
