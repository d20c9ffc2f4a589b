"""Dry runs from the shell."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.test_cli import LLAMA, failed, ran


def without_fixes(entry: dict[str, Any]) -> dict[str, Any]:
    """A missed op of a report without the code of its fixes, which is of another function for a dry run."""
    kept = {name: value for name, value in entry.items() if name != "fix"}
    return kept | {"blockers": [{k: v for k, v in blocker.items() if k != "fix"} for blocker in entry["blockers"]]}


def test_a_dry_report_has_the_figures_of_the_run_and_says_what_it_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "dry.kvviz"
    line = ("report", LLAMA, "--dry", "--prompt-tokens", "3", "--tokens", "4", "--json", "--save", str(file))
    dry = json.loads(ran(capsys, *line))
    real = json.loads(ran(capsys, "report", LLAMA, "--prompt", "5,17,33", "--tokens", "4", "--json"))
    assert dry["totals"] == real["totals"]
    assert [without_fixes(entry) for entry in dry["missed"]] == [without_fixes(entry) for entry in real["missed"]]
    assert dry["tokens"] == [] and len(real["tokens"]) == 4
    for path in (LLAMA, str(file)):
        assert "dry run" in ran(capsys, "report", path, *["--dry"] * (path == LLAMA)).splitlines()[0]


def test_a_dry_comparison_has_the_figures_of_the_real_one_and_claims_no_equal_results(
    capsys: pytest.CaptureFixture[str],
) -> None:
    dry = json.loads(ran(capsys, "compare", LLAMA, "--dry", "--prompt-tokens", "3", "--tokens", "4", "--json"))
    real = json.loads(ran(capsys, "compare", LLAMA, "--prompt", "5,17,33", "--tokens", "4", "--json"))
    results = {"equal": None, "difference": "dry run, no results"}
    assert dry["equal"] is None and real["equal"] is True
    assert dry["rows"] == [row | results for row in real["rows"]]
    assert "dry run, no results" in ran(capsys, "compare", LLAMA, "--dry", "--policies", "ideal", "never")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (["--prompt-tokens", "3"], "give --dry too"),
        (["--dry", "--prompt", "5"], "--prompt has no use in a dry run; give --prompt-tokens N"),
        (["--dry", "--prompt-tokens", "3", "--donate-caches"], "--donate-caches is for a single run"),
        (["--dry", "--tokens", "5"], "--tokens needs --prompt-tokens"),
        (["--dry", "--kv-capacity", "5"], "--kv-capacity needs --prompt-tokens"),
    ],
)
def test_what_a_dry_run_cannot_take_is_said(capsys: pytest.CaptureFixture[str], line: list[str], says: str) -> None:
    assert says in failed(capsys, "report", LLAMA, *line)
