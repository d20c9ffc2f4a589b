"""Driving the cache view of a page."""

import re

from playwright.sync_api import Page, expect

from tests.ui.filepage import Shown

LEFT, PITCH = 46, 18  # px of the cells in the heat map; a pitch for up to four heads
SLIDE = """(slider, run) => {
  slider.value = String(run);
  slider.dispatchEvent(new Event("input", { bubbles: true }));
}"""


class CachePage(Shown):
    def __init__(self, page: Page, number: int = 0) -> None:
        super().__init__(page, number)
        self.root.scroll_into_view_if_needed()
        expect(self.kv("sentence").first).to_be_visible()

    def open(self) -> None:
        tab = self.kv("tab", id="caches")
        if tab.get_attribute("aria-selected") != "true":
            tab.click()
        # comes from a kernel that may be busy
        expect(self.kv("cache-view")).to_be_visible(timeout=30_000)

    def to_run(self, run: int) -> None:
        self.kv("decode-slider").evaluate(SLIDE, run)
        label = self.root.locator(".kv-run")
        expect(label).to_contain_text(f"· run {run + 1} of ")
        # the view of rows is drawn later than what is small
        told = re.escape(label.inner_text().partition(" · ")[0])
        expect(self.kv("cache-view").locator("header .kv-hint").first).to_have_text(
            re.compile(rf"(after|in) {told}(:|$)")
        )

    def point(self, row: int, rows: int, head: int = 0) -> str:
        wide = self.kv("heat").evaluate("(canvas) => canvas.clientWidth") - LEFT - 2
        top = int(self.kv("heat").get_attribute("data-top") or 0)
        self.kv("heat").hover(position={"x": LEFT + (row + 0.5) / rows * wide, "y": top + (head + 0.5) * PITCH})
        expect(self.kv("cache-tip")).to_contain_text(f"position {row}, head {head}:")
        return self.kv("cache-tip").inner_text()
