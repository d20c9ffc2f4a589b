"""The lesson that is one file: stepped, answered and handed in by keyboard, without a kernel and a network."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from kvviz import cli
from kvviz.demo.storyteller import story
from kvviz.lessons.questions.score import read_score
from tests.ui.conftest import OpenNotebook

PROMPT, RUNS = 13, 73


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lesson") / "lesson.html"
    assert cli.main(["demo", "--lesson", str(path)]) == 0
    return path


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Page]:
    """The page; at the end it must have asked for nothing but itself, and complained of nothing."""
    context = browser.new_context(viewport={"width": 1100, "height": 800})
    page, complaints, asked = context.new_page(), list[str](), list[str]()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    expect(page.locator("#kv-code")).to_be_visible()
    yield page
    assert (complaints, asked) == ([], [file.as_uri()])
    context.close()


def rows(page: Page, figure: int) -> str:
    """The states of a picture's words, a letter each."""
    found = page.locator('[data-kv="stepping"]').nth(figure).locator(".kv-words .kv-cell").all()
    return "".join((cell.get_attribute("data-s") or ".")[0] for cell in found)


def test_arrows_step_forward_and_back_through_what_was_recorded_and_it_plays(page: Page) -> None:
    # with nothing in focus, the arrows move the picture that is in view
    figure = page.locator('[data-kv="stepping"]').first
    figure.scroll_into_view_if_needed()
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    expect(figure).to_have_attribute("data-frame", "8")
    assert rows(page, 0) == "a" * (PROMPT + 7) + "n" + "n" + "." * (RUNS - 9)
    words = list(story().words or ())
    assert figure.locator(".kv-words b").all_inner_texts()[: PROMPT + 9] == words[: PROMPT + 9]
    # the owl's name gets 89 % of the weight, as in the recording
    assert figure.locator(".kv-words .kv-cell").nth(13).evaluate("node => node.style.getPropertyValue('--w')") == "0.89"
    expect(figure.locator(".kv-caption")).to_have_text(re.compile("Run 8 computes 21 rows, 20 of them again"))
    # in a picture that has the focus: to the end, and back frame by frame, as if it had only gone forward
    cached = page.locator('[data-kv="stepping"]').nth(1)
    cached.locator('[data-kv="step-slider"]').focus()
    page.keyboard.press("End")
    assert rows(page, 1) == "r" * (PROMPT + RUNS - 2) + "nn"
    expect(cached.locator(".kv-figures")).to_contain_text(f"so far: {PROMPT + RUNS - 1}")
    for _ in range(RUNS - 4):
        page.keyboard.press("ArrowLeft")
    expect(cached).to_have_attribute("data-frame", "3")
    assert rows(page, 1) == "r" * (PROMPT + 2) + "nn" + "." * (RUNS - 4)
    page.keyboard.press("Home")
    assert rows(page, 1) == "n" * PROMPT + "n" + "." * (RUNS - 1)
    # what plays pauses when it is not looked at, and by key
    figure.scroll_into_view_if_needed()
    figure.locator('[data-kv="step-slider"]').focus()
    page.keyboard.press("Home")
    figure.focus()
    page.keyboard.press("Space")
    expect(figure).to_have_attribute("data-frame", "2")
    page.locator("#kv-code").scroll_into_view_if_needed()
    page.wait_for_timeout(200)
    left = figure.get_attribute("data-frame")
    page.wait_for_timeout(2500)
    assert figure.get_attribute("data-frame") == left
    figure.scroll_into_view_if_needed()
    expect(figure).to_have_attribute("data-frame", str(int(left or 0) + 1))
    figure.focus()
    page.keyboard.press("Space")
    stopped = figure.get_attribute("data-frame")
    page.wait_for_timeout(1500)
    assert figure.get_attribute("data-frame") == stopped


def test_questions_are_answered_by_keyboard_with_hints_that_fit_and_a_code_to_hand_in(page: Page) -> None:
    forms = page.locator("form")
    said = [forms.nth(i).locator('[data-kv="said"]') for i in range(3)]
    forms.nth(0).locator("input").first.focus()
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    expect(said[0]).to_contain_text("Not yet: a word cannot see the words after it")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(said[0]).to_contain_text("✓ Right.")
    assert page.evaluate("document.activeElement.type") == "radio"
    forms.nth(1).locator("input").focus()
    page.keyboard.type("13 + 72")
    page.keyboard.press("Enter")
    expect(said[1]).to_contain_text("✓ Right. 13 in run 0, and 1 in each of 72 more runs. Without a cache: 3,577.")
    hints = {"13": "runs 1 to 2 have added rows", "0": "with reserved room", "16": "computed, not copied"}
    for wrong, hint in (hints | {"90": "too large"}).items():
        forms.nth(2).locator("input").fill(wrong)
        page.keyboard.press("Enter")
        expect(said[2]).to_contain_text(hint)
    forms.nth(2).locator("input").fill("rows")
    page.keyboard.press("Enter")
    expect(said[2]).to_contain_text("Write a number")
    assert page.evaluate("document.activeElement.type") == "text"
    assert read_score(page.locator("#kv-code").inner_text()).marks == (1, 2, 0)
    # an answer that was shown does not count, even if it is then given
    forms.nth(2).locator('[data-kv="reveal"]').press("Enter")
    expect(said[2]).to_contain_text("15. 13 + 2")
    forms.nth(2).locator("input").fill("15")
    page.keyboard.press("Enter")
    expect(said[2]).to_contain_text("✓ Right.")
    assert read_score(page.locator("#kv-code").inner_text()).marks == (1, 2, 0)


def test_it_is_small_short_and_fits_every_width_in_light_and_dark(browser: Browser, file: Path) -> None:
    assert file.stat().st_size < 300_000
    for width, scheme in ((360, "light"), (1100, "dark"), (1500, "light")):
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        page.goto(file.as_uri())
        expect(page.locator("main")).to_have_attribute("data-theme", scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        words = page.evaluate(
            """() => { const copy = document.querySelector("main").cloneNode(true);
            copy.querySelectorAll("figure, noscript").forEach((node) => node.remove());
            return copy.innerText.match(/\\S+/g).length }"""
        )
        assert words <= 600
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        expect(page.locator('main[data-theme="light"] .kv-stepping[data-theme="light"]')).to_have_count(3)
        page.close()


def test_in_jupyterlab_a_picture_steps_by_keys_that_the_notebook_does_not_see(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook(["from kvviz.lessons import step_blocks\nstep_blocks()", "step_blocks()"])
    figures = notebook.page.locator(".kv-stepping")
    expect(figures).to_have_count(2)
    first = figures.first
    first.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft", "ArrowRight"):
        notebook.page.keyboard.press(key)
    expect(first).to_have_attribute("data-frame", "3")
    expect(first.locator(".kv-caption")).to_contain_text("Nothing is copied")
    # the other one has stayed, and the focus has, too
    expect(figures.nth(1)).to_have_attribute("data-frame", "0")
    assert notebook.page.evaluate("document.activeElement.dataset.frame") == "3"
    notebook.theme("dark")
    expect(first).to_have_attribute("data-theme", "dark")
    first.press("Space")
    expect(first).to_have_attribute("data-frame", "4")
