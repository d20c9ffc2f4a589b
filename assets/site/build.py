"""Build the site: ``python assets/site/build.py FOLDER``. `make site` does this, with ``build/site``.

The sources here, the lessons, the gallery and the reference are put together in a folder beside the result, and Sphinx
makes HTML of them. Warnings are errors. Then every page is read again: see `check`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import gallery
import reference

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
REPOSITORY = "https://github.com/kvviz/kvviz/blob/main"
LARGEST = 30_000_000
WIDGET = "application/vnd.jupyter.widget-view+json"
FORMULAS = (
    (r"\\mathrm\{(\w+)\}", r"\1"),
    (r"\\sqrt\{(\w+)\}", r"√\1"),
    (r"\\frac\{(.+?)\}\{(.+?)\}", r"\1 / \2"),
    (r"\\(left|right)\b", ""),
    (r"\\bmod\b", "mod"),
    (r"\\min\b", "min"),
    (r"\\ge\b", "≥"),
    (r"\^T\b", "ᵀ"),
)


class Page(HTMLParser):
    """Links, anchors, and what a page loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "prefetch", "preconnect"):
            self.loads.append(given.get("href", ""))
        elif tag in ("script", "img", "iframe", "source", "video", "audio") and "src" in given:
            self.loads.append(given["src"])


def stage(folder: Path) -> None:
    """Copy the sources together: the pages, the lessons with links that lead to the site, pictures, the changes."""
    shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__", "README.md", "colab.ipynb"))
    shutil.copy(HERE / "conf.py", folder)
    shutil.copytree(ROOT / "assets" / "images", folder / "images")
    (folder / "lessons").mkdir()
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        (folder / "lessons" / notebook.name).write_text(
            json.dumps(lesson(json.loads(notebook.read_text("utf-8")))), "utf-8"
        )
    shutil.copy(ROOT / "notebooks" / "handout.html", folder / "lessons")
    for source, target in ((ROOT / "notebooks" / "README.md", "lessons/teachers.md"),
                           (ROOT / "notebooks" / "teacher.md", "lessons/teacher.md"),
                           (ROOT / ".github" / "CHANGELOG.md", "changes.md")):  # fmt: skip
        place = source.parent.relative_to(ROOT).as_posix()
        text = source.read_text("utf-8").replace("](README.md", "](teachers.md")
        (folder / target).write_text(outward(text, place), "utf-8")


def lesson(notebook: dict[str, Any]) -> dict[str, Any]:
    """A notebook as a page: links that lead to the site, formulas as text, and no widgets, which need a kernel."""
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            text = outward(text.replace("](README.md", "](teachers.md"), "notebooks")
            cell["source"] = re.sub(r"(\$\$?)(.+?)\1", lambda found: f"*{formula(found[2])}*", text)
        else:
            cell["outputs"] = [one for one in cell["outputs"] if WIDGET not in one.get("data", {})]
    return notebook


def formula(text: str) -> str:
    """A short formula without TeX, which needs a script. Raises `ValueError`: if it is not short."""
    for tex, plain in FORMULAS:
        text = re.sub(tex, plain, text)
    if "\\" in text:
        raise ValueError(f"add the commands of {text} to FORMULAS")
    return text


def outward(text: str, place: str) -> str:
    """A text of the repository, with the links that lead out of its folder as addresses of the repository."""

    def full(link: re.Match[str]) -> str:
        path = (Path("/") / place / link[1]).resolve().relative_to("/").as_posix()
        return f"]({REPOSITORY}/{path})"

    return re.sub(r"\]\((\.\./[^)\s\"]+)\)", full, text)


def check(site: Path) -> list[str]:
    """What is wrong with the pages: links to what is not there, what is loaded from the network, and the size."""
    files = {path for path in site.rglob("*") if path.is_file()}
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(files) if path.suffix == ".html"}
    wrong = []
    for path, page in pages.items():
        for link in page.loads + page.links:
            address, anchor = urldefrag(re.sub(r"\?v=\w+$", "", link))
            name = path.relative_to(site)
            if re.match(r"(https?:)?//", address):
                wrong += [f"{name} loads {address}"] if link in page.loads else []
                continue
            if re.match(r"[a-z]+:", address):
                continue
            target = (path.parent / unquote(address)).resolve() if address else path
            places = pages[target].anchors if target in pages and "gallery" not in target.parts else None
            if target not in files:
                wrong.append(f"{name} leads to {address}, which is not there")
            elif anchor and places is not None and unquote(anchor) not in places:
                wrong.append(f"{name} leads to {link}, and there is no such place")
    for path in files:
        text = path.read_text("utf-8") if path.suffix in (".css", ".js") else ""
        if found := re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", text):
            wrong.append(f"{path.relative_to(site)} loads from the network: {found[0]}")
    size = sum(path.stat().st_size for path in files)
    print(f"{len(pages)} pages, {len(files)} files, {size / 1e6:.1f} MB")
    return wrong + ([f"the site has {size:,} bytes, more than {LARGEST:,}"] if size > LARGEST else [])


def undocumented(site: Path) -> list[str]:
    """Public names that no page describes."""
    *_, packed = (site / "objects.inv").read_bytes().split(b"\n", 4)  # four lines, and the entries
    known = {line.split(" ")[0] for line in zlib.decompress(packed).decode().splitlines() if " py:" in line}
    public = [f"{module}.{name}" for module in reference.MODULES for name in reference.names(module)]
    return [f"{name} is not in the reference" for name in public if name not in known]


def build(site: Path) -> int:
    source = site.with_name(f"{site.name}-source")
    for folder in (source, site):
        shutil.rmtree(folder, ignore_errors=True)
    stage(source)
    reference.write(source / "reference")
    gallery.make(source / "extra" / "gallery")
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--builder", "html"]
    if subprocess.run([sys.executable, "-m", "sphinx", *options, str(source), str(site)], check=False).returncode:
        return 1
    for left in (".doctrees", "_sources"):
        shutil.rmtree(site / left, ignore_errors=True)
    wrong = check(site) + undocumented(site)
    for line in wrong:
        print(line)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]).absolute()))
