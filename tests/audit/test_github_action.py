"""The script of the GitHub action, run on a repository with a pull request."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.audit.small_models import chain

ACTION = Path(__file__).resolve().parents[2] / ".github" / "actions" / "audit"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose first commit has two models."""
    root = tmp_path / "repository"
    chain(root / "models" / "same.onnx")
    chain(root / "models" / "changed.onnx")
    git(root, "init", "--quiet")
    commit(root)
    return root


def git(root: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.invalid"]
    return subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def commit(root: Path) -> str:
    git(root, "add", "models")
    git(root, "commit", "--quiet", "--message", "models")
    return git(root, "rev-parse", "HEAD").strip()


def act(root: Path, base: str, limits: str) -> subprocess.CompletedProcess[str]:
    """Run the script as the action does: with ``kvviz`` on the path, and the inputs in the environment."""
    folder = root.parent / "bin"
    folder.mkdir(exist_ok=True)
    shim = folder / "kvviz"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kvviz "$@"\n')
    shim.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(root.parent / "cache"),
        "GITHUB_STEP_SUMMARY": str(root.parent / "summary.md"),
        "PYTHONPATH": str(ACTION.parents[2]),
    }
    environment |= {"MODELS": "models", "POLICIES": "ideal", "BASE": base, "FAIL_ON": limits}
    command = ["bash", str(ACTION / "audit.sh")]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)


def test_a_pull_request_that_grows_a_peak_fails_with_a_comment_and_one_that_does_not_passes(repository: Path) -> None:
    base = git(repository, "rev-parse", "HEAD").strip()
    # given a pull request that changes nothing
    done = act(repository, base, "peak>+5%\ncopied_per_token>0\n")
    assert done.returncode == 0, done.stderr
    assert "Nothing changed since the baseline." in (repository / "kvviz-audit" / "audit.md").read_text("utf-8")
    # given one with a larger model
    chain(repository / "models" / "changed.onnx", width=96)
    commit(repository)
    done = act(repository, base, "peak>+5%")
    assert done.returncode == 1, done.stderr
    comment = (repository / "kvviz-audit" / "audit.md").read_text("utf-8")
    assert "❌ `changed.onnx`" in comment and "512 B → 768 B (+50.0%)" in comment and "❌ `same.onnx`" not in comment
    assert (repository.parent / "summary.md").read_text("utf-8").endswith(comment)
    # and the base is not left behind
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_without_a_base_only_limits_on_figures_are_checked(repository: Path) -> None:
    assert act(repository, "", "peak>+5%\npeak>1MB").returncode == 0
    assert act(repository, "", "peak>+5%\npeak>300B").returncode == 1


def test_the_action_runs_the_script_with_its_inputs() -> None:
    text = (ACTION / "action.yml").read_text("utf-8")
    assert 'bash "$GITHUB_ACTION_PATH/audit.sh"' in text
    for name in ("MODELS", "FAIL_ON", "POLICIES", "BASE"):
        assert f"        {name}: ${{{{" in text and f"${{{name}" in (ACTION / "audit.sh").read_text("utf-8").replace(
            f"${name}", f"${{{name}"
        )
