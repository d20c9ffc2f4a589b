"""The graph pane of a page that is one debugger, driven by pointer and keys."""

from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, FloatRect, Locator, expect

from tests.ui.filepage import FilePage, box

# Of all ops in one call, since a call for each takes seconds in all: number, and place unless it is hidden.
PLACES = """(nodes) => nodes.map((node) => {
  const { x, y, width, height } = node.getBoundingClientRect();
  const drawn = width && height && node.checkVisibility({ visibilityProperty: true });
  return [node.dataset.node, drawn ? { x, y, width, height } : null];
})"""


class GraphPage(FilePage):
    def __init__(self, browser: Browser, file: Path, address: str = "", **options: Any) -> None:
        super().__init__(browser, file, address, **options)
        self.stage = self.kv("graph-stage")
        expect(self.kv("graph-canvas")).to_be_visible()

    @property
    def running(self) -> Locator:
        return self.root.locator('[data-kv="graph-node"][data-state="running"]')

    def click(self, at: Locator, *, double: bool = False) -> None:
        """Click the canvas where an element that nobody sees says that something is drawn."""
        expect(at).to_be_visible()
        place = box(at)
        click = self.page.mouse.dblclick if double else self.page.mouse.click
        click(place["x"] + place["width"] / 2, place["y"] + min(place["height"] / 2, 14))

    def places(self) -> list[tuple[str, FloatRect | None]]:
        """Number and place of each op, without a place where nobody can see it."""
        found: list[tuple[str, FloatRect | None]] = self.kv("graph-node").evaluate_all(PLACES)
        return found

    def visible(self) -> dict[str, FloatRect]:
        return {node: place for node, place in self.places() if place}

    def seen(self) -> list[Locator]:
        """Ops that are drawn as a whole, once the picture has come to rest."""
        self.page.wait_for_timeout(300)
        frame = box(self.stage)
        found = []
        for number, (_, place) in enumerate(self.places()):
            if not place:
                continue
            right, down = place["x"] - frame["x"], place["y"] - frame["y"]
            if 40 < down < frame["height"] - 40 and 8 < right < frame["width"] - 90 - place["width"]:
                found.append(self.kv("graph-node").nth(number))
        return found

    def heads(self) -> list[str]:
        labels = "(all) => all.map((one) => one.ariaLabel ?? '')"
        return [label for kind in ("card", "block") for label in self.kv(kind).evaluate_all(labels)]

    def pixel(self, node: Locator) -> list[int]:
        """Colour of the canvas inside the left edge of a node's box."""
        found: list[int] = node.evaluate(
            """(node) => {
              const canvas = node.closest(".kv-stage").querySelector("canvas");
              const [a, b] = [node, canvas].map((one) => one.getBoundingClientRect());
              const k = canvas.width / b.width;
              const [x, y] = [(a.left - b.left + 4) * k, (a.top - b.top + a.height / 2) * k];
              return Array.from(canvas.getContext("2d").getImageData(x, y, 1, 1).data);
            }"""
        )
        return found
