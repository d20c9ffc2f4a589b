"""The table of steps: the accessible and the searchable form of a trace."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from types import ModuleType

import pytest

from kvviz.errors import KvvizError
from kvviz.explain.sentences import sentence
from kvviz.report.faces.steps_table import COLUMNS, Table, steps_table
from kvviz.trace.recording import Trace


class Cells(HTMLParser):
    """Texts of all cells, and every tag that occurs."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


def test_there_is_one_row_for_every_step_with_its_numbers(trace: Trace) -> None:
    table = steps_table(trace)
    assert len(table) == len(trace.steps)
    for row, step in zip(table, trace.steps):
        assert (row["step"], row["op"], row["node"]) == (step.index, step.op_type, step.node)
        assert (row["live"], row["copied"]) == (step.live_bytes, step.copied)
        assert row["sentence"] == sentence(step, trace)


def test_rows_of_a_decode_add_up_to_its_totals(copying: Trace) -> None:
    rows = steps_table(copying).rows
    for key in ("copied", "written", "allocated"):
        assert sum(row[key] for row in rows) == getattr(copying, f"bytes_{key}")


def test_text_stands_in_columns(decoded: Trace) -> None:
    table = steps_table(decoded, range(30))
    head, *lines = table.text().splitlines()
    at = head.index("what happened")
    assert len(lines) == 30
    for row, line in zip(table, lines):
        assert line[at:].startswith(row["op"])
        assert line[at - 2 : at] == "  "


def test_of_a_long_table_text_shows_both_ends(copying: Trace) -> None:
    lines = str(steps_table(copying)).splitlines()
    assert len(lines) == 62
    assert [line.split()[0] for line in (lines[1], lines[-1])] == ["0", str(len(copying.steps) - 1)]
    assert "1,540 rows" in lines[31]


def test_html_has_a_heading_for_every_column_and_no_script(hostile: Trace) -> None:
    table = steps_table(hostile)
    seen = Cells(table.html())
    assert seen.tags == {"table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert len(seen.cells) == (len(hostile.steps) + 1) * len(COLUMNS)
    assert max(map(len, seen.cells)) <= 160


def test_a_data_frame_is_made_where_pandas_is_there(decoded: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a stand-in that only keeps what it is given
    pandas = ModuleType("pandas")
    pandas.DataFrame = lambda rows, columns: (rows, columns)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    table = steps_table(decoded, [0, 1])
    assert table.to_pandas() == (table.rows, [key for key, *_ in COLUMNS])


def test_without_pandas_the_error_names_it(decoded: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for ask in (steps_table(decoded, [0]).to_pandas, decoded.to_pandas):
        with pytest.raises(KvvizError, match="pandas is not installed; get it with: pip install pandas"):
            ask()


def test_an_empty_table_has_its_headings() -> None:
    assert str(Table([])).split()[:3] == ["step", "run", "frame"]
    assert Cells(Table([]).html()).cells[0] == "step"
