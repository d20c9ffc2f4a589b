"""Files that say the same thing in several places: versions, dependencies, commands; and links between them."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml

from kvviz.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
SITE = ROOT / "assets" / "site"
PROJECT = (ROOT / "pyproject.toml").read_text("utf-8")
RECIPE = yaml.safe_load((GITHUB / "conda" / "recipe.yaml").read_text("utf-8"))
RELEASE = yaml.safe_load((GITHUB / "workflows" / "release.yml").read_text("utf-8"))
# conda-forge's names of packages that have another one there.
_ON_CONDA = {"graphviz": "python-graphviz", "matplotlib": "matplotlib-base", "ml-dtypes": "ml_dtypes"}
TEXTS = [
    path
    for folder in (ROOT, GITHUB, ROOT / "assets", ROOT / "notebooks", ROOT / "tests")
    for path in (folder.glob("*.md") if folder == ROOT else folder.rglob("*.md"))
    if "node_modules" not in path.parts
]


def test_every_file_names_the_version_of_the_package() -> None:
    citation = yaml.safe_load((GITHUB / "CITATION.cff").read_text("utf-8"))
    declared = re.search(r'^version = "(.+)"$', PROJECT, re.M)
    assert declared is not None
    assert {declared[1], citation["version"], RECIPE["context"]["version"]} == {VERSION}


def test_the_conda_recipe_needs_what_the_wheel_needs() -> None:
    listed = re.search(r"^dependencies = (\[.*?^\])", PROJECT, re.M | re.S)
    assert listed is not None
    needed = {text.replace(">=", " >=") for text in ast.literal_eval(listed[1])}
    names = {text.split()[0]: text.split()[1] for text in needed}
    assert set(RECIPE["requirements"]["run"]) == {
        "python >=3.10",
        *(f"{_ON_CONDA.get(name, name)} {bound}" for name, bound in names.items()),
    }


def test_a_release_tries_the_wheel_on_every_python_and_system_that_the_package_names() -> None:
    matrix = RELEASE["jobs"]["wheel"]["strategy"]["matrix"]
    assert matrix["python"] == re.findall(r"Python :: (3\.\d+)", PROJECT)
    assert {name.split("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    code = "\n".join(step.get("run", "") for step in RELEASE["jobs"]["wheel"]["steps"])
    imports = re.findall(r"^from (kvviz\S*) import (\w+)$", code, re.M)
    assert imports
    assert all(hasattr(import_module(module), name) for module, name in imports)


@pytest.mark.parametrize("name", ["wrong", "decision", "question"])
def test_an_issue_comes_with_the_report_as_json(name: str) -> None:
    form: dict[str, Any] = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml").read_text("utf-8"))
    (asked,) = [part for part in form["body"] if part.get("id") == "report"]
    assert "kvviz report --json" in asked["attributes"]["label"]


def test_the_notebook_for_colab_runs_without_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = nbformat.read(SITE / "colab.ipynb", as_version=4).cells
    names: dict[str, Any] = {}
    for cell in cells:
        if cell.cell_type == "code" and not cell.source.startswith("%pip"):
            exec(cell.source, names)
    assert names["trace"].words[-2:] == ["rosa", "was"]


def leads_somewhere(path: Path, link: str) -> bool:
    """Whether a link of a file leads to another file. The site is built with the lessons and pictures beside its
    pages, and with the reference, whose pages its index names."""
    target = (path.parent / link.split("#")[0]).resolve()
    if SITE not in target.parents:
        return target.exists()
    first, *rest = target.relative_to(SITE).parts
    if first == "reference":
        return f"\nreference/{Path(rest[0]).stem}\n" in (SITE / "index.md").read_text("utf-8")
    staged = {"lessons": ROOT / "notebooks", "images": ROOT / "assets" / "images"}
    return staged.get(first, SITE / first).joinpath(*rest).exists()


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_files_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^```(?!{).*?^```|`[^`\n]+`", "", path.read_text("utf-8"), flags=re.M | re.S)
    links = re.findall(r"\]\(([^)\s]+)\)|^```{image} (\S+)", text, re.M)
    inside = [link or image for link, image in links if not re.match(r"[a-z]+:|#", link)]
    assert [link for link in inside if not leads_somewhere(path, link)] == []


def test_the_lessons_can_become_pages_of_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SITE)
    import_module("build").stage(tmp_path / "sources")
    pages = {f"lessons/{path.stem}" for path in (tmp_path / "sources" / "lessons").iterdir() if path.suffix != ".html"}
    listed = set(re.findall(r"lessons/\w+(?=>?$)", (SITE / "index.md").read_text("utf-8"), re.M))
    assert listed == pages > {f"lessons/{path.stem}" for path in (ROOT / "notebooks").glob("*.ipynb")}
