"""One source in two forms: to learn from, where nothing tells an answer before it was given; and to read.

The list of lessons names them all, and each of its questions stands where it says.
"""

import html
import json
import re
import runpy
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import pytest

from kvviz.demo.lesson_form import to_learn
from kvviz.lessons.questions.by_number import all_numbers
from tests.notebooks.test_notebooks import NOTEBOOKS, ROOT, every_notebook

LESSONS = [*NOTEBOOKS, ROOT / "notebooks" / "class.ipynb"]
NUMBER = re.compile(r'ask\("([\w-]+)"\)')
every_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
TIMES = runpy.run_path(str(ROOT / ".ci" / "reading_times.py"))


@cache
def cells(path: Path) -> list[Any]:
    return list(nbformat.read(path, as_version=4).cells)


def numbers(cell: Any) -> list[str]:
    return NUMBER.findall(cell.source) if cell.cell_type == "code" else []


def shown(cell: Any) -> str:
    """What a cell tells when it was run, but for questions, whose outputs have the answer folded away."""
    outputs = [] if numbers(cell) else cell.get("outputs", [])
    parts = [str(out.get("text", "")) + str(out.get("data", {}).get("text/plain", "")) for out in outputs]
    return "\n".join([cell.source, *parts])


def answers(path: Path) -> Iterator[tuple[int, str, str, str, list[str]]]:
    """Cell, number, text, answer and choices of each question, as its output for readers has them."""
    number = ""
    for at, cell in enumerate(cells(path)):
        number = next(iter(numbers(cell)), number)
        for out in cell.get("outputs", []):
            data = out.get("data", {})
            page = "".join(data.get("text/html", ""))
            answer = re.search(r"<summary>Answer</summary><p[^>]*><b>(.*?)</b>", page, re.S)
            if answer and "<b>Question.</b>" in page:
                question = "".join(data["text/plain"])[len("<Question: ") : -1]
                choices = [plain(one) for one in re.findall(r"<li>(.*?)</li>", page)]
                yield at, number, question, plain(answer[1]), choices


def plain(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page))


COMMON = {"which", "first", "word", "words", "many", "does", "that", "with", "after", "each", "have", "they", "what"}


def tells(line: str, question: str, answer: str, choices: list[str]) -> bool:
    """Whether a line has the answer alone, and is about what the question asks."""
    bare, wanted = re.sub(r"[*`]", "", line), re.sub(r"[*`]", "", answer)
    if not re.search(rf"(?<![\w.,]){re.escape(wanted)}(?![\w,]|\.\d)", bare):
        return False
    if any(re.sub(r"[*`]", "", other) in bare.replace(wanted, "") for other in choices if other != answer):
        return False  # it names what there is to choose from
    content, said = ({word.lower() for word in re.findall(r"[A-Za-z]{4,}", text)} - COMMON for text in (question, bare))
    # a long number or text is the answer wherever it stands; a short one only in a line about the question
    return len(re.sub(r"\D", "", wanted)) >= 4 or len(wanted) >= 15 or len(content & said) >= 3


def number_of(answer: str) -> str:
    return re.sub(r"(?<=\d) [A-Za-z]+$", "", answer)


def folded(cell: Any) -> bool:
    return bool(cell.metadata.get("jupyter", {}).get("source_hidden"))


@every_lesson
def test_no_line_above_a_question_or_below_it_tells_its_answer(path: Path) -> None:
    found = []
    asked = list(answers(path))
    assert [number for _, number, *_ in asked] == [one for cell in cells(path) for one in numbers(cell)]
    for at, number, question, answer, choices in asked:
        if answer.startswith("def ") or " … " in answer:
            continue  # what the learner writes or draws
        above = [line for cell in cells(path)[:at] for line in shown(cell).split("\n")]
        below = [line for cell in cells(path)[at + 1 :] if not folded(cell) for line in cell.source.split("\n")]
        found += [(number, line) for line in above + below if tells(line, question, number_of(answer), choices)]
    assert found == []


def test_a_line_that_tells_is_found() -> None:
    asked = "How many rows does a cache hold after 3 more runs?"
    assert tells("after 3 more runs the cache will hold 16 rows", asked, "16", [])
    assert not tells("kvviz.decode(graph, prompt, max_new_tokens=16)", asked, "16", [])
    assert tells("3,577 of them", asked, "3,577", []) and not tells("13,577 of them", asked, "3,577", [])
    assert tells("row *a* is the cache that runs hold", "which cache do runs hold?", "a", ["a", "b"])
    assert not tells("*a* or *b*: the cache that runs hold", "which cache do runs hold?", "a", ["a", "b"])


@every_lesson
def test_its_source_has_neither_answers_nor_hints_and_its_form_to_learn_from_no_output(path: Path) -> None:
    sources = "\n".join(cell.source for cell in cells(path))
    assert re.findall(r"\bask\((?!\"[\w-]+\"\))", sources) == []
    assert not re.search(r"\bhint=|\banswer=", sources)
    lesson = json.loads(to_learn(path))
    assert not any(cell.get("outputs") for cell in lesson["cells"]) and "widgets" not in lesson["metadata"]
    # what follows an answer stands in the form to read, and in no text
    outputs = [out for cell in cells(path) for out in cell.get("outputs", [])]
    read = ["".join(out.get("data", {}).get("text/markdown", "")) for out in outputs]
    for cell in cells(path):
        for number in numbers(cell):
            after = all_numbers()[number].partition("\n---\n")[2].strip()
            assert not after or after in read, f"{number}: run make notebooks"
            assert not after or after not in sources


def test_every_question_is_asked_once_where_its_number_says() -> None:
    asked = [(path.stem.split("_")[0], number) for path in LESSONS for cell in cells(path) for number in numbers(cell)]
    assert all(number.startswith(f"{lesson}-") for lesson, number in asked)
    assert sorted(number for _, number in asked) == sorted(all_numbers())


def test_a_lesson_is_short_and_the_road_to_serving_takes_two_hours_at_most() -> None:
    sizes = TIMES["lessons"]()
    assert {number: size for number, size in sizes.items() if size.words > 900 or size.lines > 90} == {}
    assert sum(sizes[number].minutes for number in TIMES["ROAD"]) <= 120


@pytest.mark.parametrize("page", ["README.md", "start.ipynb"])
def test_the_minutes_in_the_list_are_those_that_are_counted(page: str) -> None:
    text = (ROOT / "notebooks" / page).read_text("utf-8")
    assert TIMES["told"](text) == text, "run .ci/reading_times.py"
    assert re.search(r"\d+ minutes from 00 to 08", text)


FOLDER = ROOT / "notebooks"
README = (FOLDER / "README.md").read_text("utf-8")
BY_NUMBER = {path.name[:2]: path for path in NOTEBOOKS}
QUESTIONS = re.findall(r"^\| (\d+) \| (.+?) \| (\d\d), (\d+)(?: to (\d+))? \| (.+?) \|$", README, re.M)


def section(lesson: str, number: str) -> str:
    found, inside = [], False
    for cell in cells(BY_NUMBER[lesson]):
        heading = re.search(r"^## (\d+)\.", cell.source, re.M) if cell.cell_type == "markdown" else None
        inside = heading[1] == number if heading else inside
        # A question's text stands under its number, and may be written in several pieces.
        asked = [all_numbers()[number] for number in re.findall(r'ask\("(\d\d-\d+)"', cell.source)]
        found += [re.sub(r'"\s*\n\s*f?"', "", text) for text in (cell.source, *asked)] if inside else []
    return "\n".join(found)


def test_each_question_of_the_list_is_asked_in_its_section() -> None:
    assert [int(number) for number, *_ in QUESTIONS] == list(range(1, 21))
    for number, asked, lesson, first, last, checks in QUESTIONS:
        text = "\n".join(section(lesson, str(place)) for place in range(int(first), int(last or first) + 1))
        for check in checks.split("<br>"):
            assert "ask(" in text and check in text, f"{number}, {asked!r}: {check!r} is not there in {lesson}"


def links(text: str) -> set[str]:
    return set(re.findall(r"\]\(([^):]+\.(?:ipynb|md))\)", text))


def test_the_list_and_the_start_page_lead_to_every_lesson() -> None:
    start = "".join(cell.source for cell in cells(FOLDER / "start.ipynb"))
    for text in (README, start):
        assert {path.name for path in BY_NUMBER.values()} <= links(text)
        assert all((FOLDER / link).exists() for link in links(text))
    table = README[README.index("| lesson |") : README.index("\n\n## Thirty")]
    assert table in start


def test_a_class_has_five_stops_of_three_questions() -> None:
    text = "\n".join(cell.source for cell in cells(FOLDER / "class.ipynb"))
    stops = re.split(r"^## \d ", text.replace(". ", " "), flags=re.M)[1:]
    asked = [re.findall(r'ask\("class-(\d+)"\)', stop) for stop in stops]
    assert asked == [[str(3 * stop + n) for n in (1, 2, 3)] for stop in range(5)]


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
FIGURE = re.compile(r"(?<![\w.,-])(\d[\d,]*\.\d+|\d{1,3}(?:,\d{3})+|\d{2,})(?![\w.]*\d)")


def cells_of(path: Path, kind: str) -> list[Any]:
    return [cell for cell in cells(path) if cell.cell_type == kind]


def told_by(path: Path) -> str:
    code = cells_of(path, "code")
    outputs = [out for cell in code for out in cell.outputs]
    told = [str(out.get("text", "")) + str(out.get("data", {}).get("text/plain", "")) for out in outputs]
    return "\n".join([*(cell.source for cell in code), *told])


def prose(cell: Any) -> str:
    return re.sub(r"\]\([^)]*\)|`[^`]*`", "", cell.source)


@every_notebook
def test_each_figure_in_its_text_is_one_that_its_cells_show(path: Path) -> None:
    told = told_by(path)
    figures = {figure for cell in cells_of(path, "markdown") for figure in FIGURE.findall(prose(cell))}
    missing = {figure for figure in figures if not re.search(rf"(?<![\d.,]){re.escape(figure)}(?!\d)", told)}
    assert missing <= ELSEWHERE.get(path.stem, set())
    # nothing that it prints of its own claims is false
    outputs = [out for cell in cells_of(path, "code") for out in cell.outputs]
    assert not re.search(r"\bFalse\b", "\n".join(str(out.get("text", "")) for out in outputs))


@every_notebook
def test_no_line_of_a_paragraph_begins_like_a_block_of_its_own(path: Path) -> None:
    """Renderers differ on ``#98`` at the start of a line, on a list or heading right after text, and on indentation."""
    for cell in cells_of(path, "markdown"):
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
    for cell, following in pairwise(cells(path)):
        begins = cell.cell_type == "markdown" and re.search(r"^## \d", cell.source, re.M)
        # then no heading stands between it and its first code
        assert not begins or not following.source.startswith("#"), following.source.split("\n")[0]
    # numbered sections are in order
    text = "\n".join(cell.source for cell in cells_of(path, "markdown"))
    numbers = [int(number) for number in re.findall(r"^## (\d+)\.", text, re.M)]
    assert numbers == list(range(1, len(numbers) + 1))
