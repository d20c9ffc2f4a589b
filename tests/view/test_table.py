"""The table of steps: the accessible and the searchable form of a trace."""

import sys

import pytest

from kvviz.errors import KvvizError
from kvviz.explain.sentences import sentence
from kvviz.report.faces.steps_table import COLUMNS, Table, steps_table
from kvviz.trace.recording import Trace
from tests.trace.recordings import two_lanes
from tests.view.conftest import Html


@pytest.fixture(scope="module")
def timed() -> Trace:
    return two_lanes()


def test_there_is_one_row_for_every_step_with_its_numbers(trace: Trace) -> None:
    table = steps_table(trace)
    assert len(table) == len(trace.steps)
    for row, step in zip(table, trace.steps):
        assert (row["step"], row["op"], row["node"]) == (step.index, step.op_type, step.node)
        assert (row["live"], row["copied"]) == (step.live_bytes, step.copied)
        assert row["sentence"] == sentence(step, trace)
        assert row["outcome"] == step.outcome
        assert (row["written"], row["allocated"]) == (step.written, step.allocated)


def test_text_stands_in_columns_and_of_a_long_table_shows_both_ends(decoded: Trace, copying: Trace) -> None:
    assert str(Table([])).split()[:3] == ["step", "run", "frame"]
    table = steps_table(decoded, range(30))
    head, *lines = table.text().splitlines()
    at = head.index("what happened")
    assert len(lines) == 30
    for row, line in zip(table, lines):
        assert line[at:].startswith(row["op"])
        assert line[at - 2 : at] == "  "
    lines = str(steps_table(copying)).splitlines()
    assert len(lines) == 62
    assert [line.split()[0] for line in (lines[1], lines[-1])] == ["0", str(len(copying.steps) - 1)]
    assert "1,540 rows" in lines[31]


def test_html_has_a_heading_for_every_column_and_no_script(hostile: Trace) -> None:
    table = steps_table(hostile)
    seen = Html(table.html())
    assert set(seen.tags) == {"table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert len(seen.cells) == (len(hostile.steps) + 1) * len(COLUMNS)
    assert max(map(len, seen.cells)) <= 160
    assert Html(Table([]).html()).cells[0] == "step"


@pytest.mark.parametrize("name", ["decoded", "copying", "sparse", "branching", "looping", "hostile", "timed"])
def test_data_frames_have_the_rows_of_the_table(name: str, request: pytest.FixtureRequest) -> None:
    trace = request.getfixturevalue(name)
    table = trace.table()
    rows = [{key: row.get(key) for key, *_ in table.columns} for row in table]
    short = [{key: value for key, value in row.items() if key != "sentence"} for row in rows]
    assert table.to_arrow().to_pylist() == rows
    assert trace.to_arrow().to_pylist() == short
    frame = trace.to_pandas()
    assert frame.astype(object).where(frame.notna(), None).to_dict("records") == short
    assert {str(frame[key].dtype) for key in ("step", "run", "written", "copied", "allocated", "live")} == {"int64"}


def test_storages_and_findings_are_data_frames_too(copying: Trace, timed: Trace) -> None:
    for trace in (copying, timed):
        found = trace.to_arrow("storages")
        records = [{key: getattr(one, key) for key in found.column_names} for one in trace.storages]
        assert found.to_pylist() == records
        # a column has one type, whether the storages of a trace have addresses or not
        assert {str(found.schema.field(key).type) for key in ("freed", "address", "taken")} == {"int64"}
        frame = trace.to_pandas("storages")
        assert frame.freed.isna().tolist() == [record["freed"] is None for record in records]
    findings = copying.explain().findings
    frame = copying.to_pandas("findings")
    assert frame.title.tolist() == [one.title for one in findings]
    assert frame.bytes.tolist() == [one.bytes for one in findings]


def test_what_is_missing_is_named(decoded: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KvvizError, match="no table 'step'; its tables are 'steps', 'storages' and 'findings'"):
        decoded.to_pandas("step")
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for ask in (steps_table(decoded, [0]).to_pandas, decoded.to_pandas):
        with pytest.raises(KvvizError, match="pandas is not installed; get it with: pip install pandas"):
            ask()
    with pytest.raises(KvvizError, match="pyarrow is not installed; get it with: pip install pyarrow"):
        decoded.to_arrow()
