"""A hand that uses the page and counts what it does."""

from __future__ import annotations

from playwright.sync_api import Locator, Page

from tests.ui.filepage import Shown


class Hand(Shown):
    """Clicks, choices and keys on one debugger; what is typed into a field and sent counts once.

    Attributes
    ----------
    clicks
        How many so far.
    """

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
