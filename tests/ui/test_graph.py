"""The graph pane in files: cards, what is drawn, clicks, keys, wheel, minimap, bodies, and how fast it pans."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

import kvviz
from tests.engine.graphs import graph_of
from tests.ui.conftest import Show
from tests.ui.graphpage import GraphPage
from tests.ui.pace import PAN, pan_cost

pytestmark = pytest.mark.ui


@pytest.fixture
def graph(show: Show, file_of: Callable[..., Path], story: kvviz.Trace) -> GraphPage:
    shown: GraphPage = show(file_of(story, diagnosis=False), kind=GraphPage, width=1500, height=1000)
    return shown


def test_layers_that_repeat_are_one_card_and_each_can_be_shown(graph: GraphPage, story: Any) -> None:
    # given the last layer's attention
    step = next(s.index for s in reversed(story.steps) if "layers.2/self_attn" in s.node)
    graph.goto(step)
    assert any(head.startswith("layer × 3, shown: layer 2") for head in graph.heads())
    part = next(head for head in graph.heads() if head.startswith("layer 2 · self_attn, part 3 of 3"))
    assert "× 3 layers alike, " in part.replace(" · ", ", ")
    open_nodes = graph.kv("graph-node").count()
    # when layer 1 is chosen with keys
    graph.stage.focus()
    while graph.stage.get_attribute("aria-activedescendant") != graph.kv("card").get_attribute("id"):
        graph.stage.press("ArrowUp")
    graph.stage.press("ArrowLeft")
    # then the same part of it is open, and the cursor stayed
    assert any(head.startswith("layer × 3, shown: layer 1") for head in graph.heads())
    expect(graph.kv("graph-node")).to_have_count(open_nodes)
    expect(graph.running).to_have_count(0)
    expect(graph.root).to_have_attribute("data-step", str(step))
    # and the cursor takes the view back
    graph.kv("next").click()
    expect(graph.running).to_have_count(1)


def test_clicks_select_what_they_hit_and_the_cursor_stays(graph: GraphPage, story: Any) -> None:
    step = 2000
    graph.goto(step)
    # when another op on the screen is clicked
    seen = next(node for node in graph.seen() if node.get_attribute("data-state") != "running")
    graph.click(seen)
    # then it is selected, and the cursor is where it was
    expect(seen).to_have_attribute("data-lit", "1")
    expect(graph.root.locator(".kv-this h3").first).to_have_text("Selected")
    expect(graph.root).to_have_attribute("data-step", str(step))
    # and a double click goes there
    graph.click(seen, double=True)
    expect(seen).to_have_attribute("data-state", "running")


def test_what_was_decided_is_drawn_in_its_colour(graph: GraphPage, story: Any) -> None:
    graph.goto(2000)
    fills: dict[str, set[tuple[int, ...]]] = {}
    for node in graph.seen():
        fills.setdefault(node.get_attribute("data-state") or "", set()).add(tuple(graph.pixel(node)))
    # each state has one fill, and no two of them the same but for two that differ in their borders
    assert {"running", "frontier"} <= fills.keys()
    assert all(len(colours) == 1 for colours in fills.values()), fills
    told = [next(iter(colours)) for state, colours in fills.items() if state not in {"waiting", "view"}]
    assert len(set(told)) == len(told)


def test_the_wheel_belongs_to_the_notebook_until_the_graph_has_the_focus(graph: GraphPage, story: Any) -> None:
    graph.goto(2000)
    graph.page.evaluate("document.body.style.minHeight = '4000px'")
    graph.page.wait_for_timeout(300)
    box = graph.kv("graph-canvas").bounding_box()
    assert box
    place = (box["x"] + 200, box["y"] + 150)
    graph.page.mouse.move(*place)
    # when it has no focus, the page scrolls
    graph.root.focus()
    graph.page.mouse.wheel(0, 120)
    graph.page.wait_for_timeout(400)
    assert graph.page.evaluate("window.scrollY") > 50
    graph.page.evaluate("window.scrollTo(0, 0)")
    graph.page.wait_for_timeout(200)
    # when it has, the graph does
    graph.stage.focus()
    node = graph.running
    before = node.bounding_box()
    graph.page.mouse.wheel(0, 40)
    graph.page.wait_for_timeout(400)
    after = node.bounding_box()
    assert before and after
    assert after["y"] == pytest.approx(before["y"] - 40, abs=1)
    assert graph.page.evaluate("window.scrollY") == 0
    # and with Ctrl it zooms, whoever has the focus
    graph.root.focus()
    graph.page.keyboard.down("Control")
    graph.page.mouse.wheel(0, 100)
    graph.page.keyboard.up("Control")
    expect(graph.kv("zoom")).not_to_have_text("100 %")


def test_dragging_pans_and_the_minimap_moves_the_view(graph: GraphPage, story: Any) -> None:
    graph.goto(2000)
    graph.page.wait_for_timeout(300)
    seen = list(graph.visible())
    box = graph.kv("graph-canvas").bounding_box()
    small = graph.kv("minimap").bounding_box()
    assert box and small
    graph.page.mouse.move(box["x"] + 300, box["y"] + 250)
    graph.page.mouse.down()
    graph.page.mouse.move(box["x"] + 300, box["y"] + 130, steps=4)
    graph.page.mouse.up()
    graph.page.wait_for_timeout(300)
    # then others are seen, and nothing was selected
    moved = list(graph.visible())
    assert moved != seen
    expect(graph.root.locator('[data-kv="graph-node"][data-lit]')).to_have_count(0)
    # and the minimap leads back to the top
    graph.page.mouse.click(small["x"] + 10, small["y"] + 2)
    graph.page.wait_for_timeout(300)
    expect(graph.kv("block").first).to_be_visible()


def test_keys_walk_along_lines_and_say_where_they_are(graph: GraphPage, story: Any) -> None:
    graph.goto(2000)
    graph.stage.focus()
    graph.stage.press("ArrowDown")
    start = graph.stage.get_attribute("aria-activedescendant")
    assert start
    expect(graph.root.locator(f"#{start}")).to_have_attribute("data-state", "running")
    graph.stage.press("ArrowDown")
    # then it is an op that reads what the first one made
    at = graph.root.locator(f"#{graph.stage.get_attribute('aria-activedescendant')}")
    node = story.steps[2000].node
    graph_of = story.frames[0].graph
    made = next(n for n in graph_of.nodes if n.name == node).outputs
    readers = [n.name for n in graph_of.nodes if set(n.inputs) & set(made)]
    label = at.get_attribute("aria-label") or ""
    assert label.split(", ")[0].split(" ", 1)[1] in readers
    expect(graph.kv("graph-said")).to_have_text(label)
    # and Enter goes to its step
    target = at.get_attribute("data-node")
    graph.stage.press("Enter")
    expect(graph.running).to_have_attribute("data-node", target or "")


def test_text_is_never_smaller_than_eleven_px(graph: GraphPage, story: Any) -> None:
    graph.page.evaluate(
        """() => {
          window.sizes = new Set();
          const write = CanvasRenderingContext2D.prototype.fillText;
          CanvasRenderingContext2D.prototype.fillText = function (...a) {
            window.sizes.add(parseFloat(/([\\d.]+)px/.exec(this.font)[1]));
            return write.apply(this, a);
          };
        }"""
    )
    graph.goto(2000)
    graph.kv("unfold").click()
    for _ in range(8):
        graph.kv("zoom-out").click()
        graph.page.wait_for_timeout(60)
    sizes = graph.page.evaluate("[...window.sizes]")
    assert sizes
    assert min(sizes) >= 11


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
    file = file_of(chain(length), diagnosis=False)
    graph = show(file, kind=GraphPage, width=1500, height=1000)
    graph.kv("fold").click()
    assert len(graph.heads()) <= 10
    graph.kv("unfold").click()
    expect(graph.kv("graph-node")).to_have_count(length)
    for _ in range(2):
        assert pan_cost(graph.root) < PAN
        for _ in range(4):
            graph.kv("zoom-out").click()
