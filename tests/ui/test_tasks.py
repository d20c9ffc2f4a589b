"""What people ask a recording, counted in clicks: from the page as it opens, in a file without a kernel.

Running another op, another policy beside this one and applying a fix need a kernel: see `test_lanes`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Locator, expect

import kvviz
from kvviz.explain.diagnose import explain
from tests.ui.filepage import FilePage

pytestmark = pytest.mark.ui

STORY = Path(__file__).resolve().parents[2] / "assets" / "models" / "storyteller"
SAMPLE = 84  # missed steps that are looked at
# Whether the decision, its reasons and the change are in sight as they are, without scrolling.
SEEN = """(why) => {
  const pane = why.closest(".kv-inspect").getBoundingClientRect();
  const parts = [why, ...why.querySelectorAll('[data-kv="blocker"], [data-kv="fix"]')];
  return parts.map((part) => part.getBoundingClientRect()).every((box) => box.height > 0
    && box.top >= pane.top - 1 && box.bottom <= pane.bottom + 1 && box.right <= pane.right + 1);
}"""


@pytest.fixture(scope="module")
def trace() -> kvviz.Trace:
    words = json.loads((STORY / "vocab.json").read_text("utf-8"))
    prompt = "once upon a time there was a brave owl named rosa ."
    return kvviz.decode(kvviz.load(STORY / "concat" / "model.onnx"), prompt, 8, tokenizer=words, progress=False)


@pytest.fixture(scope="module")
def file(trace: kvviz.Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tasks") / "story.html"
    trace.to_html(path, values="200 kB")
    return path


class Hand:
    """Uses a page and counts clicks, choices and keys; what is typed into a field counts once."""

    def __init__(self, page: FilePage) -> None:
        self.page = page
        self.clicks = 0

    def click(self, what: Locator, **options: Any) -> None:
        what.click(**options)
        self.clicks += 1

    def key(self, key: str) -> None:
        self.page.page.keyboard.press(key)
        self.clicks += 1

    def choose(self, what: Locator, option: str) -> None:
        what.select_option(option)
        self.clicks += 1

    def write(self, field: Locator, text: str) -> None:
        field.fill(text)
        field.press("Enter")
        self.clicks += 1

    @property
    def inspector(self) -> Locator:
        return self.page.root.locator(".kv-this")


@pytest.fixture
def hand(browser: Browser, file: Path) -> Iterator[Hand]:
    page = FilePage(browser, file, "#step=2000", width=1500)
    page.expect_step(2000)
    yield Hand(page)
    page.close()


def why_of_layer_3(hand: Hand, trace: kvviz.Trace) -> None:
    """Of layer 2 here: this model has three."""
    hand.write(hand.page.kv("query"), "layer:2 is:missed sort:-missed")
    worst = trace.find("layer:2 is:missed sort:-missed").numbers[0]
    hand.page.expect_step(int(worst))
    expect(hand.page.kv("blocker").first).to_be_visible()


def what_the_peak_is_made_of(hand: Hand, trace: kvviz.Trace) -> None:
    hand.click(hand.page.kv("verdict-item").first)
    hand.page.expect_step(explain(trace).peak.step or 0)
    hand.click(hand.page.root.locator('[data-kv="tab"][data-id="buffers"]'))
    expect(hand.page.kv("storage-bar").first).to_be_visible()


def the_cache_row_written_at_a_token(hand: Hand, trace: kvviz.Trace) -> None:
    hand.click(hand.page.root.locator('[data-kv="story-word"][data-id="5"]'))
    hand.click(hand.page.root.locator('[data-kv="tab"][data-id="caches"]'))
    expect(hand.page.kv("cache-view")).to_be_visible()
    rows = trace.caches[0].runs[5].valid
    expect(hand.page.kv("meter").and_(hand.page.root.locator('[data-id="valid"]')).locator("td").first).to_have_text(
        str(rows)
    )


def on_to_a_concat_that_copies(hand: Hand, trace: kvviz.Trace) -> None:
    hand.write(hand.page.kv("query"), "op:Concat copied>0")
    following = next(n for n in trace.find("op:Concat copied>0").numbers if n > 2000)
    hand.page.expect_step(int(following))


def one_step_back(hand: Hand, trace: kvviz.Trace) -> None:
    hand.click(hand.page.kv("back"))
    hand.page.expect_step(1999)


def the_longest_lived_buffer(hand: Hand, trace: kvviz.Trace) -> None:
    hand.choose(hand.page.kv("layout"), "Memory")
    hand.click(hand.page.root.locator('[data-kv="map-row"]').first)
    expect(hand.inspector).to_contain_text("lives")


def an_op_by_name(hand: Hand, trace: kvviz.Trace) -> None:
    hand.write(hand.page.kv("query"), "lm_head op:MatMul")
    hand.page.expect_step(int(next(n for n in trace.find("lm_head op:MatMul").numbers if n > 2000)))


def a_token(hand: Hand, trace: kvviz.Trace) -> None:
    hand.click(hand.page.root.locator('[data-kv="story-word"][data-id="7"]'))
    expect(hand.page.kv("decode-slider")).to_have_value("7")


def values_and_the_first_nan(hand: Hand, trace: kvviz.Trace) -> None:
    hand.click(hand.page.root.locator('[data-kv="tab"][data-id="values"]'))
    expect(hand.page.root.locator('.kv-panel[data-id="values"]')).to_contain_text("NaN")


def a_markdown_of_this_step(hand: Hand, trace: kvviz.Trace) -> None:
    hand.click(hand.page.kv("share").first)
    with hand.page.page.expect_download() as saved:
        hand.click(hand.page.kv("share-menu").get_by_role("button", name="Save", exact=True).first)
    text = Path(saved.value.path()).read_text("utf-8")
    assert trace.steps[2000].op_type in text
    assert "kvviz" in text


def the_file_itself(hand: Hand, trace: kvviz.Trace) -> None:
    hand.click(hand.page.kv("share").first)
    with hand.page.page.expect_download():
        hand.click(hand.page.kv("share-menu").get_by_role("button", name="Save as HTML"))


TASKS: dict[Callable[[Hand, kvviz.Trace], None], int] = {
    why_of_layer_3: 2,
    what_the_peak_is_made_of: 2,
    the_cache_row_written_at_a_token: 2,
    on_to_a_concat_that_copies: 1,
    one_step_back: 1,
    the_longest_lived_buffer: 2,
    an_op_by_name: 1,
    a_token: 1,
    values_and_the_first_nan: 1,
    a_markdown_of_this_step: 2,
    the_file_itself: 2,
}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_what_people_ask_takes_one_or_two_clicks(
    hand: Hand, trace: kvviz.Trace, task: Callable[[Hand, kvviz.Trace], None]
) -> None:
    task(hand, trace)
    assert hand.clicks <= TASKS[task]


@pytest.mark.parametrize(("width", "theme"), [(1500, "light"), (1100, "dark"), (800, "light")])
def test_reasons_and_the_change_are_in_sight_at_every_missed_step(
    browser: Browser, file: Path, trace: kvviz.Trace, width: int, theme: Literal["light", "dark"]
) -> None:
    # given the height that a notebook gives it
    steps = [int(n) for n in trace.find("is:missed").numbers]
    sample = [steps[i * len(steps) // SAMPLE] for i in range(SAMPLE)]
    page = FilePage(browser, file, width=width, height=840, color_scheme=theme)
    hidden = []
    for step in sample:
        page.kv("goto").fill(str(step))
        page.kv("goto").press("Enter")
        page.expect_step(step)
        expect(page.kv("decision").first).to_be_visible()
        page.page.wait_for_function(
            "(name) => document.querySelector('.kv-this .kv-big').title === name", arg=trace.steps[step].node
        )
        if not page.kv("why").first.evaluate(SEEN):
            hidden.append(step)
    page.close()
    assert hidden == []
