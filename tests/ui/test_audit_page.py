"""The page of an audit: it sorts, searches, and opens the page of a model."""

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.audit.small_models import chain
from tests.audit.test_audit import quick


def test_the_table_sorts_and_searches_and_a_click_opens_the_model(browser: Browser, tmp_path: Path) -> None:
    for name, width in (("middle", 64), ("large", 1024), ("small", 8)):
        chain(tmp_path / "models" / f"{name}.onnx", width=width)
    (tmp_path / "models" / "broken.onnx").write_bytes(b"no model")
    quick(tmp_path / "models", tmp_path, policies=["ideal"], save=tmp_path / "saved")
    page = browser.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((tmp_path / "saved" / "index.html").as_uri())
    first = page.locator("tbody tr td:first-child")
    peak = page.get_by_role("button", name="peak")
    peak.click()
    expect(first).to_have_text(["large.onnx", "middle.onnx", "small.onnx", "broken.onnx"], timeout=5000)
    peak.click()
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("peak")
    expect(page.locator("tbody tr:has(svg) td:first-child")).to_have_text(["small.onnx", "middle.onnx", "large.onnx"])
    page.get_by_role("searchbox").fill("LARGE ideal")
    expect(page.locator("tbody tr:visible")).to_have_count(1)
    page.locator("tbody tr:visible a").click()
    expect(page.locator(".kvviz").first).to_be_visible()
    assert complaints == []
    page.close()
