"""A debugger in a page, and a page of its own that is opened from a file: what it does is watched as a notebook is."""

from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, FloatRect, Locator, Page, expect


def box(part: Locator) -> FloatRect:
    """Where something that is shown lies on the page, in px."""
    found = part.bounding_box()
    assert found
    return found


class Shown:
    """One debugger of a page: its parts by their hooks, and its cursor."""

    def __init__(self, page: Page, number: int = 0) -> None:
        self.page = page
        self.root = page.locator(".kvviz").nth(number)

    def kv(self, name: str, **which: object) -> Locator:
        """The parts that carry ``data-kv="name"``, and other data as ``which`` says."""
        more = "".join(f'[data-{key}="{value}"]' for key, value in which.items())
        return self.root.locator(f'[data-kv="{name}"]{more}')

    @property
    def step(self) -> int:
        return int(self.root.get_attribute("data-step") or "-1")

    def expect_step(self, number: int) -> None:
        expect(self.root).to_have_attribute("data-step", str(number))

    def drag(self, x: float, y: float, right: float, down: float) -> None:
        """Press at a place, and let go so many px away."""
        mouse = self.page.mouse
        mouse.move(x, y)
        mouse.down()
        mouse.move(x + right, y + down, steps=4)
        mouse.up()

    def goto(self, number: int) -> None:
        self.kv("goto").fill(str(number))
        self.kv("goto").press("Enter")
        self.expect_step(number)


class FilePage(Shown):
    """The debugger in an exported file; its console must stay free of errors."""

    def __init__(self, browser: Browser, file: Path, address: str = "", **options: Any) -> None:
        size: Any = {"width": options.pop("width", 1400), "height": options.pop("height", 900)}
        self._context = browser.new_context(viewport=size, accept_downloads=True, **options)
        self._context.set_default_timeout(20_000)
        self.complaints: list[str] = []
        super().__init__(self._context.new_page())
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type == "error" else None)
        self.page.goto(file.as_uri() + address)
        expect(self.kv("sentence")).to_be_visible()

    def drag_timeline(self, start: float, end: float) -> None:
        """Choose a range of the timeline, in shares of its width."""
        plot = box(self.kv("timeline"))
        self.page.keyboard.down("Shift")
        self.drag(plot["x"] + start * plot["width"], plot["y"] + plot["height"] / 2, (end - start) * plot["width"], 0)
        self.page.keyboard.up("Shift")

    def focused(self) -> str:
        """The hook of what has the focus, or its class, or its tag."""
        told: str = self.page.evaluate(
            "() => { const n = document.activeElement; return n.dataset.kv ?? (n.className || n.tagName) }"
        )
        return told

    def copied(self) -> str:
        text: str = self.page.evaluate("() => navigator.clipboard.readText()")
        return text

    def close(self) -> None:
        self._context.close()
        assert self.complaints == []


class Hand(Shown):
    """Clicks, choices and keys on one debugger, counted; what is typed into a field and sent counts once."""

    def __init__(self, page: Page) -> None:
        super().__init__(page)
        self.clicks = 0
        self.inspector = self.root.locator(".kv-this")

    def click(self, what: Locator) -> None:
        what.click()
        self.clicks += 1

    def choose(self, what: Locator, option: str) -> None:
        what.select_option(option)
        self.clicks += 1

    def ask(self, query: str) -> None:
        """Write a query and press Enter, which goes to the next step that it finds."""
        field = self.root.locator('.kv-bar [data-kv="query"]')
        field.fill(query)
        field.press("Enter")
        self.clicks += 1
