"""A table of a lesson, which a page, a printed sheet and a terminal can all show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kvviz.report.steps_table import Table

_MOST = 160


def table(rows: Iterable[Mapping[str, Any]], title: str = "") -> Table:
    """Rows as a table; the last line of a cell displays it.

    Parameters
    ----------
    rows : iterable of mapping
        Cell by heading; headings are those of the first row. Whole numbers get separators, and a column in which every
        cell is a number, or a number with a unit, is aligned right.
    title : str
        Stands above the table.
    """
    told = [{name: _cell(value) for name, value in row.items()} for row in rows]
    names: Sequence[str] = list(told[0]) if told else []
    columns = tuple((name, name, all(_is_number(row.get(name, "")) for row in told), _MOST) for name in names)
    return Table(told, columns, title)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if isinstance(value, float) else str(value)


def _is_number(cell: Any) -> bool:
    text = str(cell).lstrip("-−")
    return not text or text[:1].isdigit()
