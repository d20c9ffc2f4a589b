"""How Sphinx builds the site. `build.py` copies the sources, the lessons and the gallery together and runs it."""

import html
import json
import re
from pathlib import Path
from typing import Any

project = "kvviz"
author = copyright = "the kvviz contributors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["README.md", "colab.ipynb", "gallery"]

# Docstrings are reStructuredText in numpydoc's form; a name in single quotes is a link where it is documented here.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True}
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_preprocess_types = False

# The lessons are shown as they were saved. Their widgets need a kernel, or scripts from the network: the picture that
# every widget has beside it is shown instead.
nb_execution_mode = "off"
nb_ipywidgets_js: dict[str, Any] = {}
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
# A short name in a docstring may mean several things, of which the first is taken.
suppress_warnings = ["mystnb.unknown_mime_type", "myst.header", "misc.highlighting_failure", "ref.python"]

html_theme = "furo"
html_title = "kvviz"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["extra"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "source_repository": "https://github.com/kvviz/kvviz/",
    "source_branch": "main",
    "source_directory": "assets/site/",
    "top_of_page_buttons": [],
}
pygments_style = "friendly"
pygments_dark_style = "github-dark"


def cards(folder: Path) -> str:
    """The gallery's pages as a list of links."""
    text = []
    for one in json.loads((folder / "gallery.json").read_text("utf-8")):
        facts = f"{one['steps']:,} steps · peak {one['peak'] / 1e6:.2f} MB · {one['size'] / 1e6:.1f} MB of HTML"
        found = "".join(f"<li>{html.escape(line)}</li>" for line in one["found"])
        pictures = "".join(
            f'<img class="only-{look}" src="gallery/{one["name"]}_{look}.svg" alt="" loading="lazy">'
            for look in ("light", "dark")
        )
        text.append(
            f'<a class="kv-card" href="gallery/{one["name"]}.html"><strong>{html.escape(one["title"])}</strong>'
            f"{pictures}<span>{html.escape(one['about'])}</span><ul>{found}</ul>"
            f"<small>{facts}</small></a>"
        )
    return f'<div class="kv-cards">{"".join(text)}</div>'


def _fill(app: Any, name: str, source: list[str]) -> None:
    if name == "gallery":
        source[0] = source[0].replace("GALLERY", cards(Path(app.srcdir) / "extra" / "gallery"))


def _listed(app: Any, kind: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Attributes that a docstring has as ``name``: what it is, line by line, as a list."""
    made: list[str] = []
    inside = False
    for line in lines:
        begins = re.match(r"``[^`]+``(, ``[^`]+``)*: ", line)
        if begins and not inside:
            made.append("")
        made.append(f"* {line}" if begins else f"  {line.strip()}" if inside and line.startswith("  ") else line)
        if not begins and inside and not line.startswith("  "):
            made.insert(-1, "")
            inside = False
        inside = inside or bool(begins)
    lines[:] = made


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _listed)
    app.connect("source-read", _fill)
