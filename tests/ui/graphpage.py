"""The graph pane of a page that is one debugger, driven by pointer and keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, FloatRect, Locator, expect

from tests.ui.filepage import FilePage

# Of all ops in one call, since a call for each takes seconds in all: number, and place unless it is hidden.
PLACES = """(nodes) => nodes.map((node) => {
  const { x, y, width, height } = node.getBoundingClientRect();
  const drawn = width && height && node.checkVisibility({ visibilityProperty: true });
  return [node.dataset.node, drawn ? { x, y, width, height } : null];
})"""


class GraphPage(FilePage):
    """Drive the graph of a page that is one debugger."""

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
        box = at.bounding_box()
        assert box
        click = self.page.mouse.dblclick if double else self.page.mouse.click
        click(box["x"] + box["width"] / 2, box["y"] + min(box["height"] / 2, 14))

    def places(self) -> list[tuple[str, FloatRect | None]]:
        """Number and place of each op, without a place where nobody can see it."""
        found: list[tuple[str, FloatRect | None]] = self.kv("graph-node").evaluate_all(PLACES)
        return found

    def visible(self) -> dict[str, FloatRect]:
        """Places of the ops that are drawn, by number."""
        return {node: box for node, box in self.places() if box}

    def seen(self) -> list[Locator]:
        """Ops that are drawn as a whole, once the picture has come to rest."""
        self.page.wait_for_timeout(300)
        frame = self.stage.bounding_box()
        assert frame
        found = []
        for number, (_, box) in enumerate(self.places()):
            if not box:
                continue
            down = box["y"] - frame["y"]
            if 40 < down < frame["height"] - 40 and 8 < box["x"] - frame["x"] < frame["width"] - 90 - box["width"]:
                found.append(self.kv("graph-node").nth(number))
        return found

    def heads(self) -> list[str]:
        """What cards and blocks are called."""
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
