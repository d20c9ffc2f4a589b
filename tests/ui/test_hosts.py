"""Hosts other than JupyterLab: the look that fits theirs, readable, and untouched by what they do to articles."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

import kvviz
from kvviz.view.export import to_html
from tests.ui.hosts import DARK, LIGHT, SPHINX, bare, page

pytestmark = pytest.mark.ui

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"

# Relative luminance and contrast as WCAG 2 has them, of the text and of what it stands on.
CONTRAST = """(root) => {
  const brush = new OffscreenCanvas(1, 1).getContext("2d");
  const light = (color, below) => {
    for (const fill of [below ?? "#808080", color]) { brush.fillStyle = fill; brush.fillRect(0, 0, 1, 1); }
    const [r, g, b] = [...brush.getImageData(0, 0, 1, 1).data].map((v) => v / 255)
      .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const pane = getComputedStyle(root.querySelector(".kv-app")).backgroundColor;
  return [root, ...root.querySelectorAll("h3")].map((node) => {
    const [a, b] = [light(getComputedStyle(node).color, pane), light(pane)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  });
}"""
# How every element looks, but for what the engine counts in pixels of the layout; a text comes over faster than lists.
LOOKS = """(root) => JSON.stringify([root, ...root.querySelectorAll("*")].map((node) => {
  const skip = /^(--|text-size-adjust|-webkit-(tap|font)|((inline|block)-size|width|height)$|\\w+-origin)/;
  const style = getComputedStyle(node);
  const kept = [...style].filter((name) => !skip.test(name)).map((name) => `${name}: ${style.getPropertyValue(name)}`);
  return [`${node.tagName}.${node.getAttribute("class")}`, ...kept];
}))"""


@pytest.fixture(scope="module")
def file() -> str:
    graph = kvviz.load(MODELS / "o01_optimum_llama" / "model.onnx")
    return to_html(kvviz.decode(graph, [5, 17, 33], 2, progress=False))


Show = Callable[..., Page]


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Show]:
    with ExitStack() as pages:

        def one(text: str, prefers: Any = "light") -> Page:
            shown = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme=prefers)
            pages.callback(shown.close)
            (tmp_path / "page.html").write_text(text, "utf-8")
            shown.goto((tmp_path / "page.html").as_uri())
            expect(shown.locator(".kvviz .kv-app")).to_be_visible()
            return shown

        yield one


def check_look(shown: Page, theme: str) -> None:
    root = shown.locator(".kvviz")
    expect(root).to_have_attribute("data-theme", theme)
    contrasts = root.evaluate(CONTRAST)
    assert contrasts[0] > 7 and min(contrasts) > 4.5


# How hosts that can change their theme say that it is light now.
TO_LIGHT = {
    "vscode": "document.body.setAttribute('data-vscode-theme-kind', 'vscode-light')",
    "marimo": "document.body.className = 'light light-theme', document.body.dataset.theme = 'light'",
    "jupyterlab": "document.body.dataset.jpThemeLight = 'true'",
    "book": "document.documentElement.dataset.theme = 'light'",
    "unmarked": "document.documentElement.style.background = 'white'",
}


# Whose colours are used, and the pane's: marimo has Jupyter's variables, but not those of its own theme.
OF_DARK = {
    "jupyterlab": ("notebook", "rgb(17, 17, 17)"),
    "vscode": ("vscode", "rgb(0, 43, 54)"),
    "marimo": ("page", "rgb(29, 35, 43)"),
}


@pytest.mark.parametrize("name", DARK)
def test_a_dark_host_gets_the_dark_look_whatever_the_system_prefers_until_it_changes_its_theme(
    show: Show, file: str, name: str
) -> None:
    shown = show(page(file, DARK[name]), prefers="light")
    check_look(shown, "dark")
    root = shown.locator(".kvviz")
    if name in OF_DARK:
        color = root.locator(".kv-app").first.evaluate("(app) => getComputedStyle(app).backgroundColor")
        assert (root.get_attribute("data-host"), color) == OF_DARK[name]
    if name in TO_LIGHT:
        shown.evaluate(TO_LIGHT[name])
        expect(root).to_have_attribute("data-theme", "light")


@pytest.mark.parametrize("name", LIGHT)
def test_a_light_host_gets_the_light_look_whatever_the_system_prefers(show: Show, file: str, name: str) -> None:
    check_look(show(page(file, LIGHT[name]), prefers="dark"), "light")


def test_a_look_that_was_asked_for_stands_in_any_host(show: Show, file: str) -> None:
    asked = page(file, DARK["vscode"]).replace('id="kvviz-state">{', 'id="kvviz-state">{"theme": "light", ')
    check_look(show(asked), "light")


def test_rules_for_articles_do_not_reach_into_the_widget(show: Show, file: str) -> None:
    # given a page with the rules of Sphinx themes, and one without any
    looks = []
    for host in (bare(SPHINX), SPHINX):
        shown = show(page(file, host))
        shown.locator('[role="tab"][data-id="steps"]').click()
        expect(shown.locator(".kv-steps td").first).to_be_visible()  # the table of the steps is drawn last
        looks.append(json.loads(shown.locator(".kvviz").evaluate(LOOKS)))
    plain, sphinx = looks
    # then all elements look the same
    assert len(plain) == len(sphinx) > 400
    assert {(a[0], *set(a) ^ set(b)) for a, b in zip(plain, sphinx) if a != b} == set()


def test_a_breakpoint_that_cannot_be_used_says_so_where_it_stands(show: Show, file: str) -> None:
    # given what the kernel made of two breakpoints
    said = "the condition 'open(1)' cannot be read: there is no function 'open' here"
    bad = {"kind": "condition", "value": "open(1)", "enabled": True, "error": said}
    good = {"kind": "op", "value": "MatMul", "enabled": True}
    kept = f'id="kvviz-state">{{"breakpoints": {json.dumps([bad, good])}, '
    shown = show(file.replace('id="kvviz-state">{', kept))
    # when the menu is opened
    shown.locator("[data-kv=breakpoints]").click()
    # then one of them has its error below it
    rows = shown.locator("[data-kv=breakpoint]")
    expect(rows).to_have_count(2)
    expect(rows.first.get_by_role("alert")).to_have_text(said)
    expect(rows.last.get_by_role("alert")).to_have_count(0)
    box, name = rows.first.get_by_role("alert").bounding_box(), rows.first.locator("label").bounding_box()
    assert box is not None and name is not None
    assert box["y"] >= name["y"] + name["height"] - 1
