"""Questions in JupyterLab, graded by the kernel, and a guided tour in an exported file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

import kvviz
from kvviz.lessons import Tour
from kvviz.view.page_data.payload_tour import PANES
from tests.ui.conftest import OpenNotebook
from tests.ui.filepage import FilePage

pytestmark = pytest.mark.ui

STORYTELLER = Path(__file__).resolve().parents[2] / "assets" / "models" / "storyteller"
ASKED = [
    """
import kvviz
from kvviz.lessons import ask, begin, score
graph = kvviz.load("assets/models/storyteller/concat/model.onnx")
begin("caches")
size = ask("How many bytes does *one word* add?", lambda: 2 * 3 * 2 * 16 * 4, unit="B",
           hint={384: "keys *and* values"}, why="`2 * 3 * 2 * 16 * 4`")
size""",
    """kind = ask("Which grows with the story?", "the caches", choices=["the weights", "the caches"])
kind""",
    """op = ask("What appends to the keys of a layer?", "Concat", among=graph, hint=lambda given: f"{given} does not")
op""",
    """curve = ask("Draw the bytes.", [0, 160, 200, 240], curve=["it", "was", "a", "day"], unit="B", tolerance=0.02)
curve""",
]


def test_questions_are_graded_by_the_kernel_and_answers_are_kept_beside_them(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook(ASKED)
    notebook.run_all()
    number, choice, op, curve = (notebook.page.locator(".kv-ask").nth(i) for i in range(4))

    def kv(of: Locator, name: str) -> Locator:
        return of.locator(f'[data-kv="ask-{name}"]')

    # then: what is for readers without a kernel is there, and hidden while the question is
    expect(number).to_be_visible()
    html = [output["data"] for cell in notebook.outputs() for output in cell if "text/html" in output.get("data", {})]
    assert len(html) == 4 and all("<details>" in "".join(data["text/html"]) for data in html)
    expect(notebook.page.locator("[data-kv-still] details").first).to_be_hidden()
    # when: answered wrong, as no number, and right
    kv(number, "field").fill("384 B")
    kv(number, "check").click()
    expect(kv(number, "said")).to_have_text("✗ Not yet: too small by a factor of 2: keys and values")
    expect(kv(number, "said").locator("em")).to_have_text("and")
    kv(number, "field").fill("many")
    kv(number, "field").press("Enter")
    expect(kv(number, "said")).to_contain_text("is not a number")
    expect(kv(number, "answer")).to_be_hidden()
    kv(number, "field").fill("2*3*2*16*4")
    kv(number, "field").press("Enter")
    expect(kv(number, "said")).to_have_text("✓ Right.")
    expect(kv(number, "answer").locator("code")).to_have_text("2 * 3 * 2 * 16 * 4")
    assert notebook.python("[size.right, size.tries]") == [True, 2]
    # a choice, an op
    kv(choice, "check").click()
    expect(kv(choice, "said")).to_have_text("Choose one first.")
    kv(choice, "choice").nth(1).check()
    kv(choice, "check").click()
    expect(kv(choice, "said")).to_have_text("✓ Right.")
    kv(op, "field").fill("Add")
    kv(op, "check").click()
    expect(kv(op, "said")).to_have_text("✗ Not yet: Add does not")
    kv(op, "reveal").click()
    expect(kv(op, "answer")).to_have_text("Concat")
    expect(kv(op, "score")).to_have_text("caches: 2 of 4 right, 1 at the first try; the answer of 1 was shown")
    # a curve: by keys a flat one, by the pointer the true one
    board = kv(curve, "board")
    kv(curve, "check").click()
    expect(kv(curve, "said")).to_have_text("4 of 4 points are not drawn yet.")
    board.focus()
    for key in ("PageUp", "ArrowRight", "ArrowRight", "ArrowRight"):
        board.press(key)
    kv(curve, "check").click()
    expect(kv(curve, "said")).to_contain_text("furthest at day, where it is too low")
    # what is said of an answer is gone while another one is drawn, and a steep way on spoils no point that was passed
    _draw(board, [0, 160, 200, 240], 300)
    expect(kv(curve, "said")).to_have_text("")
    kv(curve, "check").click()
    expect(kv(curve, "said")).to_have_text("✓ Right.")
    assert notebook.python("str(score())").startswith("caches: 3 of 4 right")
    assert board.locator(".kv-truth").get_attribute("d")


def _draw(board: Locator, values: list[float], top: float) -> None:
    """Drag over the points of a curve; the board is 560 wide and 190 high, with margins."""
    board.scroll_into_view_if_needed()
    box = board.bounding_box()
    assert box
    mouse, scale = board.page.mouse, box["width"] / 560
    for i, value in enumerate(values):
        x = box["x"] + scale * (72 + 458 * i / (len(values) - 1))
        mouse.move(x, box["y"] + scale * (156 - 144 * value / top), steps=12)
        if i == 0:
            mouse.down()
    mouse.up()


@pytest.fixture(scope="module")
def toured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, kvviz.Trace]:
    words = json.loads((STORYTELLER / "vocab.json").read_text())
    graph = kvviz.load(STORYTELLER / "concat" / "model.onnx")
    trace = kvviz.decode(graph, "once upon a time", max_new_tokens=3, tokenizer=words, kv_capacity=8, progress=False)
    tour = Tour("Caches").stop("The *prefill*.", step=0, pane="words")
    tour = tour.stop("It appends with `Concat`.", query="op:Concat run:2", pane="inspector")
    tour = tour.stop("All rows.", pane="caches")
    path = tmp_path_factory.mktemp("toured") / "story.html"
    trace.to_html(path, tour=tour)
    return path, trace


@pytest.fixture(scope="module")
def page(browser: Browser, toured: tuple[Path, kvviz.Trace]) -> Iterator[FilePage]:
    shown = FilePage(browser, toured[0])
    yield shown
    shown.close()


def test_captions_move_the_cursor_and_light_the_pane_by_keys_alone(
    page: FilePage, toured: tuple[Path, kvviz.Trace]
) -> None:
    # given: nothing has moved yet
    last = len(toured[1].steps) - 1
    expect(page.kv("tour-number")).to_have_text("3 stops")
    page.expect_step(last)
    page.root.focus()
    page.root.press("t")
    expect(page.kv("tour-caption").locator("em")).to_have_text("prefill")
    page.expect_step(0)
    lit = page.root.locator("[data-lit]")
    expect(lit).to_have_class("kv-story")
    # when: the focus is in the captions, where arrows lead on
    page.page.keyboard.press("ArrowRight")
    page.expect_step(toured[1].find("op:Concat run:2")[0].index)
    expect(lit).to_have_attribute("aria-label", "Inspector")
    page.page.keyboard.press("t")
    expect(lit).to_have_attribute("data-id", "caches")
    page.page.keyboard.press("T")
    expect(page.kv("tour-number")).to_have_text("2 of 3")
    page.page.keyboard.press("Escape")
    expect(page.kv("tour-card")).to_be_hidden()
    expect(lit).to_have_count(0)
    assert page.root.evaluate("(node) => node === document.activeElement")
    page.kv("tour").click()
    expect(page.kv("tour-number")).to_have_text("1 of 3")


def test_every_pane_that_a_stop_can_name_is_on_the_page(page: FilePage) -> None:
    for kind, place in PANES.values():
        where = f'[role="tab"][data-id="{place}"]' if kind == "tab" else f".{place}"
        expect(page.root.locator(where)).to_have_count(1)


def test_the_page_opens_with_the_list_of_the_first_stop(
    browser: Browser, toured: tuple[Path, kvviz.Trace], tmp_path: Path
) -> None:
    trace = toured[1]
    trace.to_html(tmp_path / "caches.html", tour=Tour("Caches").stop("Rows.", step=0, pane="caches"))
    page = FilePage(browser, tmp_path / "caches.html")
    expect(page.root.locator('.kv-panel[data-id="caches"]')).to_be_visible()
    # the cursor is where it was, and the first stop has not been made
    page.expect_step(len(trace.steps) - 1)
    expect(page.kv("tour-number")).to_have_text("1 stop")
    page.close()


def test_a_question_is_answered_by_keys_alone_and_keeps_the_focus(open_notebook: OpenNotebook) -> None:
    # given: the cursor of the notebook stands on a cell with a choice that has run
    notebook = open_notebook(
        [
            "from kvviz.lessons import ask",
            'size = ask("How many?", 131072, unit="B", hint={65536: "keys *and* values"})\nsize',
            'kind = ask("Which?", "b", {"a": "look again"}, choices=["a", "b", "c"])\n'
            'kind.after = "So it is **b**."\nkind',
        ]
    )
    notebook.run_all()
    number, choice = (notebook.page.locator(".kv-ask").nth(i) for i in (0, 1))
    press = notebook.page.keyboard.press
    said = choice.locator('[data-kv="ask-said"]')
    boxes = choice.locator('[data-kv="ask-choice"]')
    notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1")
    notebook.page.evaluate("() => window.jupyterapp.commands.execute('notebook:enter-command-mode')")
    before = len(notebook.outputs())

    def tab_to(kind: str) -> None:
        for _ in range(40):
            press("Tab")
            if notebook.page.evaluate("() => document.activeElement.dataset.kv") == f"ask-{kind}":
                return
        raise AssertionError(f"Tab does not lead to the {kind}")

    # when: typed, with Enter
    tab_to("field")
    notebook.page.keyboard.type("64 KiB")
    press("Enter")
    expect(number.locator('[data-kv="ask-said"]')).to_contain_text("by a factor of 2: keys and values")
    expect(number.locator('[data-kv="ask-field"]')).to_be_focused()
    press("Control+a")
    notebook.page.keyboard.type("128 KB")
    press("Enter")
    expect(number.locator('[data-kv="ask-said"]')).to_have_text("✓ Right: 128 KB read as 128 × 1,024 B.")
    # when: chosen by arrows and by digits
    tab_to("choice")
    press("ArrowDown")
    press("Enter")
    expect(said).to_have_text("✗ Not yet: look again")
    expect(boxes.nth(0)).to_be_focused()
    press("3")
    expect(boxes.nth(2)).to_be_checked()
    press("ArrowUp")
    press("Enter")
    # then: the text for those who have answered is there, the focus too, and no cell was made, left or changed
    expect(said).to_have_text("✓ Right.")
    expect(notebook.page.get_by_text("So it is b.")).to_be_visible()
    expect(boxes.nth(1)).to_be_focused()
    assert notebook.python("[size.tries, kind.tries, kind.right]") == [2, 2, True]
    assert len(notebook.outputs()) == before


def test_the_hand_out_prints_on_two_sheets(browser: Browser) -> None:
    page = browser.new_page()
    page.goto((Path(__file__).resolve().parents[2] / "notebooks" / "handout.html").as_uri())
    printed = page.pdf(format="A4", prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 2
    page.close()
