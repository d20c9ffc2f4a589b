"""Files that say the same thing in several places: versions, dependencies, commands, links; and the site's code, which
runs and prints what its pages say."""

from __future__ import annotations

import ast
import io
import re
import shlex
import shutil
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
import yaml

import kvviz
from kvviz.cli.options import parser
from kvviz.version import VERSION
from tests.graph.build import MODELS

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


PAGES = sorted(path for path in SITE.rglob("*.md") if path.name != "README.md")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text("utf-8"))


def with_code(language: str) -> list[Path]:
    return [page for page in PAGES if any(kind == language for kind, _ in blocks(page))]


def named(page: Path) -> str:
    return page.relative_to(SITE).with_suffix("").as_posix()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the pages name: a decoder whose caches grow by Concat, a folder of models, a recording, a program."""
    shutil.copy(MODELS / "o01_optimum_llama" / "model.onnx", tmp_path)
    for name in ("o01_optimum_llama", "o05_dynamo_llama_op23"):
        shutil.copytree(MODELS / name, tmp_path / "models" / name)
    shutil.copy(MODELS / "llama_cpp" / "smollm2_fa_off.jsonl.gz", tmp_path / "decode.jsonl.gz")
    shutil.copy(MODELS / "ttnn" / "gelu.mlir", tmp_path / "program.mlir")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def printed(code: str, names: dict[str, Any]) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        exec(code, names)
    return out.getvalue()


@pytest.mark.parametrize("page", with_code("python"), ids=named)
def test_python_blocks_run_and_print_what_follows_them(page: Path, folder: Path) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    out = ""
    for kind, text in blocks(page):
        if kind == "python":
            out = printed(text, names)
        elif kind == "text":
            assert text == out


@pytest.mark.parametrize("page", with_code("sh"), ids=named)
def test_commands_have_the_options_that_are_shown(page: Path) -> None:
    lines = [line.split(" #")[0] for kind, text in blocks(page) if kind == "sh" for line in text.splitlines()]
    commands = [line for line in lines if line.startswith("kvviz ")]
    for line in commands:
        parser().parse_args(shlex.split(line)[1:])


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    monkeypatch.syspath_prepend(SITE)
    return import_module("reference"), import_module("build")


def test_the_reference_has_every_public_name(tools: tuple[Any, Any]) -> None:
    reference, _ = tools
    modules = {f"kvviz.{name}" for name in kvviz.__all__ if isinstance(getattr(kvviz, name), ModuleType)}
    assert modules <= reference.MODULES.keys()
    listed = [name for module in reference.MODULES for name in reference.names(module)]
    assert set(kvviz.__all__) <= {*listed, *(name.split(".")[1] for name in modules)}
    # and every name that it lists is there
    records = [(module, name) for module, names in reference.RECORDS.values() for name in names]
    for module, name in [(m, name) for m in reference.MODULES for name in reference.names(m)] + records:
        assert reference.entry(module, name).startswith(".. ")


def test_a_broken_link_and_what_comes_from_the_network_are_found(tools: tuple[Any, Any], tmp_path: Path) -> None:
    _, build = tools
    (tmp_path / "other.html").write_text('<h1 id="there">x</h1>')
    good = '<a href="other.html#there">a</a><a href="https://example.invalid/">b</a><img src="data:image/png;base64,">'
    (tmp_path / "index.html").write_text(good)
    assert build.check(tmp_path) == []
    (tmp_path / "index.html").write_text(
        '<a href="gone.html">a</a><a href="other.html#gone">b</a><script src="https://example.invalid/x.js"></script>'
    )
    (tmp_path / "x.css").write_text("@import url(https://example.invalid/font.css)")
    wrong = " ".join(build.check(tmp_path))
    for part in ("gone.html, which is not there", "other.html#gone, and", "loads https://", "x.css loads from the net"):
        assert part in wrong
