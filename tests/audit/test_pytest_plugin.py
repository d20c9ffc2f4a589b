"""The fixture ``kvviz_budget``, as a project that uses kvviz sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.audit.small_models import chain
from tests.graph.build import MODELS

pytest_plugins = ["pytester"]
GROWING = str(MODELS / "storyteller" / "concat" / "model.onnx")
_TEST = """
import pytest

@pytest.mark.kvviz_budget(policy="onnxruntime")
def test_the_model(kvviz_budget):
    {}
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with a cache of its own and a model of two buffers of 256 bytes; under onnxruntime, whose outputs have
    buffers of their own, of three."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(pytester.path / "cache"))
    chain(pytester.path / "model.onnx")
    return pytester


def check(project: pytest.Pytester, line: str, *options: str) -> pytest.RunResult:
    project.makepyfile(_TEST.format(line))
    return project.runpytest_inprocess("-p", "kvviz.audit.pytest_plugin", "--strict-markers", *options)


def test_a_limit_is_an_assertion(project: pytest.Pytester) -> None:
    for line, why in [
        ("kvviz_budget.assert_peak('model.onnx', below='769B')", ""),
        ("kvviz_budget.assert_peak('model.onnx', below=768)", "*peak is 768 B*so the limit peak>=768 B fails*"),
        ("kvviz_budget.assert_no_past_copied('model.onnx', policy='ideal')", ""),
        (f"kvviz_budget.assert_no_past_copied({GROWING!r})", "*past_copied is *so the limit past_copied>0 B fails*"),
        ("kvviz_budget.assert_kept('model.onnx', 'peak>1kB', 'steps>2')", "*steps is 3*"),
        ("kvviz_budget.assert_kept('model.onnx', 'peak>+5%')", "*has no figures of model.onnx*--kvviz-update*"),
        ("kvviz_budget.assert_peak('nosuch.onnx', below='1MB')", "*nosuch.onnx is not done*there is no file*"),
    ]:
        result = check(project, line)
        result.assert_outcomes(passed=not why, failed=bool(why))
        if why:
            result.stdout.fnmatch_lines([f"*AssertionError: {why}"])


def test_a_grown_peak_fails_until_the_baseline_is_updated(project: pytest.Pytester) -> None:
    line = "kvviz_budget.assert_kept('model.onnx', 'peak>+5%')"
    check(project, line, "--kvviz-update").assert_outcomes(passed=1)
    kept = json.loads((project.path / "kvviz_budget.json").read_text())
    assert kept["model.onnx | onnxruntime"]["peak"] == 768
    check(project, line).assert_outcomes(passed=1)
    chain(project.path / "model.onnx", width=128)
    result = check(project, line)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*peak changed from 768 B to 1,536 B (+100.0%)*"])
    check(project, line, "--kvviz-update").assert_outcomes(passed=1)
    check(project, line).assert_outcomes(passed=1)


def test_the_plugin_imports_nothing_that_a_test_run_without_it_would_not(tmp_path: Path) -> None:
    code = (
        "import sys, pytest; import kvviz.audit.pytest_plugin;"
        "print(sorted(name for name in sys.modules if name.partition('.')[0] in ('numpy', 'onnx', 'kvviz')))"
    )
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert eval(done.stdout) == [
        "kvviz", "kvviz.audit", "kvviz.audit.pytest_plugin", "kvviz.other_names", "kvviz.version",
    ]  # fmt: skip
