"""Where commands write: what cannot be written is told before anything runs, and streams that are closed do no harm."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kvviz
from tests.test_cli import DIMS, LLAMA, failed, ran


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["report", "--save", "missing/x"], "missing/x: its folder does not exist"),
        (["report", "--save", "-"], "--save -: name a file"),
        (["report", "--sarif", "."], "cannot write .: Is a directory"),
        (["find", "op:Add", "--perfetto", "missing/x"], "missing/x: its folder"),
        (["html", "-o", "missing/x.html"], "missing/x.html: its folder"),
        (["html"], "cannot write o01_optimum_llama.html: Is a directory"),
        (["compare", "--figure", "missing/x.svg"], "missing/x.svg: its folder"),
        (["compare", "--figure", "x.nosuch"], "the formats of figures are"),
    ],
)
def test_an_output_that_cannot_be_written_is_told_before_anything_runs(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    told: str,
) -> None:
    # given
    monkeypatch.chdir(tmp_path)
    (tmp_path / "o01_optimum_llama.html").mkdir()
    for name in ("run", "decode", "compare"):
        monkeypatch.setattr(kvviz, name, lambda *_, **__: pytest.fail("it ran"))
    command, *rest = arguments
    # when
    line = failed(capsys, command, LLAMA, *rest, *DIMS)
    # then
    assert told in line
    assert [path.name for path in tmp_path.iterdir()] == ["o01_optimum_llama.html"]


def test_pages_of_two_graphs_of_a_folder_have_two_names(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("one.onnx", "two.onnx"):
        shutil.copy(LLAMA, folder / name)
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two.onnx"):
        ran(capsys, "html", "mine", "--graph", name, *DIMS)
    assert sorted(path.name for path in tmp_path.glob("*.html")) == ["mine-one.html", "mine-two.html"]
    assert ran(capsys, "report", "mine", "--graph", "two", *DIMS).startswith("mine-two: ")


@pytest.mark.parametrize("closed", [(1,), (2,), (1, 2)])
def test_closed_streams_change_no_exit_status(closed: Any) -> None:
    for line, status in ((["report", LLAMA, *DIMS], 0), (["report", "nosuch.onnx"], 2)):
        program = f"import os; [os.close(n) for n in {closed}]; os.execv({sys.executable!r}, "
        program += f"[{sys.executable!r}, '-m', 'kvviz', *{line!r}])"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert done.returncode == status
        assert "Traceback" not in done.stderr
