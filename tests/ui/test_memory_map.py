"""The memory map in a file: what it shows against what the trace says, and that every way to move on it works."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import FloatRect, Locator, expect

import kvviz
from kvviz.smollm2 import convert
from tests.smollm2.tiny import Tiny, write_tiny
from tests.ui import pace
from tests.ui.conftest import Show, in_words
from tests.ui.filepage import FilePage, box

WORDS = "once upon a time there was a brave owl named rosa . rosa lived in a"
# Most drawings (see pace.py) that a move of the map may cost, with 20,000 storages.
MOVE = 1.5
# A wheel with Shift in every frame, on a map that is zoomed in.
PAN = """async (root, count) => {
  const view = root.querySelector('[data-kv="memory-map"]'), box = view.getBoundingClientRect();
  const at = { bubbles: true, cancelable: true, clientX: box.x + box.width / 2, clientY: box.y + 40 };
  const wheel = (how) => view.dispatchEvent(new WheelEvent("wheel", { ...at, ...how }));
  const frame = () => new Promise((next) => requestAnimationFrame(next));
  for (let i = 0; i < 3; i++) wheel({ ctrlKey: true, deltaY: -400 });
  for (let i = 0; i < count; i++) {
    wheel({ shiftKey: true, deltaY: i % 60 < 30 ? 25 : -25 });
    await frame();
  }
}"""
# Zoom in and out around the middle, a little in every frame.
ZOOM = PAN.replace("shiftKey: true, deltaY: i % 60 < 30 ? 25 : -25", "ctrlKey: true, deltaY: i % 40 < 20 ? -40 : 40")


def number(text: str) -> int:
    found = re.search(r"\d[\d,]*", text)
    assert found, text
    return int(found.group().replace(",", ""))


class MapPage(FilePage):
    """Drive the map, which is opened as a user does it."""

    def open(self) -> "MapPage":
        self.kv("open-map").click()
        self.page.locator('[data-kv="memory-map"][data-drawn]').wait_for()
        return self

    @property
    def view(self) -> Locator:
        return self.kv("memory-map")

    @property
    def tip(self) -> Locator:
        return self.root.locator(".kv-map-tip")

    @property
    def box(self) -> FloatRect:
        return box(self.view)

    @property
    def range(self) -> tuple[float, float]:
        first, last = (self.view.get_attribute("data-range") or "").split()
        return float(first), float(last)

    def wait_for_range(self, most: float) -> None:
        """Wait until so many steps or fewer are drawn."""
        narrow = "([view, most]) => { const [a, b] = view.dataset.range.split(' '); return b - a <= most; }"
        self.page.wait_for_function(narrow, arg=[self.view.element_handle(), most])

    @property
    def window(self) -> tuple[int, int]:
        """First and last step of the window, as the map says it."""
        found = re.search(r"steps, ([\d,]+)–([\d,]+)", self.kv("range").inner_text())
        assert found
        return number(found.group(1)), number(found.group(2))

    def x_of(self, step: float) -> float:
        first, last = self.range
        return self.box["x"] + (step - first) / (last - first) * self.box["width"]

    def point(self, step: float, height: float) -> None:
        """Point at the middle of a step, so many px above the foot of the map, once the map stands still."""
        self.view.hover(trial=True)
        self.page.mouse.move(self.x_of(step + 0.5), self.box["y"] + self.box["height"] - height)

    def brush(self, first: float, last: float) -> None:
        start, y = self.x_of(first), self.box["y"] + self.box["height"] / 2
        self.drag(start, y, self.x_of(last) - start, 9)


@pytest.fixture(scope="module")
def story() -> kvviz.Trace:
    return in_words(WORDS, 5)


@pytest.fixture
def page(show: Show, story: kvviz.Trace) -> MapPage:
    shown: MapPage = show(story, f"#step={len(story.steps) - 1}", kind=MapPage)
    expect(shown.view).to_have_count(0)
    return shown.open()


def buffers(trace: Any) -> list[Any]:
    return [s for s in trace.storages if s.origin != "weights" and s.capacity and s.born < len(trace.log)]


def test_it_opens_with_every_buffer_and_keys_walk_from_one_to_the_next(page: MapPage, story: kvviz.Trace) -> None:
    count = len(buffers(story))
    assert int(page.view.get_attribute("data-drawn") or 0) == count
    expect(page.root.locator(".kv-map-head")).to_contain_text(f"{count:,} buffers above 586 kB of weights")
    words = page.root.locator(".kv-map-words span").all_inner_texts()
    assert words == [run.text.strip() for run in story.runs]
    stops = page.root.locator(".kv-space :is(button, select, [tabindex]):not([tabindex='-1']):visible")
    # the tools as one stop, the map, and the list beside it: also when the page has settled which buttons are stops
    page.page.wait_for_timeout(500)
    assert stops.evaluate_all("(all) => all.map((one) => one.dataset.kv)") == ["map-sort", "memory-map", "map-list"]
    page.view.focus()
    at, seen = page.step, []
    for key in ("ArrowDown", "ArrowLeft", "ArrowUp", "ArrowLeft"):
        page.page.keyboard.press(key)
        expect(page.tip).to_be_visible()
        seen.append(page.tip.locator("b").inner_text())
    assert len(set(seen)) == 4
    assert page.step == at
    chosen = story.storages[number(seen[-1])]
    expect(page.kv("inspector")).to_contain_text(f"B{chosen.id}")
    page.page.keyboard.press("Enter")
    page.expect_step(max(chosen.born, 0))
    for colour, expected in {"owner": "cache", "cache": "0.key", "op": "MatMul", "size": "≤"}.items():
        page.kv("map-colour").select_option(colour)
        expect(page.root.locator(".kv-map-legend")).to_contain_text(expected)


def test_a_brushed_window_tells_its_peak_and_is_moved_on_the_timeline(page: MapPage, story: kvviz.Trace) -> None:
    live = [row.live for row in story.log]
    at = page.step
    page.brush(900, 1300)
    first, last = page.window
    assert abs(first - 900) < 8 and abs(last - 1300) < 8
    assert page.step == at
    peak = live.index(max(live[first : last + 1]), first)
    expect(page.kv("range-peak")).to_have_text(f"{live[peak] / 1000:.0f} kB at step {peak:,}")
    page.kv("range-peak").click()
    page.expect_step(peak)
    expect(page.root.locator(".kv-map-list h4")).to_have_text("Longest-lived of the window")
    ids = {int(row.get_attribute("data-id") or 0) for row in page.kv("map-row").all()}
    assert ids and ids <= {s.id for s in buffers(story) if s.born <= last and (s.freed is None or s.freed >= first)}
    page.kv("map-zoom-window").click()
    expect(page.view).to_have_attribute("data-range", f"{first:.1f} {last + 1:.1f}")
    wide = box(page.kv("timeline"))["width"]
    grip = box(page.kv("window-part", part="move"))
    page.drag(grip["x"] + grip["width"] / 2, grip["y"] + 3, wide / 4, 0)
    quarter = len(story.log) / 4
    assert abs(page.window[0] - first - quarter) < 12
    assert page.window[1] - page.window[0] == last - first
    page.page.wait_for_function(
        "([n, view]) => parseFloat(view.dataset.range) === n", arg=[page.window[0], page.view.element_handle()]
    )
    side = box(page.kv("window-part", part="to"))
    page.drag(side["x"] + 3, side["y"] + 20, -wide / 20, 0)
    assert page.window[1] - page.window[0] < last - first - 80
    page.kv("range-clear").click()
    expect(page.kv("range")).to_be_hidden()


def test_the_map_is_zoomed_under_a_pointer_at_rest_and_by_the_wheel_with_ctrl_alone(page: MapPage) -> None:
    turn = """(view, how) => {
      const event = new WheelEvent("wheel", { bubbles: true, cancelable: true, deltaY: -120, clientX: 500, ...how });
      return view.dispatchEvent(event);
    }"""
    # with Shift there is nothing to move while all is seen
    assert [page.view.evaluate(turn, how) for how in ({}, {"shiftKey": True})] == [True, True]
    page.point(1500, 12)
    expect(page.tip).to_be_visible()
    before = page.tip.text_content()
    at, foot = page.x_of(1500.5), page.box["y"] + page.box["height"] - 12
    # when: four times twice as near, and drawn
    first, last = page.range
    page.view.focus()
    for _ in range(4):
        page.page.keyboard.press("+")
    page.wait_for_range((last - first) / 15)
    expect(page.tip).to_be_visible()
    after = page.tip.text_content() or ""
    assert after != before
    page.page.mouse.move(at, 1)
    expect(page.tip).to_be_hidden()
    page.page.mouse.move(at, foot)
    expect(page.tip).to_be_visible()
    expect(page.tip).to_have_text(after)
    near = page.range[1] - page.range[0]
    assert not page.view.evaluate(turn, {"ctrlKey": True})
    page.wait_for_range(near * 0.95)


def test_it_fills_the_height_it_is_given_and_gives_way_to_the_curve(page: MapPage) -> None:
    for width in (1500, 1100, 800):
        page.page.set_viewport_size({"width": width, "height": 900})
        for pane, least in ((300, 160), (200, 60), (110, 60)):
            page.root.locator(".kv-app").evaluate(f"(app) => app.style.setProperty('--kv-map', '{pane}px')")
            page.page.wait_for_timeout(60)
            assert page.box["height"] >= least and page.box["width"] > 0.5 * (width - 400)
    page.kv("open-map").click()
    expect(page.view).to_be_hidden()
    page.kv("open-map").click()
    expect(page.view).to_be_visible()


def test_moving_twenty_thousand_storages_of_thirty_layers_is_fast(show: Show, tmp_path: Path) -> None:
    convert(tmp_path / "model", "concat", write_tiny(tmp_path / "tiny.gguf", Tiny(layers=30)))
    graph = kvviz.load(tmp_path / "model" / "model.onnx")
    trace = kvviz.decode(graph, [5, 6, 7, 8, 9, 10, 11, 12], 30, progress=False)
    page = show(trace, kind=MapPage).open()
    assert int(page.view.get_attribute("data-drawn") or 0) == len(buffers(trace)) >= 20_000
    for script in (PAN, ZOOM):
        assert pace.cost_of(page.root, script, 120) < MOVE
