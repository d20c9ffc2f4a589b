"""Questions in JupyterLab, graded by the kernel, and a guided tour in an exported file."""

import re
from pathlib import Path

from playwright.sync_api import Browser, Locator, expect

from kvviz.lessons import Tour
from kvviz.view.page_data.payload_tour import PANES
from tests.ui.conftest import OpenNotebook, Show, in_words
from tests.ui.filepage import box

ROOT = Path(__file__).resolve().parents[2]
ASKED = [
    """
import kvviz
from kvviz.lessons import ask, begin, score
graph = kvviz.load("assets/models/storyteller/concat/model.onnx")
begin("caches")
size = ask("How many bytes does *one word* add?", lambda: 2 * 3 * 2 * 16 * 4, unit="B",
           hint={384: "keys *and* values"}, why="`2 * 3 * 2 * 16 * 4`")
size""",
    """kind = ask("Which?", "b", {"a": "look again"}, choices=["a", "b", "c"])
kind.after = "So it is **b**."
kind""",
    """op = ask("What appends to the keys of a layer?", "Concat", among=graph, hint=lambda given: f"{given} does not")
op""",
    """curve = ask("Draw the bytes.", [0, 160, 200, 240], curve=["it", "was", "a", "day"], unit="B", tolerance=0.02)
curve""",
]
# What reaches the window but from fields for text: VS Code passes it on to the editor, where an arrow leaves the cell.
LISTEN = """() => {
  window.keys = new Set();
  window.addEventListener("keydown", (event) => {
    if (!event.target.matches?.('input[type="text"]')) window.keys.add(event.key);
  });
}"""


def test_questions_are_answered_by_keys_alone_and_graded_by_the_kernel(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook(ASKED)
    page, press = notebook.page, notebook.page.keyboard.press
    number, choice, op, curve = (page.locator(".kv-ask").nth(i) for i in range(4))

    def kv(of: Locator, name: str) -> Locator:
        return of.locator(f'[data-kv="ask-{name}"]')

    def tab_to(kind: str) -> None:
        for _ in range(40):
            press("Tab")
            if page.evaluate("() => document.activeElement.dataset.kv") == f"ask-{kind}":
                return
        raise AssertionError(f"Tab does not lead to the {kind}")

    # then: what is for readers without a kernel is there, and hidden while the question is
    expect(number).to_be_visible()
    expect(page.locator("[data-kv-still] details").first).to_be_hidden()
    # given: the cursor of the notebook stands on the first cell
    page.evaluate("() => window.jupyterapp.shell.currentWidget.content.activeCellIndex = 0")
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:enter-command-mode')")
    page.evaluate(LISTEN)
    # when: a number is typed, with Enter
    tab_to("field")
    for text, said in (
        ("384 B", "✗ Not yet: too small by a factor of 2: keys and values"),
        ("many", re.compile("is not a number")),
        ("2*3*2*16*4", "✓ Right."),
    ):
        press("Control+a")
        page.keyboard.type(text)
        press("Enter")
        expect(kv(number, "said")).to_have_text(said)
        expect(kv(number, "field")).to_be_focused()
    expect(kv(number, "answer").locator("code")).to_have_text("2 * 3 * 2 * 16 * 4")
    assert notebook.python("[size.right, size.tries]") == [True, 2]
    # when: chosen by arrows and by digits
    kv(choice, "check").click()
    expect(kv(choice, "said")).to_have_text("Choose one first.")
    boxes = kv(choice, "choice")
    boxes.first.focus()
    press("1")
    press("Enter")
    expect(kv(choice, "said")).to_have_text("✗ Not yet: look again")
    expect(boxes.nth(0)).to_be_focused()
    press("3")
    expect(boxes.nth(2)).to_be_checked()
    press("ArrowUp")
    press("Enter")
    # then: the text for those who have answered is there, and the focus too
    expect(kv(choice, "said")).to_have_text("✓ Right.")
    expect(page.get_by_text("So it is b.")).to_be_visible()
    expect(boxes.nth(1)).to_be_focused()
    assert notebook.python("[kind.tries, kind.right]") == [2, True]
    # an op
    kv(op, "field").fill("Add")
    kv(op, "check").click()
    expect(kv(op, "said")).to_have_text("✗ Not yet: Add does not")
    kv(op, "reveal").click()
    expect(kv(op, "answer")).to_have_text("Concat")
    expect(kv(op, "score")).to_have_text("caches: 2 of 4 right, 0 at the first try; the answer of 1 was shown")
    # a curve: by keys a flat one, by the pointer the true one
    board = kv(curve, "board")
    kv(curve, "check").click()
    expect(kv(curve, "said")).to_have_text("4 of 4 points are not drawn yet.")
    board.focus()
    for key in ("PageUp", "ArrowRight", "ArrowRight", "ArrowRight"):
        press(key)
    kv(curve, "check").click()
    expect(kv(curve, "said")).to_contain_text("furthest at day, where it is too low")
    # what is said of an answer is gone while another one is drawn, and a steep way on spoils no point that was passed
    _draw(board, [0, 160, 200, 240], 300)
    expect(kv(curve, "said")).to_have_text("")
    kv(curve, "check").click()
    expect(kv(curve, "said")).to_have_text("✓ Right.")
    assert board.locator(".kv-truth").get_attribute("d")
    assert notebook.python("str(score())").startswith("caches: 3 of 4 right")
    # no cell was made or left, and no key was the notebook's
    assert len(notebook.outputs()) == 4
    assert set(page.evaluate("[...keys]")) <= {"Enter", "Tab"}


def _draw(board: Locator, values: list[float], top: float) -> None:
    """Drag over the points of a curve; the board is 560 wide and 190 high, with margins."""
    board.scroll_into_view_if_needed()
    place, mouse = box(board), board.page.mouse
    scale = place["width"] / 560
    for i, value in enumerate(values):
        x = place["x"] + scale * (72 + 458 * i / (len(values) - 1))
        mouse.move(x, place["y"] + scale * (156 - 144 * value / top), steps=12)
        if i == 0:
            mouse.down()
    mouse.up()


def test_captions_of_a_tour_move_the_cursor_and_light_the_pane_by_keys_alone(show: Show, tmp_path: Path) -> None:
    trace = in_words("once upon a time", 3, kv_capacity=8)
    tour = Tour("Caches").stop("The *prefill*.", step=0, pane="words")
    tour = tour.stop("It appends with `Concat`.", query="op:Concat run:2", pane="inspector")
    trace.to_html(tmp_path / "story.html", tour=tour.stop("All rows.", pane="caches"))
    page = show(tmp_path / "story.html")
    # given: nothing has moved yet, and every pane that a stop can name is on the page
    expect(page.kv("tour-number")).to_have_text("3 stops")
    page.expect_step(len(trace.steps) - 1)
    for kind, place in PANES.values():
        where = f'[role="tab"][data-id="{place}"]' if kind == "tab" else f".{place}"
        expect(page.root.locator(where)).to_have_count(1)
    page.root.focus()
    page.root.press("t")
    expect(page.kv("tour-caption").locator("em")).to_have_text("prefill")
    page.expect_step(0)
    lit = page.root.locator("[data-lit]")
    expect(lit).to_have_class("kv-story")
    # when: the focus is in the captions, where arrows lead on
    page.page.keyboard.press("ArrowRight")
    page.expect_step(trace.find("op:Concat run:2")[0].index)
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
    # a page opens with the list of its first stop, which has not been made
    trace.to_html(tmp_path / "caches.html", tour=Tour("Caches").stop("Rows.", step=0, pane="caches"))
    page = show(tmp_path / "caches.html")
    expect(page.root.locator('.kv-panel[data-id="caches"]')).to_be_visible()
    page.expect_step(len(trace.steps) - 1)


def test_the_hand_out_prints_on_two_sheets(browser: Browser) -> None:
    page = browser.new_page()
    page.goto((ROOT / "notebooks" / "handout.html").as_uri())
    printed = page.pdf(format="A4", prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 2
    page.close()
