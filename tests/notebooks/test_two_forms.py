"""One source in two forms: to learn from, where nothing tells an answer before it was given; and to read."""

import html
import json
import re
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import pytest

from kvviz.demo.lesson_form import to_learn
from kvviz.lessons.questions.by_number import all_numbers
from tests.notebooks.test_notebooks import NOTEBOOKS, ROOT

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
    """An answer without its unit."""
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
