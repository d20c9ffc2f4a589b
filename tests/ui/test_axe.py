"""axe-core looks at every pane in light and dark: no serious fault, contrast of text at least 4.5."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

import kvviz
from tests.ui.conftest import Show

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "assets" / "widget" / "node_modules" / "axe-core" / "axe.min.js"
# What is wrong, with the elements; `color-contrast` is that of WCAG AA: 4.5 for text of usual size.
RUN = """async (root) => {
  const found = await axe.run(root, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"] });
  const bad = found.violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  return bad.flatMap(({ id, nodes }) =>
    nodes.slice(0, 6).map(({ html, failureSummary: why }) =>
      `${id}: ${html.slice(0, 160)}\\n    ${why.replace(/\\s+/g, " ").slice(0, 300)}`));
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_list_no_selection_and_nothing_that_opens_has_a_serious_fault(
    show: Show, story: kvviz.Trace, theme: str
) -> None:
    assert AXE.exists(), "axe-core is not here: run `npm ci --ignore-scripts` in assets/widget"
    page = show(story, "#step=0", color_scheme=theme)
    expect(page.root).to_have_attribute("data-theme", theme)
    page.page.add_script_tag(content=AXE.read_text("utf-8"))
    found: list[str] = []

    def look(place: str) -> None:
        found.extend(f"{place}: {fault}" for fault in page.root.evaluate(RUN))

    for toggle in ("help", "breakpoints", "share"):
        page.kv(toggle).first.click()
        expect(page.root.locator(".kv-pop:not([hidden])")).to_be_visible()
        look(toggle)
        page.page.keyboard.press("Escape")
        expect(page.root.locator(".kv-pop:not([hidden])")).to_have_count(0)
    for tab in page.root.locator('[data-kv="tab"]:not([hidden])').all():
        tab.click()
        expect(tab).to_have_attribute("aria-selected", "true")
        page.page.wait_for_timeout(400)  # what is loaded when it is first looked at, and what settles later
        look(tab.inner_text())
    # an op that was missed, one in place, a view, a buffer, a value, a cache
    for address in ("step=700", "step=619", "step=3", "sel=B345", "sel=logits", "sel=0.key"):
        page.page.evaluate("(hash) => { location.hash = hash }", address)
        page.page.wait_for_timeout(300)
        look(address)
    assert not found, "\n".join(dict.fromkeys(found))
