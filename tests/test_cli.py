"""The command line: reports of models and saved traces, inputs made up, and one line for whatever is wrong."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import cli
from tests.graph.build import MODELS

LLAMA = str(MODELS / "o01_optimum_llama" / "model.onnx")
STORY = MODELS / "storyteller"
DIMS = ["--dim", "batch_size=1", "sequence_length=1", "past_sequence_length=4"]
Capture = pytest.CaptureFixture[str]


def ran(capsys: Capture, *arguments: str) -> str:
    """What a command that must succeed printed."""
    status = cli.main(arguments)
    told = capsys.readouterr()
    assert status == 0, told.err
    return told.out


def failed(capsys: Capture, *arguments: str) -> str:
    """The one line that a command that must fail wrote to stderr."""
    assert cli.main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    lines = told.err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("kvviz: ")
    return lines[0]


def test_a_decode_from_tokens_gives_the_reference_tokens(capsys: Capture) -> None:
    reference = np.load(Path(LLAMA).with_name("ref.npz"))
    prompt = ",".join(map(str, reference["prompt"]))
    data = json.loads(ran(capsys, "report", LLAMA, "--prompt", prompt, "--tokens", "6", "--json"))
    assert data["tokens"] == reference["tokens"][:6].tolist()
    assert data["model"]["title"] == "o01_optimum_llama"
    assert len(data["runs"]) == 6


def test_a_text_is_decoded_with_the_words_of_a_vocabulary(capsys: Capture) -> None:
    words = ["--text", "once upon a time", "--words", str(STORY / "vocab.json")]
    text = ran(capsys, "report", str(STORY / "concat" / "model.onnx"), *words, "--tokens", "3", "--kv-capacity", "12")
    assert "'there'" in text
    caches = [line for line in text.splitlines() if line.startswith("0.key")]
    assert caches[0].split()[:5] == ["0.key", "growing", "12", "5", "…"]


def test_donated_caches_with_room_copy_nothing_in_a_single_run(capsys: Capture) -> None:
    base = ["report", LLAMA, *DIMS, "--json"]
    lent = json.loads(ran(capsys, *base))
    donated = json.loads(ran(capsys, *base, "--donate-caches", "--kv-capacity", "8"))
    copied = [[cache["runs"][0]["bytes_copied"] for cache in data["caches"]] for data in (lent, donated)]
    assert copied == [[4 * 2 * 6 * 4] * 4, [0] * 4]


def test_only_what_the_asked_outputs_need_is_run_and_steps_are_listed_on_request(
    capsys: Capture,
) -> None:
    arguments = ["report", LLAMA, *DIMS, "--steps"]
    text = ran(capsys, *arguments)
    assert len(text[text.index("\nstep ") :].splitlines()) == 2 + 400
    assert len(json.loads(ran(capsys, *arguments, "--json"))["table"]) == 400
    data = json.loads(ran(capsys, *arguments, "--output", "present.0.key", "--policy", "never", "--json"))
    assert 0 < len(data["table"]) == data["steps"] < 200
    assert (data["policy"], data["in_place"]["in_place"]) == ("never", 0)


def test_steps_are_found_by_a_query(capsys: Capture, tmp_path: Path) -> None:
    saved = str(tmp_path / "llama.kvviz")
    given = ["--prompt", "5,17,33", "--tokens", "2"]
    told = ran(capsys, "find", LLAMA, "op:Concat copied>0 sort:-copied limit:4", *given, "--save", saved)
    trace = kvviz.Trace.load(saved)
    found = trace.find("op:Concat copied>0 sort:-copied limit:4")
    assert f"4 of {len(trace.steps):,} steps" in told
    lines = [line.split()[0] for line in told.splitlines() if " Concat " in line]
    assert lines == [str(number) for number in found.numbers]
    rows = json.loads(ran(capsys, "find", saved, "op:Concat copied>0 sort:-copied limit:4", "--json"))["found"]
    assert rows == found.table().rows
    assert "0 of" in ran(capsys, "find", saved, "op:Nothing")
    assert 'did you mean "copied"' in failed(capsys, "find", saved, "coppied>0")


def test_a_saved_trace_is_reported_and_written_as_a_page(capsys: Capture, tmp_path: Path) -> None:
    saved, page, events = (str(tmp_path / name) for name in ("a.trace", "a.html", "a.json"))
    first = ran(capsys, "report", LLAMA, "--prompt", "5,17", "--tokens", "2", "--save", saved)
    again = ran(capsys, "report", saved, "--perfetto", events)
    assert cli.main(["html", saved, "-o", page]) == 0
    assert again.splitlines()[1:] == first.splitlines()[1:]
    assert again.startswith("o01_optimum_llama: ")
    assert Path(page).read_text("utf-8").startswith("<!doctype html>")
    assert json.loads(Path(events).read_text("utf-8"))["traceEvents"]


def test_the_page_of_a_text_opens_after_what_was_decoded_is_told(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def open_page(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr("webbrowser.open", open_page)
    for name in (STORY / "concat" / "model.onnx", STORY / "vocab.json"):
        shutil.copy(name, tmp_path)
    page = tmp_path / "page.html"
    beginning = "once upon a time there was a brave owl named rosa ."
    told = ran(capsys, "html", str(tmp_path), "--text", beginning, "--tokens", "12", "--open", "-o", str(page))
    assert told.startswith("rosa lived in a castle . one day") and len(told.split()) == 12
    assert opened == [page.as_uri()]


def test_given_inputs_tell_dimensions_and_are_taken_as_they_are(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "some.npz"
    given: Any = {"input_ids": np.array([[7, 8]]), "past_key_values.0.key": np.zeros((1, 2, 3, 6), np.float32)}
    np.savez(path, **given)
    data = json.loads(ran(capsys, "report", LLAMA, "--inputs", str(path), "--json"))
    # then: the batch, the new tokens and the past follow from the two
    assert [cache["runs"][0]["valid"] for cache in data["caches"]] == [5] * 4


def test_what_a_decode_needs_beside_tokens_is_made_up_too(capsys: Capture) -> None:
    whisper = str(MODELS / "o03_optimum1_merged_whisper" / "model.onnx")
    for length in ((), ("--dim", "encoder_sequence_length=20")):
        text = ran(capsys, "report", whisper, "--prompt", "1,2", "--tokens", "2", *length)
        assert re.search(rf"^1\.encoder\.key +cross +{10 if length else 2} ", text, re.M)


def test_a_mistake_is_told_in_one_line(capsys: Capture) -> None:
    for arguments, told in [
        (["nosuch.onnx"], "there is no file 'nosuch.onnx'"),
        ([str(STORY / "vocab.json")], "is not an ONNX model"),
        ([LLAMA, *DIMS, "--donate", "nosuch"], "cannot donate 'nosuch'"),
        ([LLAMA, *DIMS, "--tokens", "3"], "--tokens needs --prompt, --text or --chat"),
        ([LLAMA, "--prompt", "5", "--donate-caches"], "--donate-caches is for a single run"),
        ([LLAMA, "--text", "once"], "there is no tokenizer.json in"),
        ([LLAMA, "--prompt", str(1 << 70)], "does not fit into 64 bits"),
        ([LLAMA, *DIMS, "--sarif", ""], "--sarif is empty"),
        ([LLAMA, "--prompt=3,-1"], "the prompt has the token -1"),
        ([LLAMA, "--text", "tiger", "--words", LLAMA], "is not JSON"),
        ([LLAMA, "--inputs", LLAMA], "is not an .npz file"),
        ([LLAMA, "--inputs", "nosuch.npz"], "nosuch.npz: No such file"),
    ]:
        assert told in failed(capsys, "report", *arguments)


def test_a_wrong_option_is_told_in_one_line(capsys: Capture) -> None:
    for arguments in [
        ["nosuch"],
        ["report"],
        ["report", LLAMA, "--nosuch"],
        ["report", LLAMA, "--dim", "batch_size=-1"],
        ["report", LLAMA, "--prompt", "1,x"],
        ["report", LLAMA, "--prompt", "1", "--tokens", "0"],
    ]:
        with pytest.raises(SystemExit) as stopped:
            cli.main(arguments)
        assert stopped.value.code == 2
        assert re.fullmatch(r"kvviz.*: .*; see kvviz.* --help\n", capsys.readouterr().err)
    # without a command they are listed
    with pytest.raises(SystemExit) as stopped:
        cli.main([])
    assert not stopped.value.code
    assert "run a small built-in model" in " ".join(capsys.readouterr().out.split())


def test_a_saved_trace_cannot_be_run_again(capsys: Capture, tmp_path: Path) -> None:
    saved = str(tmp_path / "a.trace")
    ran(capsys, "report", LLAMA, *DIMS, "--save", saved)
    line = failed(capsys, "report", saved, "--tokens", "3", "--policy", "never")
    assert "--policy, --tokens cannot be used here" in line


@pytest.mark.parametrize("named", [True, False])
def test_lab_starts_jupyterlab_in_a_folder_and_hands_options_on(
    named: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str]) -> Any:
        commands.append(command)
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.setattr(cli.commands.subprocess, "run", run)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notebooks").mkdir()
    status = cli.main(["lab", *([str(tmp_path)] if named else []), "--port", "9876", "--no-browser"])
    assert status == 3
    assert commands[0][1:3] == ["-m", "jupyterlab"]
    folder = tmp_path if named else tmp_path / "notebooks"
    assert commands[0][3:7] == [f"--ServerApp.root_dir={folder.resolve()}", "--port", "9876", "--no-browser"]


def test_lab_says_what_is_missing(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no folder 'nosuch'" in failed(capsys, "lab", "nosuch")
    monkeypatch.setattr(cli.commands.importlib.util, "find_spec", lambda name: None)
    assert "pip install 'kvviz[lab]'" in failed(capsys, "lab")


def test_the_module_runs_as_a_program_and_tells_its_version() -> None:
    done = subprocess.run([sys.executable, "-m", "kvviz", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"kvviz {kvviz.__version__}\n")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = [sys.executable, "-m", "kvviz", "report", LLAMA, *DIMS, "--steps"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("o01_optimum_llama")
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


@pytest.mark.parametrize(
    "package", ["pygraphviz", "onnx_ir", "matplotlib", "anywidget", "tokenizers", "jinja2", "gguf"]
)
def test_a_report_needs_none_of_the_packages_that_draw(package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from kvviz import cli; sys.exit(cli.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "report", LLAMA, "--prompt", "5,17", "--tokens", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "o01_optimum_llama" in done.stdout
