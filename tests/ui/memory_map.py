"""The memory map of a page that was exported to a file."""

from __future__ import annotations

import re
from typing import NamedTuple

from playwright.sync_api import Locator

from tests.ui.filepage import FilePage

READY = '[data-kv="memory-map"][data-drawn]'


class Box(NamedTuple):
    """Where something is on the page, in px."""

    x: float
    y: float
    width: float
    height: float


def number(text: str) -> int:
    """The first number in a text."""
    found = re.search(r"\d[\d,]*", text)
    assert found, text
    return int(found.group().replace(",", ""))


class MapPage(FilePage):
    """Drive the map, which is opened as a user does it."""

    def open(self) -> MapPage:
        self.kv("open-map").click()
        self.page.locator(READY).wait_for()
        return self

    @property
    def view(self) -> Locator:
        return self.kv("memory-map")

    @property
    def tip(self) -> Locator:
        return self.root.locator(".kv-map-tip")

    @property
    def box(self) -> Box:
        found = self.view.bounding_box()
        assert found
        return Box(**found)

    @property
    def range(self) -> tuple[float, float]:
        """Steps from the left end to the right."""
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
        return self.box.x + (step - first) / (last - first) * self.box.width

    def point(self, step: float, height: float) -> None:
        """Point at the middle of a step, so many px above the foot of the map, once the map stands still."""
        self.view.hover(trial=True)
        self.page.mouse.move(self.x_of(step + 0.5), self.box.y + self.box.height - height)

    def brush(self, first: float, last: float) -> None:
        """Drag over steps."""
        mouse, y = self.page.mouse, self.box.y + self.box.height / 2
        mouse.move(self.x_of(first), y)
        mouse.down()
        mouse.move(self.x_of((first + last) / 2), y + 9)
        mouse.move(self.x_of(last), y)
        mouse.up()
