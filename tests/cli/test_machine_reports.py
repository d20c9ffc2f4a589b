"""Reports for programs: JSON by a schema, SARIF, and an exit status by limits; and dry runs from the shell."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import kvviz
from kvviz import cli
from kvviz.audit.budget import FIELDS, figures_of, over, read_budget
from kvviz.errors import KvvizError
from kvviz.report.faces.report_data import sarif
from kvviz.report.faces.report_schema import REPORT_SCHEMA
from tests.graph.build import MODELS
from tests.test_cli import LLAMA, Capture, failed, ran


@pytest.fixture(scope="module")
def trace() -> kvviz.Trace:
    return kvviz.decode(kvviz.load(LLAMA), [5, 17, 33], 4, progress=False)


def test_reports_are_as_the_schema_says(capsys: Capture) -> None:
    jsonschema.Draft202012Validator.check_schema(REPORT_SCHEMA)
    for name in ("o01_optimum_llama", "o02_optimum1_merged_gpt2", "o06_mobius_static_llama_op24"):
        graph = kvviz.load(MODELS / name / "model.onnx")
        data = kvviz.decode(graph, [5, 9, 3], 3, kv_capacity=16, progress=False).explain().to_dict()
        jsonschema.validate(json.loads(json.dumps(data)), REPORT_SCHEMA, jsonschema.Draft202012Validator)
        assert data["schema"] == {"name": "kvviz.report", "version": 2}
        assert data.keys() == REPORT_SCHEMA["properties"].keys()
    for broken in ({**data, "steps": "many"}, {k: v for k, v in data.items() if k != "totals"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(json.loads(json.dumps(broken)), REPORT_SCHEMA)
    assert cli.main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == REPORT_SCHEMA


def test_each_finding_that_asks_for_action_is_one_result_with_a_rule_that_is_declared(trace: kvviz.Trace) -> None:
    report = trace.explain()
    (run,) = sarif(report, "model.onnx")["runs"]
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    found = [one for one in report.findings if not one.calm and one.kind != "peak"]
    assert {result["ruleId"] for result in run["results"]} <= rules
    assert [result["properties"]["bytes"] for result in run["results"]] == [one.bytes for one in found]
    assert [result["level"] for result in run["results"]] == ["note" if f.fix is None else "warning" for f in found]
    assert all(one.title in result["message"]["text"] for one, result in zip(found, run["results"]))


def test_a_finding_keeps_its_fingerprint_from_run_to_run_and_no_two_share_one(trace: kvviz.Trace) -> None:
    longer = kvviz.decode(trace.graph, [5, 17, 33, 9], 6, progress=False)
    first, second = (
        [result["partialFingerprints"]["finding/v1"] for result in sarif(t.explain(), "m")["runs"][0]["results"]]
        for t in (trace, longer)
    )
    assert len(set(first)) == len(first) > 5
    assert len(set(first) & set(second)) > len(first) * 3 / 4


def test_a_limit_that_is_passed_fails_the_command_which_writes_its_report_all_the_same(
    capsys: Capture, tmp_path: Path
) -> None:
    path = tmp_path / "found.sarif"
    line = ["report", LLAMA, "--prompt", "5,17,33", "--tokens", "4", "--json", "--sarif", str(path)]
    line += ["--fail-on", "copied_per_token>0"]
    assert cli.main(line) == 1
    told = capsys.readouterr()
    assert json.loads(told.out)["steps"] == 1600
    # Of 2 layers, 2 caches a layer, 2 heads of 6 numbers of 4 bytes: 192 B a row; of 3, 4 and 5 rows.
    assert f"kvviz: copied_per_token is {4 * 192} B" in told.err
    where = json.loads(path.read_text("utf-8"))["runs"][0]["results"][0]["locations"][0]
    assert where["physicalLocation"]["artifactLocation"]["uri"] == LLAMA
    assert where["logicalLocations"][0]["name"].startswith("/model/layers.")
    assert cli.main([*line, "--kv-capacity", "8"]) == 0


def test_limits_are_read_as_comparisons_of_a_query_are(trace: kvviz.Trace) -> None:
    for limit, passed in [
        ("peak>100kB", True),
        ("peak > 1 MB", False),
        ("peak<=1.5MB", True),
        ("steps=1600", True),
        ("steps!=1600", False),
        ("missed_ops>=63", True),
        ("cache_warnings=4", True),
        ("copied > 10KiB", True),
        *((f"{name}>=0", True) for name in FIELDS),
    ]:
        assert (over(read_budget(limit), figures_of(trace.explain())) is not None) == passed


def test_a_limit_that_is_none_is_told_before_anything_runs(capsys: Capture) -> None:
    for limit, why in [
        ("peek>3", 'there is no "peek"; there are peak, allocated'),
        ("peak>lots", '"peak" is bytes'),
        ("peak", "not like peak>120MB"),
        ("steps>3MB", '"steps" is a number'),
        ("", "not like peak>120MB"),
    ]:
        with pytest.raises(KvvizError, match="cannot be read"):
            read_budget(limit)
        assert cli.main(["report", "nosuch.onnx", "--fail-on", limit]) == 2
        assert why in capsys.readouterr().err


def without_fixes(entry: dict[str, Any]) -> dict[str, Any]:
    """A missed op of a report without the code of its fixes, which is of another function for a dry run."""
    kept = {name: value for name, value in entry.items() if name != "fix"}
    return kept | {"blockers": [{k: v for k, v in blocker.items() if k != "fix"} for blocker in entry["blockers"]]}


def test_a_dry_report_has_the_figures_of_the_run_and_says_what_it_is(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "dry.kvviz"
    line = ("report", LLAMA, "--dry", "--prompt-tokens", "3", "--tokens", "4", "--json", "--save", str(file))
    dry = json.loads(ran(capsys, *line))
    real = json.loads(ran(capsys, "report", LLAMA, "--prompt", "5,17,33", "--tokens", "4", "--json"))
    assert dry["totals"] == real["totals"]
    assert [without_fixes(entry) for entry in dry["missed"]] == [without_fixes(entry) for entry in real["missed"]]
    assert dry["tokens"] == [] and len(real["tokens"]) == 4
    for path in (LLAMA, str(file)):
        assert "dry run" in ran(capsys, "report", path, *["--dry"] * (path == LLAMA)).splitlines()[0]


def test_a_dry_comparison_has_the_figures_of_the_real_one_and_claims_no_equal_results(capsys: Capture) -> None:
    dry = json.loads(ran(capsys, "compare", LLAMA, "--dry", "--prompt-tokens", "3", "--tokens", "4", "--json"))
    real = json.loads(ran(capsys, "compare", LLAMA, "--prompt", "5,17,33", "--tokens", "4", "--json"))
    results = {"equal": None, "difference": "dry run, no results"}
    assert dry["equal"] is None and real["equal"] is True
    assert dry["rows"] == [row | results for row in real["rows"]]
    assert "dry run, no results" in ran(capsys, "compare", LLAMA, "--dry", "--policies", "ideal", "never")


def test_what_a_dry_run_cannot_take_is_said(capsys: Capture) -> None:
    for line, says in [
        (["--prompt-tokens", "3"], "give --dry too"),
        (["--dry", "--prompt", "5"], "--prompt has no use in a dry run; give --prompt-tokens N"),
        (["--dry", "--prompt-tokens", "3", "--donate-caches"], "--donate-caches is for a single run"),
        (["--dry", "--tokens", "5"], "--tokens needs --prompt-tokens"),
        (["--dry", "--kv-capacity", "5"], "--kv-capacity needs --prompt-tokens"),
    ]:
        assert says in failed(capsys, "report", LLAMA, *line)
