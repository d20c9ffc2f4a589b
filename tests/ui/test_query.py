"""Queries in a file without a kernel: found, ticked, filtered, ordered and stopped at, as Python finds them."""

import pytest
from playwright.sync_api import expect

import kvviz
from tests.ui.conftest import Show
from tests.ui.filepage import FilePage

COPIES = "op:Concat layer:1 copied>0"


@pytest.fixture
def page(show: Show, llama: kvviz.Trace) -> FilePage:
    shown: FilePage = show(llama, "#step=0", width=1500, height=950)
    shown.kv("tab", id="steps").click()
    expect(shown.root.locator(".kv-steps [data-kv=table-row]").first).to_be_visible()
    return shown


def ask(page: FilePage, text: str) -> None:
    page.root.focus()
    page.page.keyboard.press("/")
    expect(page.kv("query")).to_be_focused()
    page.kv("query").fill(text)


def rows(page: FilePage) -> list[int]:
    return [int(text) for text in page.root.locator(".kv-steps [data-kv=step-link]").all_inner_texts()]


def dark(page: FilePage) -> int:
    """How many columns of the timeline have a tick above the axis."""
    count: int = page.root.locator(".kv-plot canvas").evaluate(
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


def test_a_query_filters_the_table_marks_the_graph_and_enter_goes_from_hit_to_hit(
    page: FilePage, llama: kvviz.Trace
) -> None:
    found = list(llama.find(COPIES).numbers)
    assert len(found) > 5
    before = dark(page)
    ask(page, COPIES)
    expect(page.kv("query-count")).to_have_text(f"{len(found)} hits")
    assert rows(page) == found[: len(rows(page))]
    assert dark(page) > before
    for number in found[:3]:
        page.kv("query").press("Enter")
        page.expect_step(number)
    expect(page.kv("query-count")).to_have_text(f"3 of {len(found)} hits")
    page.kv("query").press("Shift+Enter")
    page.expect_step(found[1])
    page.kv("query").press("Escape")
    expect(page.kv("query-count")).to_have_text("")
    assert dark(page) == before
    names = {llama.steps[int(number)].node for number in found}
    expect(page.root.locator("[data-hit]")).to_have_count(0)
    page.kv("unfold").click()
    picture = "(canvas) => canvas.toDataURL()"
    ask(page, COPIES)
    expect(page.root.locator("[data-hit]")).to_have_count(len(names))
    # then they are those, and the canvas shows it
    told = page.root.locator("[data-hit]").evaluate_all("(nodes) => nodes.map((node) => node.ariaLabel)")
    assert {label.split(", ")[0].split(" ", 1)[1] for label in told} == names
    first = int(found[0])
    page.goto(first)
    page.page.wait_for_timeout(400)
    marked = page.kv("graph-canvas").evaluate(picture)
    ask(page, "")
    expect(page.root.locator("[data-hit]")).to_have_count(0)
    page.page.wait_for_timeout(400)
    assert page.kv("graph-canvas").evaluate(picture) != marked


def test_a_row_selects_its_number_or_two_clicks_move_and_the_palette_runs_commands(
    page: FilePage, llama: kvviz.Trace
) -> None:
    ask(page, "op:MatMul step>100 limit:9")
    expect(page.kv("query-count")).to_have_text("9 hits")
    expect(page.root.locator(".kv-steps [data-kv=step-link]")).to_have_count(9)
    start = page.step
    numbers = rows(page)
    row = page.root.locator(".kv-steps [data-kv=table-row]")
    row.nth(1).locator(".kv-op").click()
    expect(row.nth(1)).to_have_attribute("data-lit", "1")
    page.expect_step(start)
    row.nth(2).locator(".kv-op").dblclick()
    page.expect_step(numbers[2])
    row.nth(4).locator("[data-kv=step-link]").click()
    page.expect_step(numbers[4])
    page.root.locator(".kv-steps").locator("..").focus()
    page.page.keyboard.press("ArrowDown")
    page.page.keyboard.press("Enter")
    page.expect_step(numbers[5])
    page.root.focus()
    page.page.keyboard.press("Control+k")
    box = page.kv("palette-input")
    expect(box).to_be_focused()
    box.fill("go to step 42")
    box.press("Enter")
    page.expect_step(42)
    expect(page.kv("palette-dialog")).to_have_count(0)
    assert page.page.evaluate("document.activeElement.classList.contains('kvviz')")
    page.page.keyboard.press(":")
    box.fill("show buffers")
    box.press("Enter")
    expect(page.root.locator('[data-kv="tab"][data-id="buffers"]')).to_have_attribute("aria-selected", "true")
    page.page.keyboard.press("Control+k")
    box.fill(COPIES)
    box.press("Enter")
    expect(page.kv("query")).to_have_value(COPIES)
    page.expect_step(llama.find(COPIES).numbers[0])
    page.page.keyboard.press("Control+k")
    page.page.keyboard.press("ArrowDown")
    expect(page.kv("palette-entry").nth(1)).to_have_attribute("aria-selected", "true")
    page.page.keyboard.press("Escape")
    expect(page.kv("palette-dialog")).to_have_count(0)
    page.page.keyboard.press("Control+k")
    page.page.mouse.click(5, 5)
    expect(page.kv("palette-dialog")).to_have_count(0)


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


def test_an_answer_that_comes_late_does_not_undo_what_was_written_since(page: FilePage) -> None:
    # given the code that answers is there
    ask(page, "Mul")
    expect(page.kv("query-count")).not_to_be_empty()
    assert page.kv("query").evaluate(LATE) == [""] * 12
    expect(page.kv("query-count")).to_be_empty()
