"""The decision, its reasons and the change that would mend it are in sight at every missed step, without scrolling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

import kvviz
from tests.ui.filepage import FilePage

pytestmark = pytest.mark.ui

STORY = Path(__file__).resolve().parents[2] / "assets" / "models" / "storyteller"
SAMPLE = 28  # missed steps that are looked at
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
        page.goto(step)
        expect(page.kv("decision").first).to_be_visible()
        page.page.wait_for_function(
            "(name) => document.querySelector('.kv-this .kv-big').title === name", arg=trace.steps[step].node
        )
        if not page.kv("why").first.evaluate(SEEN):
            hidden.append(step)
    page.close()
    assert hidden == []
