"""What an audit shows: the command, its files, and the GitHub action with its comment for a pull request."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import kvviz
from kvviz import cli
from kvviz.audit.audit_faces import page_name
from kvviz.audit.budget import over, read_budget
from tests.audit.small_models import chain
from tests.audit.test_audit import quick


@pytest.fixture
def audits(tmp_path: Path) -> tuple[kvviz.Audit, Path]:
    """An audit with a grown, a broken and an unchanged model, with a baseline; and the folder it was saved to."""
    folder = tmp_path / "models"
    chain(folder / "same.onnx")
    grown = chain(folder / "a & b.onnx")
    quick(folder, tmp_path, save=tmp_path / "old")
    chain(grown, ops=6, width=128)
    (folder / "broken.onnx").write_bytes(b"<&>")
    saved = tmp_path / "new"
    return quick(folder, tmp_path, baseline=tmp_path / "old", save=saved, fail_on="peak>+5%"), saved


def test_every_file_of_a_saved_audit_says_the_same(audits: tuple[kvviz.Audit, Path]) -> None:
    found, saved = audits
    assert kvviz.Audit.load(saved)["same.onnx"].policies == found["same.onnx"].policies
    suite = ElementTree.fromstring((saved / "junit.xml").read_text("utf-8"))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    cases = {case.get("name"): [one.tag for one in case] for case in suite}
    assert cases == {"a & b.onnx": ["failure", "failure"], "broken.onnx": ["error"], "same.onnx": []}
    sarif = json.loads((saved / "audit.sarif").read_text())
    total = sum(len(each["findings"]) for row in found for each in row.policies.values())
    results = sarif["runs"][0]["results"]
    assert len(results) == total > 0
    assert {one["ruleId"] for one in results} <= {one["id"] for one in sarif["runs"][0]["tool"]["driver"]["rules"]}
    comment = (saved / "audit.md").read_text("utf-8")
    assert "❌ `a & b.onnx`: under ideal, peak changed from 512 B to 1,024 B (+100.0%)" in comment.replace("\\", "")
    assert "❌ `broken.onnx`: failed, so no limit can be checked" in comment and "⚠️" not in comment
    assert "| `broken.onnx` | not done |" in comment and "512 B → 1,024 B (+100.0%)" in comment
    assert "first op that differs: step 3" in comment.replace("\\", "")


def test_the_page_is_one_file_with_a_curve_and_a_link_for_each_model(audits: tuple[kvviz.Audit, Path]) -> None:
    found, saved = audits
    page = (saved / "index.html").read_text("utf-8")
    assert page.count("<svg") == page.count("<path d=") == 4 and "src=" not in page and "http" not in page
    links = set(re.findall(r'href="(pages/[^"]+)"', page))
    assert links == {f"pages/{page_name(row.name)}" for row in found if row.done}
    assert all('id="kvviz-payload"' in (saved / link).read_text("utf-8") for link in links)
    assert page_name("a/b.onnx") != page_name("a-b.onnx") and page_name("../x").startswith("..-x-")
    assert "a &amp; b.onnx" in page
    assert [grown[1] for grown in re.findall(r'"(\d+)">\+([\d,]+ B)<', page)] == ["512 B", "768 B"]


def test_nothing_changed_is_said_in_one_line(tmp_path: Path) -> None:
    path = chain(tmp_path / "model.onnx")
    found = quick(path, tmp_path, baseline=quick(path, tmp_path))
    assert "Nothing changed since the baseline." in found.to_markdown()
    assert "model.onnx" in repr(found) and "<table>" in found._repr_html_()
    # what is not done is in the comment without limits, too
    path.write_bytes(b"no model")
    assert "⚠️ `model.onnx`: failed: " in quick(path, tmp_path).to_markdown()


def test_the_command_fails_on_growth_and_passes_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = chain(tmp_path / "models" / "model.onnx")
    line = ["audit", str(tmp_path / "models"), "--jobs", "1", "--cache", str(tmp_path / "cache")]
    assert cli.main([*line, "--save", str(tmp_path / "old")]) == 0
    limit = ["--baseline", str(tmp_path / "old" / "audit.json"), "--fail-on", "peak>+5%"]
    assert cli.main([*line, *limit]) == 0
    chain(model, width=96)
    capsys.readouterr()
    assert cli.main([*line, *limit, "--json"]) == 1
    shown = capsys.readouterr()
    assert [row["peak"] for row in json.loads(shown.out)] == [768, 1152]
    assert "kvviz: model.onnx: under ideal, peak changed from 512 B to 768 B (+50.0%)" in shown.err
    assert cli.main([*line, "--fail-on", "peak>+5%"]) == 2
    assert "needs a baseline" in capsys.readouterr().err


def test_a_limit_on_growth_compares_with_the_figure_before() -> None:
    for limit, before, after, passed in [
        ("peak>+5%", 100, 105, False),
        ("peak>+5%", 100, 106, True),
        ("peak > + 2.5 %", 1000, 1026, True),
        ("peak>=+5%", 100, 105, True),
        ("peak>+0", 100, 100, False),
        ("peak>+1kB", 0, 1000, False),
        ("peak>+1kB", 0, 1001, True),
        ("peak>+50%", 0, 1, True),
    ]:
        assert (over(read_budget(limit), {"peak": after}, {"peak": before}) is not None) == passed
        assert over(read_budget(limit), {"peak": after}) is None


ACTION = Path(__file__).resolve().parents[2] / ".github" / "actions" / "audit"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
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
