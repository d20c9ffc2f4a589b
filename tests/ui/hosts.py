"""Small static pages that imitate hosts of the widget: their marks, their variables, and their rules for articles."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from kvviz.view.page_modules import bundled

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
    """A page around the widget.

    Attributes
    ----------
    html, body : str
        Attributes of these elements.
    sheet : str
        The host's rules.
    shadow : bool
        Whether the widget lies in a shadow root, with its sheet beside it.
    """

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
    """The same host without rules."""
    return replace(host, sheet="")
