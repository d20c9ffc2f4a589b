"""The list of lessons: it names them all, and each of its questions stands where it says."""

import re
from pathlib import Path

import nbformat

from kvviz.lessons.questions.by_number import all_numbers

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
README = (FOLDER / "README.md").read_text("utf-8")
LESSONS = {path.name[:2]: path for path in sorted(FOLDER.glob("[0-9]*.ipynb"))}
QUESTIONS = re.findall(r"^\| (\d+) \| (.+?) \| (\d\d), (\d+)(?: to (\d+))? \| (.+?) \|$", README, re.M)


def section(lesson: str, number: str) -> str:
    """All text and code of a section of a lesson."""
    found, inside = [], False
    for cell in nbformat.read(LESSONS[lesson], as_version=4).cells:
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
    start = "".join(cell.source for cell in nbformat.read(FOLDER / "start.ipynb", as_version=4).cells)
    for text in (README, start):
        assert {path.name for path in LESSONS.values()} <= links(text)
        assert all((FOLDER / link).exists() for link in links(text))
    table = README[README.index("| lesson |") : README.index("\n\n## Thirty")]
    assert table in start


def test_a_class_has_five_stops_of_three_questions() -> None:
    text = "\n".join(cell.source for cell in nbformat.read(FOLDER / "class.ipynb", as_version=4).cells)
    stops = re.split(r"^## \d ", text.replace(". ", " "), flags=re.M)[1:]
    asked = [re.findall(r'ask\("class-(\d+)"\)', stop) for stop in stops]
    assert asked == [[str(3 * stop + n) for n in (1, 2, 3)] for stop in range(5)]
