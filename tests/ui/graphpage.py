"""The graph pane of a page that is one debugger, driven by pointer and keys."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Locator, Page, expect


class GraphPage:
    """Drive the graph of a page that is one debugger."""

    def __init__(self, page: Page, file: Path) -> None:
        self.page = page
        page.goto(file.as_uri())
        self.root = page.locator(".kvviz").first
        self.stage = self.kv("graph-stage")
        expect(self.kv("graph-canvas")).to_be_visible()

    def kv(self, name: str) -> Locator:
        return self.root.locator(f'[data-kv="{name}"]')

    def goto(self, step: int) -> None:
        self.kv("goto").fill(str(step))
        self.kv("goto").press("Enter")
        expect(self.root).to_have_attribute("data-step", str(step))

    def node(self, node: int) -> Locator:
        return self.root.locator(f'[data-kv="graph-node"][data-node="{node}"]')

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

    def seen(self) -> list[Locator]:
        """Ops that are drawn as a whole, once the picture has come to rest."""
        self.page.wait_for_timeout(300)
        frame = self.stage.bounding_box()
        assert frame
        found = []
        for node in self.kv("graph-node").all():
            box = node.bounding_box()
            if not box or not box["width"]:
                continue
            down = box["y"] - frame["y"]
            if 40 < down < frame["height"] - 40 and 8 < box["x"] - frame["x"] < frame["width"] - 90 - box["width"]:
                found.append(node)
        return found

    def heads(self) -> list[str]:
        heads = self.root.locator('[data-kv="card"], [data-kv="block"]')
        return [head.get_attribute("aria-label") or "" for head in heads.all()]

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
