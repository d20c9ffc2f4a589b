"""What cells of lessons show: tables, on a page as in a terminal, and pictures with a text for those who see none."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from io import BytesIO
from typing import Any

from IPython.display import display

from kvviz.errors import KvvizError
from kvviz.report.faces.steps_table import Table
from kvviz.view.charts.png import few_colours
from kvviz.view.drawing.svg import Picture

_MOST = 160


def table(rows: Iterable[Mapping[str, Any]], title: str = "") -> Table:
    """Rows, cell by heading, as a table; the last line of a cell displays it.

    Headings are those of the first row. Whole numbers get separators, and a column in which every cell is a number, or
    a number with a unit, is aligned right.
    """
    cells = [{name: _cell(value) for name, value in row.items()} for row in rows]
    names: Sequence[str] = list(cells[0]) if cells else []
    columns = tuple((name, name, all(_is_number(row.get(name, "")) for row in cells), _MOST) for name in names)
    return Table(cells, columns, title)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if isinstance(value, float) else str(value)


def _is_number(cell: Any) -> bool:
    text = str(cell).lstrip("-−")
    return not text or text[:1].isdigit()


def picture(drawing: Any, alt: str) -> None:
    """Show a figure of matplotlib, or an SVG document, in a notebook, with its alternative text.

    Beside the PNG there is an HTML image, which has the text as ``alt``: JupyterLab has none for a PNG. The output's
    metadata has it, too, and it is the plain-text form.

    ``alt``: what the chart shows, in one or two sentences.

    Raises `KvvizError`: if the text is empty.
    """
    if not alt.strip():
        raise KvvizError("a picture needs a text that says what it shows")
    if isinstance(drawing, str):
        # Untrusted notebooks strip inline SVG.
        display({"text/html": _image(alt, Picture(drawing).data_uri), "text/plain": alt}, raw=True)
        return
    from matplotlib import pyplot as plt

    drawn, file = getattr(drawing, "figure", drawing), BytesIO()
    drawn.savefig(file, format="png", dpi=100)
    plt.close(drawn)  # else the notebook shows it once more at the end of the cell
    png = base64.b64encode(few_colours(file.getvalue())).decode()
    data = {"image/png": png, "text/html": _image(alt, f"data:image/png;base64,{png}"), "text/plain": alt}
    display(data, metadata={"image/png": {"alt": alt}, "alt": alt}, raw=True)


def _image(alt: str, address: str) -> str:
    return f'<img alt="{escape(alt)}" style="max-width:100%;break-inside:avoid" src="{address}">'
