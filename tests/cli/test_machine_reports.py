"""Reports for programs: JSON by a schema, SARIF, and an exit status by limits."""

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

LLAMA = str(MODELS / "o01_optimum_llama" / "model.onnx")


@pytest.fixture(scope="module")
def trace() -> kvviz.Trace:
    """A decode whose caches have no room."""
    return kvviz.decode(kvviz.load(LLAMA), [5, 17, 33], 4, progress=False)


@pytest.fixture(scope="module")
def roomy() -> kvviz.Trace:
    """The same with room."""
    return kvviz.decode(kvviz.load(LLAMA), [5, 17, 33], 4, kv_capacity=8, progress=False)


# -- JSON -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["o01_optimum_llama", "o02_optimum1_merged_gpt2", "o06_mobius_static_llama_op24"])
def test_reports_are_as_the_schema_says(name: str) -> None:
    graph = kvviz.load(MODELS / name / "model.onnx")
    data = kvviz.decode(graph, [5, 9, 3], 3, kv_capacity=16, progress=False).explain().to_dict()
    jsonschema.Draft202012Validator.check_schema(REPORT_SCHEMA)
    jsonschema.validate(json.loads(json.dumps(data)), REPORT_SCHEMA, jsonschema.Draft202012Validator)
    assert data["schema"] == {"name": "kvviz.report", "version": 2}


def test_every_key_of_a_report_is_described(trace: kvviz.Trace) -> None:
    data = trace.explain().to_dict()
    assert data.keys() == REPORT_SCHEMA["properties"].keys()


def test_the_schema_refuses_what_is_no_report(trace: kvviz.Trace) -> None:
    data = trace.explain().to_dict()
    for broken in ({**data, "steps": "many"}, {k: v for k, v in data.items() if k != "totals"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(json.loads(json.dumps(broken)), REPORT_SCHEMA)


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == REPORT_SCHEMA


# -- SARIF ------------------------------------------------------------------------------------------------------------


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


def test_sarif_is_written_beside_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "found.sarif"
    assert cli.main(["report", LLAMA, "--prompt", "5,17", "--tokens", "2", "--sarif", str(path)]) == 0
    data = json.loads(path.read_text("utf-8"))
    where = data["runs"][0]["results"][0]["locations"][0]
    assert where["physicalLocation"]["artifactLocation"]["uri"] == LLAMA
    assert where["logicalLocations"][0]["name"].startswith("/model/layers.")


# -- limits -----------------------------------------------------------------------------------------------------------


def test_a_limit_that_is_passed_fails_the_command_and_says_by_how_much(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["report", LLAMA, "--prompt", "5,17,33", "--tokens", "4", "--json", "--fail-on", "copied_per_token>0"]
    assert cli.main(line) == 1
    told = capsys.readouterr()
    assert json.loads(told.out)["steps"] == 1600
    assert told.err.startswith("kvviz: copied_per_token is 768 B")
    assert cli.main([*line, "--kv-capacity", "8"]) == 0


def test_copied_per_token_is_what_the_caches_rows_make(trace: kvviz.Trace, roomy: kvviz.Trace) -> None:
    # Of 2 layers, 2 caches a layer, 2 heads of 6 numbers of 4 bytes: 192 B a row; of 3, 4 and 5 rows.
    expected = sum(rows * 2 * 2 * 2 * 6 * 4 for rows in (3, 4, 5)) / 3
    assert over(read_budget(f"copied_per_token={expected:.0f}"), figures_of(trace.explain())) is not None
    assert over(read_budget("copied_per_token=0"), figures_of(roomy.explain())) is not None


@pytest.mark.parametrize(
    ("limit", "passed"),
    [
        ("peak>100kB", True),
        ("peak > 1 MB", False),
        ("peak<=1.5MB", True),
        ("steps=1600", True),
        ("steps!=1600", False),
        ("missed_ops>=63", True),
        ("cache_warnings=4", True),
        ("copied > 10KiB", True),
    ],
)
def test_limits_are_read_as_comparisons_of_a_query_are(trace: kvviz.Trace, limit: str, passed: bool) -> None:
    assert (over(read_budget(limit), figures_of(trace.explain())) is not None) == passed


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ("peek>3", 'there is no "peek"; there are peak, allocated'),
        ("peak>lots", '"peak" is bytes'),
        ("peak", "not like peak>120MB"),
        ("steps>3MB", '"steps" is a number'),
        ("", "not like peak>120MB"),
    ],
)
def test_a_limit_that_is_none_is_told_before_anything_runs(
    limit: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KvvizError, match="cannot be read"):
        read_budget(limit)
    assert cli.main(["report", "nosuch.onnx", "--fail-on", limit]) == 2
    assert why in capsys.readouterr().err


def test_every_figure_can_be_asked_for(trace: kvviz.Trace) -> None:
    told: list[Any] = [over(read_budget(f"{name}>=0"), figures_of(trace.explain())) for name in FIELDS]
    assert all(told) and len(told) == 10
