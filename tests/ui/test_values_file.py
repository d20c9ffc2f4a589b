"""Values in the page: out of a file, without a kernel; and put there by one, when it is asked to."""

import re
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

import kvviz
from kvviz import Trace
from tests.test_models import graph_of
from tests.ui.caches import CachePage
from tests.ui.conftest import OpenNotebook, Show, in_words
from tests.ui.debugger import DebuggerPage
from tests.ui.filepage import FilePage

# Distinct colours of a canvas.
COLOURS = """(canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}"""


@pytest.fixture(scope="module")
def trace() -> Trace:
    made = in_words("once upon a time there was", 7, kv_capacity=20)
    made.summarise()
    return made


@pytest.fixture
def page(show: Show, trace: Trace) -> Any:
    return show(trace, width=1500, height=1000)


def told(number: float) -> str:
    """A number as the page writes it, of those that need no exponent."""
    text = str(int(number)) if number == int(number) else f"{number:#.3g}"
    return text.rstrip(".").replace("-", "−")


def test_the_numbers_of_a_step_are_those_that_python_tells_and_one_head_is_chosen(page: FilePage, trace: Trace) -> None:
    step = next(s.index for s in trace.steps if s.op_type == "Softmax" and len(s.outs[0].shape or ()) == 4)
    heads = (trace.steps[step].outs[0].shape or ())[1]
    page.kv("tab", id="values").click()
    page.goto(step)
    expect(page.kv("value-about")).to_contain_text("Recorded: numbers of")
    assert trace.values is not None
    found = trace.values.of(step)
    assert found is not None and found.histogram is not None
    numbers = page.kv("value-numbers").last
    expect(numbers).to_contain_text(f"max{told(found.numbers.high)}")
    expect(numbers).to_contain_text(f"mean{told(found.numbers.mean)}")
    expect(numbers).to_contain_text("not finitenone")
    histogram = page.root.locator(".kv-value-histogram").last
    expect(histogram).to_have_attribute("aria-label", re.compile(", ".join(map(str, found.histogram.tolist())) + "$"))
    picture = page.kv("value-picture").last
    expect(picture).to_have_attribute("aria-label", re.compile(rf"entry 0 of {heads} on axis 1; axis 2 down, axis 3"))
    assert picture.evaluate(COLOURS) > 4
    page.kv("value-head").last.select_option(str(heads - 1))
    expect(picture).to_have_attribute("aria-label", re.compile(rf"entry {heads - 1} of {heads}"))
    # selecting a value shows it, and the cursor stays
    step = len(trace.steps) - 1
    page.goto(step)
    row = page.kv("value-row").filter(has_text="logits")
    expect(row.locator("svg.kv-bars")).to_have_count(1)
    row.click()
    expect(page.root.locator(".kv-value-title")).to_contain_text("logits")
    page.expect_step(step)


def test_attention_and_words_are_over_the_rows_without_a_kernel(page: FilePage, trace: Trace) -> None:
    view = CachePage(page.page)
    view.open()
    view.to_run(4)
    expect(view.kv("attention")).to_have_attribute("aria-pressed", "true")
    expect(view.kv("cache-tip")).to_contain_text("the attention weights of this run's query")
    # then the row that is pointed at says what it weighs: the mean of the query heads that share a head
    assert trace.values is not None
    weights = trace.values.attention(0, 4)
    assert weights is not None
    tip = view.point(3, 20)
    share = len(weights) // 2
    assert f"weight {np.mean(weights[:share, 3]):.2g}"[:10] in tip
    assert view.kv("heat").evaluate(COLOURS) > 8
    top = int(view.kv("heat").get_attribute("data-top") or 0)
    view.kv("attention").click()
    expect(view.kv("cache-tip")).to_contain_text("Point at a row")
    less = int(view.kv("heat").get_attribute("data-top") or 0)
    assert 20 < less < top


def test_a_kernel_puts_values_into_the_page_when_it_is_asked(open_notebook: OpenNotebook) -> None:
    # given a page whose recording has none
    story = """import kvviz
graph = kvviz.load("assets/models/storyteller/concat/model.onnx")
kvviz.debug(kvviz.decode(graph, [1, 5, 9], 3, progress=False))"""
    debugger = DebuggerPage(open_notebook([story], width=1600))
    debugger.root.get_by_role("tab", name="Values").click()
    expect(debugger.kv("value-about")).to_contain_text("Values are not in this recording")
    debugger.kv("summarise").click()
    expect(debugger.kv("value-about")).to_contain_text("Recorded: numbers of", timeout=60_000)
    expect(debugger.kv("summarise")).to_have_count(0)
    expect(debugger.kv("value-row").first.locator("svg.kv-bars")).to_have_count(1)
    assert debugger.python("t.values is not None and len(t.values) > 100")


def test_a_file_without_values_says_how_to_have_them_and_a_dry_run_that_there_are_none(
    show: Show, story: Trace
) -> None:
    page = show(story)
    page.kv("tab", id="values").click()
    expect(page.kv("value-about")).to_contain_text("trace.summarise() puts them there")
    expect(page.kv("summarise")).to_have_count(0)
    page.kv("value-row").last.click()
    expect(page.root.locator(".kv-value-peek")).to_contain_text("needs a running kernel")
    page = show(kvviz.dry(graph_of("storyteller/concat"), prompt_tokens=4, max_new_tokens=2), width=1500)
    page.kv("tab", id="values").click()
    page.goto(20)
    told = "Values were not recorded: a dry run works out layouts and no numbers."
    expect(page.kv("value-about")).to_have_text(told)
    expect(page.root.get_by_text("Its numbers were not recorded: a dry run")).to_be_visible()
    expect(page.root.get_by_text("needs a running kernel")).to_have_count(0)
    expect(page.root.get_by_text("trace.summarise()")).to_have_count(0)
