"""Questions of the lessons by their number, the code of a score, numbers as people say them, the quickstart's own."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

import kvviz
from kvviz.lessons import Question, ask, begin, read_score, score
from kvviz.lessons.questions.score import questions
from kvviz.lessons.questions.written_numbers import readings
from kvviz.widget.page_widget import still_bundle


@pytest.fixture(autouse=True)
def lesson() -> None:
    begin("test")


def test_a_question_of_a_lesson_is_asked_by_its_number_about_what_its_cells_made() -> None:
    made: dict[str, Any] = {"ask": ask}
    with pytest.raises(kvviz.KvvizError, match="question 08-6 is about what the cells above it make: run them first"):
        exec('question = ask("08-6")', made)
    exec('BLOCK = 4\nquestion = ask("08-6")', made)
    question: Question = made["question"]
    assert (question.number, question.answer) == ("08-6", "3") and "made" not in question.after
    assert "filled" in question.grade(4).text
    with pytest.raises(kvviz.KvvizError, match="there is no question '08-99'"):
        ask("08-99")


def test_a_score_has_a_code_that_says_which_questions_were_right() -> None:
    # given: of nine questions one was right at once, one later, one was shown
    made: dict[str, Any] = {"ask": ask, "BLOCK": 8, "server": None}
    exec('one = ask("08-6")\ntwo = ask("08-3")', made)
    made["one"].grade(7)
    made["two"].grade(9)
    made["two"].grade("row 5")
    code = score().code
    # then: what was shown or not asked counts as not right, and a slip is noticed
    assert str(score()).endswith(f"to hand in: {code}") and code.startswith("08-")
    said = read_score(f" {code} ")
    assert said.lesson == "08" and said.marks == tuple({6: 2, 3: 1}.get(number, 0) for number in range(1, 10))
    for wrong in (code.replace("1", "2", 1), code.replace("08", "05"), code[:-1], "08:1"):
        with pytest.raises(kvviz.KvvizError, match=r"no score|mistyped"):
            read_score(wrong)


def test_the_text_after_a_question_is_shown_once_it_was_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr("kvviz.lessons.questions.question.display", lambda data, **options: shown.append(data))
    monkeypatch.setattr("kvviz.lessons.questions.question.update_display", lambda data, **options: shown.append(data))
    question = ask("?", 3)
    question.after = "So it is **three**."
    question._ipython_display_()
    assert shown[-1] == {"text/plain": ""}
    question.grade(2)
    assert len(shown) == 3
    question.grade(3)
    question.grade(3)
    assert len(shown) == 4 and shown[-1]["text/markdown"] == question.after
    # when: the notebook is executed to be read
    monkeypatch.setenv("KVVIZ_READ", "1")
    again = ask("? again", 3)
    again.after = question.after
    again._ipython_display_()
    assert shown[-1]["text/markdown"] == question.after


def test_a_curve_is_judged_by_what_it_is_there_for_even_where_it_is_near() -> None:
    question = ask("?", [0, 10, 11, 12], curve="abcd", tolerance=0.5, accept=lambda d: d[0] == 0 or "run 0 has no past")
    assert question.grade([10, 10, 11, 12]).text == "run 0 has no past"
    assert question.grade([0, 10, 11, 13])


def test_what_a_learner_wrote_may_fail_and_the_verdict_says_how() -> None:
    question = ask("?", "def f(): …", accept=lambda f: f() == 1, unit="question.grade(f)")
    assert question.grade(lambda: 1 // 0).text == "it failed: ZeroDivisionError: integer division or modulo by zero"
    assert question.unit == "question.grade(f)" and question.grade(lambda: 1)


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("4 + 37 mod 12", "", 5),
        ("(41-4)%12+4", "", 5),
        ("row 5", "", 5),
        ("x4", "", 4),
        ("four", "", 4),
        ("Four rows", "rows", 4),
        ("about 12", "", 12),
        ("≈ 12", "", 12),
        ("0,75 KiB", "B", 768),
        ("13 + 14 + … + 85", "rows", 3577),
        ("13 + 14 + 15 + ... + 85", "rows", 3577),
        ("2 * (10 + 12 + ... + 20)", "", 180),
    ],
)
def test_a_number_may_be_said_as_people_say_it(text: str, unit: str, number: float) -> None:
    assert readings(text, unit)[0][0] == number


@pytest.mark.parametrize("text", ["10 + 13 + … + 20", "9 + … + 3", "5 + 5 + … + 9", "…", "row", "4 mod 0"])
def test_a_sum_that_does_not_come_out_is_no_number(text: str) -> None:
    with pytest.raises(kvviz.KvvizError, match="is not a number"):
        readings(text)[0][0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("128 KB", "right: 128 KB read as 128 × 1,024 B"),
        ("131 kB", "right: 131 kB read as 131 × 1,000 B"),
        ("0.125 MiB", "right: 0.125 MiB read as 0.125 × 1,048,576 B"),
        ("131072 B", "right"),
        ("130 kB", "too small"),
        ("64 KB", "too small by a factor of 2"),
        ("131,000", "too small"),
    ],
)
def test_an_answer_in_a_larger_unit_says_how_it_was_read(given: str, said: str) -> None:
    assert ask("How many bytes?", 131072, unit="B").grade(given).text == said


NOTEBOOK = Path(__file__).resolve().parents[2] / "notebooks" / "00_quickstart.ipynb"


@pytest.fixture(scope="module")
def cells() -> Iterator[dict[str, Any]]:
    """The names of the notebook's cells that need no chart, with its questions by their order under ``asked``."""
    made: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(NOTEBOOK.parent)
        for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
            if cell.cell_type == "code" and not re.search(r"plt|step_decodes", cell.source):
                exec(cell.source, made)
        yield {**made, "asked": questions()}


def test_it_asks_three_questions(cells: dict[str, Any]) -> None:
    assert len(cells["asked"]) == 3


@pytest.mark.parametrize(
    ("number", "right", "wrong"),
    [
        # the prompt and one row for each run behind the prefill
        (0, 13 + 3, {17: "run 0 reads the prompt", 3: "the rows of the prompt"}),
        # keys and values of three layers, two heads of 16 floats of 4 bytes
        (1, 2 * 3 * 2 * 16 * 4, {128: "one of the 6", 384: "keys and values"}),
        (2, "Reshape", {"Concat": "writes one row and copies nothing", "MatMul": "no copy"}),
    ],
)
def test_a_question_takes_its_answer_and_hints_at_what_is_wrong(
    cells: dict[str, Any], number: int, right: Any, wrong: dict[Any, str]
) -> None:
    question: Question = cells["asked"][number]
    for given, hint in wrong.items():
        verdict = question.grade(given)
        assert not verdict and hint in verdict.text.replace("*", ""), verdict.text
    assert question.grade(right), question.answer
    assert question.right and question.tries == len(wrong) + 1


def test_the_debugger_stands_on_a_cache_and_its_still_picture_shows_the_rows(cells: dict[str, Any]) -> None:
    debugger = cells["debugger"]
    chosen = debugger.trace.caches[debugger.selection["id"]]
    step = debugger.trace.steps[debugger.cursor]
    assert debugger.selection["kind"] == "cache" and chosen.output in step.outputs
    told = f"rows of the cache {chosen.name} after every run"
    assert told in still_bundle(debugger.trace, debugger.cursor, debugger.selection)["text/html"]
    # the step alone says it too, and one that makes no cache does not
    assert told in still_bundle(debugger.trace, debugger.cursor)["text/html"]
    assert "rows of the cache" not in still_bundle(debugger.trace, 0)["text/html"]
    assert "cache 0.key" in still_bundle(debugger.trace, 0, {"kind": "cache", "id": 0})["text/html"]
