"""Where commands write: what cannot be written is told before anything runs; streams that are closed; Ctrl-C."""

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import kvviz
from kvviz import cli
from kvviz.cli.options import SHELLS, completion, parser
from tests.test_cli import DIMS, LLAMA, Capture, failed, ran


def test_an_output_that_cannot_be_written_is_told_before_anything_runs(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "o01_optimum_llama.html").mkdir()
    for name in ("run", "decode", "compare"):
        monkeypatch.setattr(kvviz, name, lambda *_, **__: pytest.fail("it ran"))
    for (command, *rest), told in [
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
    ]:
        assert told in failed(capsys, command, LLAMA, *rest, *DIMS)
        assert [path.name for path in tmp_path.iterdir()] == ["o01_optimum_llama.html"]


ROOT = Path(__file__).resolve().parent.parent.parent
PLAIN = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
"""What a shell has that nothing was set in; above all, no PYTHONUNBUFFERED."""


def ended(line: list[str], environment: dict[str, str], **streams: Any) -> subprocess.CompletedProcess[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    command = [sys.executable, "-m", "kvviz", *line]
    return subprocess.run(command, text=True, check=False, env=environment, cwd=ROOT, **pipes)


@pytest.mark.parametrize("environment", [PLAIN, {**PLAIN, "PYTHONUNBUFFERED": "1"}], ids=["plain", "unbuffered"])
def test_a_full_stream_loses_no_result_and_no_status(environment: dict[str, str]) -> None:
    with open("/dev/full", "w") as full:
        limited = ended(["report", LLAMA, "--fail-on", "peak>1B"], environment, stderr=full)
        wrong = ended(["report", "nosuch.onnx"], environment, stderr=full)
        unreadable = ended(["report", "--nonsense"], environment, stderr=full)
        no_output = ended(["--version"], environment, stdout=full)
    assert [one.returncode for one in (limited, wrong, unreadable, no_output)] == [1, 2, 2, 2]
    assert "400 steps in 1 run" in limited.stdout
    assert no_output.stderr == "kvviz: cannot write the output: No space left on device\n"


def test_outputs_that_need_a_name_of_their_own_get_it_and_a_trace_may_be_saved_over_itself(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("one.onnx", "two.onnx"):
        shutil.copy(LLAMA, folder / name)
    monkeypatch.chdir(tmp_path)
    # pages of two graphs of a folder
    for name in ("one", "two.onnx"):
        ran(capsys, "html", "mine", "--graph", name, *DIMS)
    assert sorted(path.name for path in tmp_path.glob("*.html")) == ["mine-one.html", "mine-two.html"]
    # a chart without an ending, beside a folder of its name
    ran(capsys, "compare", LLAMA, *DIMS, "--policies", "ideal", "never", "--figure", "mine")
    assert (tmp_path / "mine.png").exists()
    assert ran(capsys, "report", "mine", "--graph", "two", *DIMS, "--save", "trace").startswith("mine-two: ")
    ran(capsys, "report", "trace", "--save", "trace")
    assert len(kvviz.Trace.load("trace").steps) == 400


@pytest.mark.parametrize("closed", [(1,), (2,), (1, 2)])
def test_closed_streams_change_no_exit_status(closed: Any) -> None:
    for line, status in ((["report", LLAMA, *DIMS], 0), (["report", "nosuch.onnx"], 2)):
        program = f"import os; [os.close(n) for n in {closed}]; os.execv({sys.executable!r}, "
        program += f"[{sys.executable!r}, '-m', 'kvviz', *{line!r}])"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert done.returncode == status
        assert "Traceback" not in done.stderr


def test_a_run_that_was_stopped_is_told_with_its_own_exit_status(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a decode that is stopped after a word
    decode = kvviz.decode

    def stopped(*given: Any, **how: Any) -> kvviz.Trace:
        trace = decode(*given, **{**how, "max_new_tokens": 1})
        trace.interrupted = True
        return trace

    monkeypatch.setattr(kvviz, "decode", stopped)
    assert cli.main(["report", LLAMA, "--prompt", "5,17", "--fail-on", "steps>9999"]) == 130
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "kvviz: stopped from the keyboard\n")

    def pressed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    # the options are read when all commands have been imported
    monkeypatch.setattr("kvviz.cli.options.parser", pressed)
    assert cli.main(["report", LLAMA]) == 130


def test_a_comparison_that_was_stopped_compares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compare_module = import_module("kvviz.view.compare")
    run = compare_module.runner

    def stopping(*given: Any, **how: Any) -> Any:
        decode = run(*given, **how)

        def stopped(policy: Any) -> kvviz.Trace:
            trace = decode(policy)
            trace.interrupted = policy.name == "rten"
            return trace

        return stopped

    monkeypatch.setattr(compare_module, "runner", stopping)
    assert cli.main(["compare", LLAMA, "--prompt", "5,17", "--tokens", "2"]) == 130


def test_every_shell_completes_commands_and_options_and_bash_offers_what_fits(capsys: Capture) -> None:
    for shell in SHELLS:
        assert cli.main(["completion", shell]) == 0
        script = capsys.readouterr().out
        for word in ("demo", "report", "html", "find", "compare", "schema", "lab", "fail-on", "kv-capacity", "chat"):
            assert word in script
    bash = shutil.which("bash")
    assert bash is not None
    ask = "COMP_WORDS=(kvviz {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _kvviz; echo ${{COMPREPLY[@]}}"
    for words, offered in (("re", "report"), ("report x --fail", "--fail-on"), ("html --pol", "--policy")):
        script = completion(parser(), "bash") + ask.format(words=words)
        done = subprocess.run([bash, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.split() == [offered]
