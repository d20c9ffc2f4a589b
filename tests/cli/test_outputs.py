"""Where commands write: what cannot be written is told before anything runs, and streams that are closed do no harm."""

import os
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
        (["report", "--save", "keep.txt/"], "cannot write keep.txt/: Is a directory"),
        (["report", "--save", "x", "--perfetto", "./x"], "--save and --perfetto name the same file"),
        (["report", "--save", LLAMA], "would replace what is read"),
        (["html", "-o", LLAMA], "would replace what is read"),
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


def test_a_chart_without_an_ending_may_lie_beside_a_folder_of_its_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chart").mkdir()
    ran(capsys, "compare", LLAMA, *DIMS, "--policies", "ideal", "never", "--figure", "chart")
    assert (tmp_path / "chart.png").exists()


def test_a_trace_may_be_saved_over_itself(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    saved = str(tmp_path / "a.trace")
    ran(capsys, "report", LLAMA, *DIMS, "--save", saved)
    ran(capsys, "report", saved, "--save", saved)
    assert len(kvviz.Trace.load(saved).steps) == 400


ROOT = Path(__file__).resolve().parent.parent.parent
PLAIN = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
"""What a shell has that nothing was set in; above all, no PYTHONUNBUFFERED."""


@pytest.mark.parametrize("environment", [PLAIN, {**PLAIN, "PYTHONUNBUFFERED": "1"}], ids=["plain", "unbuffered"])
@pytest.mark.parametrize(
    ("line", "status"),
    [(["report", LLAMA, "--fail-on", "peak>1B"], 1), (["report", "nosuch.onnx"], 2), (["report", "--nonsense"], 2)],
    ids=["limit", "wrong", "unreadable"],
)
def test_a_full_stderr_loses_no_result_and_no_status(environment: Any, line: list[str], status: int) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "kvviz", *line]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=full, text=True, check=False, env=environment, cwd=ROOT
        )
    assert done.returncode == status
    assert ("400 steps in 1 run" in done.stdout) is (status == 1)


@pytest.mark.parametrize("environment", [PLAIN, {**PLAIN, "PYTHONUNBUFFERED": "1"}], ids=["plain", "unbuffered"])
def test_a_full_stdout_is_one_line_on_stderr(environment: Any) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "kvviz", "--version"]
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment, cwd=ROOT
        )
    assert done.returncode == 2
    assert done.stderr == "kvviz: cannot write the output: No space left on device\n"


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
