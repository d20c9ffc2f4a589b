"""The graph while a finding is framed, the way of a buffer, edges that leave the pane, and sums over ranges."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

import kvviz
from kvviz.trace.units import size
from tests.test_models import graph_of, reference
from tests.ui.conftest import Show
from tests.ui.graphpage import GraphPage

pytestmark = pytest.mark.ui


@pytest.fixture(scope="module")
def trace() -> kvviz.Trace:
    name = "o01_optimum_llama"
    return kvviz.decode(graph_of(name), reference(name)["prompt"].tolist(), 5, progress=False)


@pytest.fixture
def graph(show: Show, trace: kvviz.Trace) -> GraphPage:
    shown: GraphPage = show(trace, kind=GraphPage, width=1500, height=950)
    return shown


def frame(graph: GraphPage, trace: kvviz.Trace, kind: str) -> None:
    number = next(i for i, one in enumerate(kvviz.findings(trace)) if one.kind == kind)
    if number:
        graph.root.locator(f'[data-kv="finding"][data-id="{number}"]').click()
    steps = kvviz.findings(trace)[number].at
    expect(graph.stage).to_have_attribute("data-evidence", re.compile("^(" + "|".join(map(str, steps)) + ")$"))


def shown(graph: GraphPage) -> int:
    return int(graph.stage.get_attribute("data-evidence") or -1)


def test_a_copied_past_is_drawn_with_its_rows_and_followed_from_step_to_step(
    graph: GraphPage, trace: kvviz.Trace
) -> None:
    frame(graph, trace, "copied")
    expect(graph.stage).to_have_attribute("aria-description", re.compile("rows are copied here"))
    seen = set()
    for _ in range(3):
        step = trace.steps[shown(graph)]
        seen.add(step.index)
        cache = next(one for one in trace.caches if one.input in step.inputs)
        rows = cache.runs[step.run - 1].valid
        expect(graph.stage).to_have_attribute("aria-description", re.compile(f"all {rows} rows are copied here"))
        buffer = step.outs[0].storage
        expect(graph.stage).to_have_attribute("aria-description", re.compile(rf"B{buffer} · {rows + 1} rows"))
        expect(graph.running).to_have_count(1)
        graph.kv("evidence-next").click()
        expect(graph.stage).not_to_have_attribute("data-evidence", str(step.index))
    assert len(seen) == 3


def test_ops_that_play_no_part_are_folded_and_a_click_shows_them(graph: GraphPage, trace: kvviz.Trace) -> None:
    frame(graph, trace, "copied")
    folded = graph.kv("hidden-ops")
    expect(folded).to_have_text(re.compile(r"^\d+ ops of this block hidden · show all$"))
    hidden = int((folded.text_content() or "").split()[0])
    drawn = graph.kv("graph-node").count()
    node = trace.steps[shown(graph)].node
    assert 0 < drawn < 12 < hidden
    folded.click()
    # then the op stands in its whole block
    expect(folded).to_have_text("only what takes part")
    assert graph.kv("graph-node").count() >= hidden
    expect(graph.running).to_have_attribute("aria-label", re.compile(re.escape(node)))
    # and back
    folded.click()
    expect(graph.kv("graph-node")).to_have_count(drawn)
    # and a step of one's own leaves the finding
    graph.kv("next").click()
    expect(folded).to_be_hidden()
    assert shown(graph) == -1
    graph.kv("evidence-return").click()
    expect(graph.kv("graph-node")).to_have_count(drawn)


def test_the_drawing_fits_and_can_be_zoomed_and_fitted_again(graph: GraphPage, trace: kvviz.Trace) -> None:
    frame(graph, trace, "copied")
    fitted = graph.kv("zoom").text_content() or ""
    graph.kv("zoom-in").click()
    graph.kv("zoom-in").click()
    expect(graph.kv("zoom")).not_to_have_text(fitted)
    graph.kv("fit").click()
    expect(graph.kv("zoom")).to_have_text(fitted)
    pane = graph.stage.bounding_box()
    assert pane
    graph.page.wait_for_timeout(300)
    for _, box in graph.places():
        assert box
        assert pane["x"] <= box["x"]
        assert box["x"] + box["width"] <= pane["x"] + pane["width"]
        assert pane["y"] <= box["y"]
        assert box["y"] + box["height"] <= pane["y"] + pane["height"]


def test_the_way_of_a_buffer_is_that_of_the_chosen_op(graph: GraphPage, trace: kvviz.Trace) -> None:
    step = next(s for s in trace.steps if s.decision.dispatch == "in_place" and s.run == 1)
    graph.goto(step.index)
    graph.root.press("Escape")  # the op of the finding is chosen still
    graph.kv("buffer-way").click()
    expect(graph.stage).to_have_attribute("data-way", str(step.outs[0].storage))
    graph.kv("buffer-way").click()
    expect(graph.stage).not_to_have_attribute("data-way", re.compile("."))


def test_a_range_of_the_timeline_sums_its_steps_and_finds_them(graph: GraphPage, trace: kvviz.Trace) -> None:
    plot = graph.kv("timeline").bounding_box()
    assert plot
    expect(graph.kv("range")).to_be_hidden()
    graph.page.keyboard.down("Shift")
    graph.page.mouse.move(plot["x"] + 0.3 * plot["width"], plot["y"] + 20)
    graph.page.mouse.down()
    graph.page.mouse.move(plot["x"] + 0.5 * plot["width"], plot["y"] + 20, steps=3)
    graph.page.mouse.up()
    graph.page.keyboard.up("Shift")
    says = graph.kv("range").locator("span").text_content() or ""
    many, first = (int(n.replace(",", "")) for n in re.findall(r"^([\d,]+) steps, ([\d,]+)–", says)[0])
    steps = trace.steps[first : first + many]
    assert many == pytest.approx(0.2 * len(trace.steps), abs=3)
    for name in ("allocated", "copied", "written"):
        assert f"{name} {size(sum(getattr(s, name) for s in steps))}" in says
    # and the link finds them
    graph.kv("range-steps").click()
    expect(graph.kv("query")).to_have_value(f"step:{first}..{first + many - 1}")
    expect(graph.kv("query-count")).to_have_text(re.compile(f"{many:,}"))
    # and keys make it longer, and Escape forgets it
    slider = graph.kv("step-slider")
    slider.focus()
    slider.press("Escape")
    expect(graph.kv("range")).to_be_hidden()
    graph.goto(100)
    slider.focus()
    for _ in range(3):
        slider.press("Shift+ArrowRight")
    expect(graph.kv("range")).to_contain_text("4 steps, 100–103")
    expect(graph.root).to_have_attribute("data-step", "103")
