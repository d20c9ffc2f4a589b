"""Hosts other than JupyterLab: the look that fits theirs, readable, and untouched by what they do to articles."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import kvviz
from kvviz.view.export import to_html
from kvviz.view.page_modules import bundled
from tests.test_models import graph_of
from tests.ui.conftest import Show
from tests.ui.filepage import FilePage, box

# As ipywidgets brings them along into hosts that are not JupyterLab: always those of the light theme.
JUPYTER_LIGHT = """:root { --jp-layout-color0: white; --jp-layout-color1: white;
 --jp-ui-font-color1: rgba(0, 0, 0, .87); --jp-border-color2: #e0e0e0; --jp-ui-font-family: Arial, sans-serif; }"""
JUPYTER_DARK = JUPYTER_LIGHT.replace("white", "#111").replace("rgba(0, 0, 0, .87)", "rgba(255, 255, 255, .87)")

# What the sheets of furo, sphinx_rtd_theme and pydata (sphinx-book-theme) do to what may lie inside an article.
ARTICLE = """
*, *::before, *::after { border-width: 0; border-style: solid; }
h3, h4 { margin: 0.5rem -0.5rem 24px; padding: 0 0.5rem; border-radius: 0.5rem;
 font: 700 125%/1.25 "Roboto Slab", serif; }
article h3 { color: #2980b9; text-transform: uppercase; }
p { line-height: 24px; font-size: 16px; margin: 0 0 24px; max-width: 40em; }
button, input { font: inherit; appearance: none; box-shadow: inset 0 1px 3px #ddd; transition: border 0.3s linear; }
input[type="text"] { padding: 6px; border: 1px solid #ccc; }
label { display: block; margin: 0 0.3125em; }
table { border-collapse: collapse; display: block; margin-bottom: 24px; caption-side: bottom; }
svg { vertical-align: middle; max-width: 100%; display: block; }
code { font-size: 75%; white-space: nowrap; max-width: 100%; background: #fff;
 border: 1px solid #e1e4e5; padding: 2px 5px; color: #e74c3c; }
.rst-content section ul li { list-style: disc; margin-left: 24px; }
.rst-content section ul li > p { margin-top: 12px; }
.rst-content table td, .rst-content table th { vertical-align: top; padding: 8px 16px; border: 1px solid #e1e4e5; }
.rst-content tr:nth-child(2n - 1) td { background: #f3f6f6; }
html.writer .rst-content dl[class]:not(.a):not(.b):not(.c):not(.d):not(.e):not(.f) > dt { display: table; margin: 6px 0;
 font-size: 90%; background: #e7f2fa; color: #2980b9; border-top: 3px solid #6ab0de; padding: 6px; }
.rst-content { letter-spacing: 0.05em; overflow-wrap: break-word; text-align: justify; scrollbar-width: thin; }
"""


@dataclass(frozen=True, slots=True)
class Host:
    """A page around the widget: attributes of two elements, its rules, and whether the widget is in a shadow root."""

    html: str = ""
    body: str = ""
    sheet: str = ""
    shadow: bool = False


def painted(background: str, ink: str, more: str = "") -> str:
    return f"body {{ background: {background}; color: {ink}; }} {more}"


DARK: dict[str, Host] = {
    "jupyterlab": Host(body='data-jp-theme-light="false"', sheet=painted("#111", "#ddd", JUPYTER_DARK)),
    "vscode": Host(
        'style="--vscode-editor-background: #002b36; --vscode-editor-foreground: #93a1a1"',
        'class="vscode-dark" data-vscode-theme-kind="vscode-dark"',
        JUPYTER_LIGHT,  # the output itself is transparent
    ),
    "marimo": Host(
        body='class="dark dark-theme" data-theme="dark"', sheet=painted("#181c1a", "#eee", JUPYTER_LIGHT), shadow=True
    ),
    "book": Host('data-theme="dark" data-mode="dark"', sheet=painted("#121212", "#ced6dd")),
    "colab": Host('theme="dark"'),
    "unmarked": Host(sheet=painted("transparent", "#ccc", "html { background: oklch(0.2 0 0) }")),
    "unmarked_in_a_shadow_root": Host(sheet=painted("rgb(20 20 20 / 90%)", "#ccc"), shadow=True),
    "scheme": Host(sheet=":root { color-scheme: dark }"),
    "class_names_of_rules": Host('class="light:bg-white"', 'class="highlight no-light"', painted("#222", "#ddd")),
}
LIGHT: dict[str, Host] = {
    "jupyterlab": Host(body='data-jp-theme-light="true"', sheet=painted("#fff", "#222", JUPYTER_LIGHT)),
    "vscode": Host(
        'style="--vscode-editor-background: #fdf6e3; --vscode-editor-foreground: #333"',
        'class="vscode-light" data-vscode-theme-kind="vscode-light"',
    ),
    "marimo": Host(body='class="light light-theme" data-theme="light"', sheet=JUPYTER_LIGHT, shadow=True),
    "unmarked": Host(),
    "class_names_of_rules": Host(body='class="bg-white dark:bg-black"', sheet=painted("#fff", "#000")),
}
SPHINX = Host('class="writer"', sheet=painted("#fcfcfc", "#404040", ARTICLE))

_SHADOW = """<script>
window.place = () => {
  const inside = document.getElementById("host").attachShadow({ mode: "open" });
  const sheet = document.createElement("style");
  sheet.textContent = document.getElementById("sheet").textContent;
  const place = document.createElement("div");
  inside.append(sheet, place);
  return place;
};
</script>"""


def page(file: str, host: Host) -> str:
    """The debugger's own file as a page of this host: what the file says about the page is gone."""
    own = file[file.index("<style>") + 7 : file.index("</style>")]
    sheet = bundled("kvviz.css").decode()
    inert = '<script type="text/plain" id="kvviz-style"></script>'
    file = file.replace('<style id="kvviz-style"></style>', inert)
    text = file.replace(own, "").replace('<html lang="en">', f"<html {host.html}>")
    place = '<div id="kvviz" style="width: 1100px"></div>'
    if host.shadow:
        styles = f'<script type="text/plain" id="sheet">{sheet}</script>{_SHADOW}'
        text = text.replace('document.getElementById("kvviz")', "place()")
        place = '<div style="width: 1100px"><x-widget id="host" style="display: block"></x-widget></div>'
    else:
        styles = f"<style>{sheet}</style>"
    article = f'<div class="rst-content"><article><section>{place}</section></article></div>'
    text = re.sub(r'<div id="kvviz"></div>', lambda _: article, text)
    # anywidget adds its sheet when the page is there: before or after the host's, here before
    return text.replace("</head>", f"{styles}<style>{host.sheet}</style></head>").replace(
        "<body>", f"<body {host.body}>"
    )


def bare(host: Host) -> Host:
    return replace(host, sheet="")


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
    return to_html(kvviz.decode(graph_of("o01_optimum_llama"), [5, 17, 33], 2, progress=False))


@pytest.fixture
def opened(show: Show, tmp_path: Path) -> Show:
    def one(text: str, prefers: str = "light") -> Any:
        (tmp_path / "page.html").write_text(text, "utf-8")
        return show(tmp_path / "page.html", color_scheme=prefers)

    return one


def check_look(shown: FilePage, theme: str) -> None:
    expect(shown.root).to_have_attribute("data-theme", theme)
    contrasts = shown.root.evaluate(CONTRAST)
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
    opened: Show, file: str, name: str
) -> None:
    shown = opened(page(file, DARK[name]), prefers="light")
    check_look(shown, "dark")
    if name in OF_DARK:
        color = shown.root.locator(".kv-app").first.evaluate("(app) => getComputedStyle(app).backgroundColor")
        assert (shown.root.get_attribute("data-host"), color) == OF_DARK[name]
    if name in TO_LIGHT:
        shown.page.evaluate(TO_LIGHT[name])
        expect(shown.root).to_have_attribute("data-theme", "light")


@pytest.mark.parametrize("name", LIGHT)
def test_a_light_host_gets_the_light_look_whatever_the_system_prefers(opened: Show, file: str, name: str) -> None:
    check_look(opened(page(file, LIGHT[name]), prefers="dark"), "light")


def test_a_look_that_was_asked_for_stands_in_any_host(opened: Show, file: str) -> None:
    asked = page(file, DARK["vscode"]).replace('id="kvviz-state">{', 'id="kvviz-state">{"theme": "light", ')
    check_look(opened(asked), "light")


def test_rules_for_articles_do_not_reach_into_the_widget(opened: Show, file: str) -> None:
    looks = []
    for host in (bare(SPHINX), SPHINX):
        shown = opened(page(file, host))
        shown.root.locator('[role="tab"][data-id="steps"]').click()
        expect(shown.root.locator(".kv-steps td").first).to_be_visible()  # the table of the steps is drawn last
        looks.append(json.loads(shown.root.evaluate(LOOKS)))
    plain, sphinx = looks
    assert len(plain) == len(sphinx) > 400
    assert {(a[0], *set(a) ^ set(b)) for a, b in zip(plain, sphinx) if a != b} == set()


def test_a_breakpoint_that_cannot_be_used_says_so_where_it_stands(opened: Show, file: str) -> None:
    said = "the condition 'open(1)' cannot be read: there is no function 'open' here"
    bad = {"kind": "condition", "value": "open(1)", "enabled": True, "error": said}
    good = {"kind": "op", "value": "MatMul", "enabled": True}
    kept = f'id="kvviz-state">{{"breakpoints": {json.dumps([bad, good])}, '
    shown = opened(file.replace('id="kvviz-state">{', kept))
    shown.kv("breakpoints").click()
    rows = shown.kv("breakpoint")
    expect(rows).to_have_count(2)
    expect(rows.first.get_by_role("alert")).to_have_text(said)
    expect(rows.last.get_by_role("alert")).to_have_count(0)
    name = box(rows.first.locator("label"))
    assert box(rows.first.get_by_role("alert"))["y"] >= name["y"] + name["height"] - 1
