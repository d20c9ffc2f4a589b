"""The cache view in a real JupyterLab and in a file: what it shows of a row is what the trace says of it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

import kvviz
from tests.test_models import graph_of
from tests.ui.caches import CachePage
from tests.ui.conftest import Show
from tests.ui.page import NotebookPage

CELLS = [
    """
import json, kvviz
from kvviz.caches.cache_heat import OUTSIDE, WRAPPED, WRITTEN, attention, heat
from kvviz.caches.cache_warnings import cache_warnings
graph = kvviz.load("assets/models/storyteller/concat/model.onnx")
words = json.load(open("assets/models/storyteller/vocab.json"))
trace = kvviz.decode(graph, "once upon a time there was", 9, tokenizer=words, kv_capacity=24)
debugger = kvviz.debug(trace)
debugger
""",
    "live = kvviz.debug(graph, prompt=[1, 5, 9], max_new_tokens=4, recorded=2)\nlive",
]


@pytest.fixture
def view(notebook: NotebookPage) -> CachePage:
    view = CachePage(notebook.page)
    view.open()
    return view


def test_a_row_is_told_by_pointer_and_keys_and_the_runs_lead_to_themselves(
    notebook: NotebookPage, view: CachePage
) -> None:
    words = notebook.python("trace.words")
    for run, row, state, wrote in [
        (0, 3, "written by this run", ""),
        (5, 3, "holds a token", "written in prefill"),
        (5, 8, "holds a token", "written in decode 2"),
        (5, 11, "written by this run", ""),
        (5, 20, "reserved, never written", ""),
    ]:
        view.to_run(run)
        told = view.point(row, 24, head=1)
        assert state in told and wrote in told
        assert state.startswith("reserved") or f"token “{words[row]}” at {row}" in told
    view.page.mouse.move(0, 0)
    view.to_run(3)
    step = view.step
    heat = view.root.locator(".kv-heat")
    heat.focus()
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowDown"):
        heat.press(key)
    expect(view.kv("cache-tip")).to_contain_text("position 2, head 1:")
    view.expect_step(step)
    expect(heat).to_have_attribute("aria-label", re.compile(r"after decode 3: .*14 reserved, 9 valid, 1 written"))
    pitch = (view.kv("occupancy").evaluate("(canvas) => canvas.clientHeight") - 15) / 9
    view.kv("occupancy").click(position={"x": 200, "y": 5.5 * pitch})
    expect(view.root.locator(".kv-run")).to_contain_text("decode 5")
    expect(view.root.locator(".kv-cache-main .kv-hint")).to_contain_text("in decode 5")


def test_what_attention_weighed_comes_from_the_kernel_for_any_query(notebook: NotebookPage, view: CachePage) -> None:
    view.to_run(4)
    weights = notebook.python("attention(trace, trace.caches[0], 4).tolist()")
    heads = len(notebook.python("heat(trace, trace.caches[0], 4).states[:, 0].tolist()"))
    share = len(weights) // heads
    view.kv("attention").click()
    expect(view.kv("cache-tip")).to_contain_text("the attention weights of")
    for row, head in ((0, 0), (5, 1), (9, 0)):
        told = re.search(r"weight ([\d.e-]+)", view.point(row, 24, head))
        mean = sum(weights[head * share + i][row] for i in range(share)) / share
        assert told and float(told.group(1)) == pytest.approx(mean, rel=0.06, abs=1e-4)
    # of the prompt's queries, the first one sees itself only
    view.to_run(0)
    view.kv("weights-query").fill("0")
    view.kv("weights-query").press("Enter")
    expect(view.kv("cache-tip")).to_contain_text("query 0 of this run")
    view.point(0, 24)
    expect(view.kv("cache-tip")).to_contain_text("weight 1.0")
    view.kv("attention").click()


def test_a_cache_is_chosen_everywhere_and_the_view_leaves_room_or_takes_it(
    notebook: NotebookPage, view: CachePage
) -> None:
    view.kv("cache-row", id=3).click()
    expect(view.root.locator(".kv-cache-main h3")).to_have_text(notebook.python("trace.caches[3].name"))
    expect(view.root.locator(".kv-this")).to_contain_text(notebook.python("trace.caches[3].name"))
    assert notebook.python("debugger.selection") == {"kind": "cache", "id": 3}
    view.kv("tab", id="buffers").click()
    expect(view.root.locator('[data-kv="storage-bar"][data-lit]')).to_have_count(1)
    # opened, it leaves the graph with the op that just ran, and the step can be read
    tall = "(pane) => pane.getBoundingClientRect().bottom - pane.parentElement.getBoundingClientRect().top"
    graph = view.root.locator(".kv-graph")
    before = graph.evaluate(tall)
    view.open()
    assert graph.evaluate(tall) > max(200, 0.5 * before)
    expect(view.root.locator('[data-kv="graph-node"][data-state="running"]')).to_be_in_viewport()
    assert view.root.locator(".kv-this").evaluate("(pane) => pane.clientHeight") > 180
    # large, it has the room of the graph
    main = view.root.locator(".kv-main")
    view.kv("cache-large").click()
    expect(main).to_be_hidden()
    expect(view.kv("decode-slider")).to_be_visible()
    view.kv("tab", id="steps").click()
    expect(main).to_be_visible()
    view.open()
    view.kv("cache-large").click()
    expect(main).to_be_visible()


def test_a_run_that_ends_is_added_and_a_warning_leads_to_the_run_that_it_begins_at(notebook: NotebookPage) -> None:
    live = CachePage(notebook.page, 1)
    live.open()
    live.to_run(1)
    valid = live.kv("meter", id="valid").locator("td").first
    expect(valid).to_have_text("4")
    notebook.execute("live.goto(len(live.trace.steps) + 1300)")
    told = notebook.python("len(live.trace.caches[0].runs)")
    assert told >= 3
    live.to_run(told - 1)
    expect(valid).to_have_text(str(3 + told - 1))
    (kind, run) = notebook.python("[[w.kind, w.run] for w in cache_warnings(live.trace)]")[0]
    warning = live.kv("cache-warning").first
    expect(warning).to_contain_text(kind)
    live.to_run(0)
    warning.locator("button").click()
    expect(live.root.locator(".kv-run")).to_contain_text(f"decode {run}")
    assert live.kv("cache-row", id=0).get_attribute("data-warned") == "1"


def test_a_file_has_the_rows_and_says_what_it_lacks(
    show: Show, llama: kvviz.Trace, file_of: Callable[..., Path], tmp_path: Path
) -> None:
    view = CachePage(show(llama).page)
    view.open()
    view.to_run(2)
    expect(view.kv("meter", id="valid").locator("td").first).to_have_text(str(llama.caches[0].runs[2].valid))
    # nobody can compute what attention weighed
    view.kv("attention").click()
    expect(view.kv("cache-tip")).to_contain_text("needs a running kernel")
    # and where another lane's rows did not come along
    text = re.sub('<script [^>]*id="kvviz-cache_data">.*?</script>', "", file_of(llama).read_text("utf-8"))
    (tmp_path / "saved.html").write_text(text, "utf-8")
    view = CachePage(show(tmp_path / "saved.html").page)
    view.kv("tab", id="caches").click()
    expect(view.kv("cache-note")).to_contain_text("needs a running kernel")
    expect(view.kv("cache-view")).to_have_count(0)


def test_a_softmax_leads_to_what_it_weighed_over_the_words(show: Show, story: kvviz.Trace) -> None:
    softmax = next(s for s in story.steps if s.run == 2 and s.op_type == "Softmax" and "layers.1" in s.node)
    view = CachePage(show(story).page)
    view.goto(softmax.index)
    view.kv("attention-link").filter(has_text="1.key").click()
    expect(view.kv("heat")).to_be_visible()
    expect(view.kv("attention")).to_have_attribute("aria-pressed", "true")
    expect(view.kv("cache-row", id="2")).to_have_attribute("aria-selected", "true")
    view.expect_step(softmax.index)


def test_a_graph_without_a_cache_says_so(show: Show) -> None:
    view = CachePage(show(kvviz.decode(graph_of("o09_dynamo_qwen2_nocache"), [5, 17, 33], 4, progress=False)).page)
    told = "no cache: every run computes all tokens again, 18 in 4 runs; a cache would leave 6"
    expect(view.kv("findings")).to_contain_text(told)
    expect(view.kv("tab", id="caches")).to_be_hidden()
