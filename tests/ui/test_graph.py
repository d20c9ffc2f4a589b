"""The graph pane in files: cards, what is drawn, clicks, keys, wheel, minimap, bodies, and how fast it pans."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

import kvviz
from tests.engine.graphs import graph_of
from tests.ui.conftest import Show
from tests.ui.filepage import box
from tests.ui.graphpage import GraphPage
from tests.ui.pace import BOXES, PAN, SWING, cost_of

SIZES = """() => {
  window.sizes = new Set();
  const write = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (...a) {
    window.sizes.add(parseFloat(/([\\d.]+)px/.exec(this.font)[1]));
    return write.apply(this, a);
  };
}"""


@pytest.fixture
def graph(show: Show, file_of: Callable[..., Path], story: kvviz.Trace) -> Any:
    return show(file_of(story, diagnosis=False), kind=GraphPage, width=1500, height=1000)


def test_layers_that_repeat_are_one_card_and_text_is_never_smaller_than_eleven_px(
    graph: GraphPage, story: kvviz.Trace
) -> None:
    step = next(s.index for s in reversed(story.steps) if "layers.2/self_attn" in s.node)
    graph.goto(step)
    assert any(head.startswith("layer × 3, shown: layer 2") for head in graph.heads())
    part = next(head for head in graph.heads() if head.startswith("layer 2 · self_attn, part 3 of 3"))
    assert "× 3 layers alike, " in part.replace(" · ", ", ")
    open_nodes = graph.kv("graph-node").count()
    graph.stage.focus()
    while graph.stage.get_attribute("aria-activedescendant") != graph.kv("card").get_attribute("id"):
        graph.stage.press("ArrowUp")
    graph.stage.press("ArrowLeft")
    # then the same part of it is open, and the cursor stayed
    assert any(head.startswith("layer × 3, shown: layer 1") for head in graph.heads())
    expect(graph.kv("graph-node")).to_have_count(open_nodes)
    expect(graph.running).to_have_count(0)
    graph.expect_step(step)
    # and the cursor takes the view back
    graph.kv("next").click()
    expect(graph.running).to_have_count(1)
    graph.page.evaluate(SIZES)
    graph.kv("unfold").click()
    for _ in range(8):
        graph.kv("zoom-out").click()
        graph.page.wait_for_timeout(60)
    sizes = graph.page.evaluate("[...window.sizes]")
    assert sizes and min(sizes) >= 11


def test_each_state_has_its_colour_and_clicks_and_keys_lead_from_op_to_op(graph: GraphPage, story: kvviz.Trace) -> None:
    step = 2000
    graph.goto(step)
    seen = graph.seen()
    fills: dict[str, set[tuple[int, ...]]] = {}
    for node in seen:
        fills.setdefault(node.get_attribute("data-state") or "", set()).add(tuple(graph.pixel(node)))
    # each state has one fill, and no two of them the same but for two that differ in their borders
    assert {"running", "frontier"} <= fills.keys()
    assert all(len(colours) == 1 for colours in fills.values()), fills
    told = [next(iter(colours)) for state, colours in fills.items() if state not in {"waiting", "view"}]
    assert len(set(told)) == len(told)
    # keys walk along lines, here to an op that reads what the first one made
    graph.stage.focus()
    graph.stage.press("ArrowDown")
    start = graph.stage.get_attribute("aria-activedescendant")
    expect(graph.root.locator(f"#{start}")).to_have_attribute("data-state", "running")
    graph.stage.press("ArrowDown")
    at = graph.root.locator(f"#{graph.stage.get_attribute('aria-activedescendant')}")
    nodes = story.frames[0].graph.nodes
    made = next(n for n in nodes if n.name == story.steps[step].node).outputs
    label = at.get_attribute("aria-label") or ""
    assert label.split(", ")[0].split(" ", 1)[1] in [n.name for n in nodes if set(n.inputs) & set(made)]
    expect(graph.kv("graph-said")).to_have_text(label)
    target = at.get_attribute("data-node")
    graph.stage.press("Enter")
    expect(graph.running).to_have_attribute("data-node", target or "")
    graph.goto(step)
    other = next(node for node in graph.seen() if node.get_attribute("data-state") != "running")
    graph.click(other)
    expect(other).to_have_attribute("data-lit", "1")
    expect(graph.root.locator(".kv-this h3").first).to_have_text("Selected")
    graph.expect_step(step)
    graph.click(other, double=True)
    expect(other).to_have_attribute("data-state", "running")


def test_the_wheel_belongs_to_the_page_until_the_graph_has_the_focus_and_dragging_pans(graph: GraphPage) -> None:
    graph.goto(2000)
    graph.page.evaluate("document.body.style.minHeight = '4000px'")
    graph.page.wait_for_timeout(300)
    canvas, small = (box(graph.kv(name)) for name in ("graph-canvas", "minimap"))
    mouse = graph.page.mouse
    mouse.move(canvas["x"] + 200, canvas["y"] + 150)
    # when it has no focus, the page scrolls
    graph.root.focus()
    mouse.wheel(0, 120)
    graph.page.wait_for_function("() => window.scrollY > 50")
    graph.page.evaluate("window.scrollTo(0, 0)")
    graph.page.wait_for_timeout(200)
    # when it has, the graph does
    graph.stage.focus()
    before = box(graph.running)["y"]
    mouse.wheel(0, 40)
    graph.page.wait_for_timeout(400)
    assert box(graph.running)["y"] == pytest.approx(before - 40, abs=1)
    assert graph.page.evaluate("window.scrollY") == 0
    seen = list(graph.visible())
    graph.drag(canvas["x"] + 300, canvas["y"] + 250, 0, -120)
    graph.page.wait_for_timeout(300)
    assert list(graph.visible()) != seen
    expect(graph.root.locator('[data-kv="graph-node"][data-lit]')).to_have_count(0)
    mouse.click(small["x"] + 10, small["y"] + 2)
    expect(graph.kv("block").first).to_be_visible()
    graph.root.focus()
    mouse.move(canvas["x"] + 200, canvas["y"] + 150)
    graph.page.keyboard.down("Control")
    mouse.wheel(0, 100)
    graph.page.keyboard.up("Control")
    expect(graph.kv("zoom")).not_to_have_text("100 %")


def chain(length: int) -> Any:
    """Many ops without modules, each reading the one before and one further back."""
    rng = np.random.default_rng(0)
    nodes, names = [], ["x"]
    for i in range(length):
        far = names[-int(rng.integers(1, min(6, len(names)) + 1))]
        nodes.append(f"[n{i}] v{i} = {('Add', 'Mul', 'Relu', 'Neg')[i % 4]} ({f'{far}, ' * (i % 4 < 2)}{names[-1]})")
        names.append(f"v{i}")
    text = f"chain (float[4] x) => (float[4] {names[-1]}) {{ {' '.join(nodes)} }}"
    return kvviz.run(graph_of(text), {"x": np.ones(4, np.float32)})


def test_thousands_of_ops_unfolded_pan_as_quickly_as_plain_boxes(show: Show, file_of: Callable[..., Path]) -> None:
    length = 4000
    graph = show(file_of(chain(length), diagnosis=False), kind=GraphPage, width=1500, height=1000)
    graph.kv("fold").click()
    assert len(graph.heads()) <= 10
    graph.kv("unfold").click()
    expect(graph.kv("graph-node")).to_have_count(length)
    for _ in range(2):
        assert cost_of(graph.root, SWING, 90, BOXES, 90) < PAN
        for _ in range(4):
            graph.kv("zoom-out").click()
