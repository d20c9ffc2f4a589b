"""What the notebooks say in words: figures that their own outputs show, and text that every renderer shows alike."""

import re
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)

# Not measured in the notebook: a data sheet, issues, a version, sizes of files, an op count that tests check.
ELSEWHERE = {
    "01_what_is_a_kv_cache": {"2,039"},
    "03_frontier_and_order": {"98", "399"},
    "04_why_not_in_place": {"399"},
    "10_your_model": {"1.31"},
    "09_real_llm": {"98", "650", "528", "23"},
    "11_hidden_dependencies": {"2026", "27805", "27812"},
    "12_runtime_stitching": {"671"},
}
NUMBER = re.compile(r"(?<![\w.,-])(\d[\d,]*\.\d+|\d{1,3}(?:,\d{3})+|\d{2,})(?![\w.]*\d)")


def cells(path: Path, kind: str) -> list[NotebookNode]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind]


def shown(path: Path) -> str:
    """Code and text outputs."""
    code = cells(path, "code")
    outputs = [out for cell in code for out in cell.outputs]
    told = [str(out.get("text", "")) + str(out.get("data", {}).get("text/plain", "")) for out in outputs]
    return "\n".join([*(cell.source for cell in code), *told])


def prose(cell: NotebookNode) -> str:
    """Markdown without the addresses of links and without code."""
    return re.sub(r"\]\([^)]*\)|`[^`]*`", "", cell.source)


@every_notebook
def test_each_figure_in_its_text_is_one_that_its_cells_show(path: Path) -> None:
    told = shown(path)
    figures = {figure for cell in cells(path, "markdown") for figure in NUMBER.findall(prose(cell))}
    missing = {figure for figure in figures if not re.search(rf"(?<![\d.,]){re.escape(figure)}(?!\d)", told)}
    assert missing <= ELSEWHERE.get(path.stem, set())
    # nothing that it prints of its own claims is false
    outputs = [out for cell in cells(path, "code") for out in cell.outputs]
    assert not re.search(r"\bFalse\b", "\n".join(str(out.get("text", "")) for out in outputs))


@every_notebook
def test_no_line_of_a_paragraph_begins_like_a_block_of_its_own(path: Path) -> None:
    """Renderers differ on ``#98`` at the start of a line, on a list or heading right after text, and on indentation."""
    for cell in cells(path, "markdown"):
        above = ""
        for line in cell.source.split("\n"):
            heading = re.match(r" *#", line)
            assert not heading or (re.match(r"#{1,4} \S", line) and not above.strip()), line
            item, before = re.match(r" *([-*+]|\d+[.)])\s", line), re.match(r" *([-*+]|\d+[.)])\s|  ", above)
            assert not item or not above.strip() or before, line
            assert not re.match(r"\s*(>|=+$|-+$|<\w| {4}|\t)", line), line
            assert not line.startswith("|") or not above.strip() or above.startswith("|"), line
            above = line


@every_notebook
def test_a_section_shows_what_it_announces_before_a_part_of_it_begins(path: Path) -> None:
    # given the text cells that begin a numbered section and say more than its title
    sections = nbformat.read(path, as_version=4).cells
    for cell, following in pairwise(sections):
        begins = cell.cell_type == "markdown" and re.search(r"^## \d", cell.source, re.M)
        # then no heading stands between it and its first code
        assert not begins or not following.source.startswith("#"), following.source.split("\n")[0]
    # numbered sections are in order
    text = "\n".join(cell.source for cell in cells(path, "markdown"))
    numbers = [int(number) for number in re.findall(r"^## (\d+)\.", text, re.M)]
    assert numbers == list(range(1, len(numbers) + 1))
