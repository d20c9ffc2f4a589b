"""The site's code: every block of Python runs and prints what the page says; every command has the options shown."""

from __future__ import annotations

import io
import re
import shlex
import shutil
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import kvviz
from kvviz.cli.options import parser
from tests.graph.build import MODELS

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "assets" / "site"
PAGES = sorted(path for path in SITE.rglob("*.md") if path.name != "README.md")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of the blocks of a page."""
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


def test_the_reference_has_a_page_for_every_public_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SITE)
    import reference  # type: ignore[import-not-found]

    modules = {f"kvviz.{name}" for name in kvviz.__all__ if type(getattr(kvviz, name)).__name__ == "module"}
    assert modules <= reference.MODULES.keys()
    listed = [name for module in reference.MODULES for name in reference.names(module)]
    assert set(kvviz.__all__) <= {*listed, *(name.split(".")[1] for name in modules)}
    # every name has a directive: a class, a function, or data
    entries = [reference.entry(module, name) for module in reference.MODULES for name in reference.names(module)]
    assert len(entries) == len(listed) and all(text.startswith(".. ") for text in entries)
