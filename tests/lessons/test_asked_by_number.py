"""Questions of the lessons by their number, the code of a score, and still pictures of caches."""

from typing import Any

import pytest

import kvviz
from kvviz.demo.storyteller import model
from kvviz.lessons import Question, ask, begin, read_score, score
from kvviz.lessons.questions.score import write_score
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
    assert str(read_score(write_score("story", [2, 1, 0]).lower())) == (
        "story: 2 of 3 right, 1 at the first try; not right: question 3"
    )
    changed = [
        code[:at] + other + code[at + 1 :]
        for at in range(len(code))
        for other in {"0", "1", "2", "A", "t", "-"} - {code[at], code[at].swapcase()}
    ]
    for wrong in (*changed, code[:-1], "08:1"):
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


def test_a_curve_is_judged_by_what_it_is_there_for_and_what_a_learner_wrote_may_fail() -> None:
    question = ask("?", [0, 10, 11, 12], curve="abcd", tolerance=0.5, accept=lambda d: d[0] == 0 or "run 0 has no past")
    assert question.grade([10, 10, 11, 12]).text == "run 0 has no past"
    assert question.grade([0, 10, 11, 13])
    # what a learner wrote may fail, and the verdict says how
    question = ask("?", "def f(): …", accept=lambda f: f() == 1, unit="question.grade(f)")
    assert question.grade(lambda: 1 // 0).text == "it failed: ZeroDivisionError: integer division or modulo by zero"
    assert question.unit == "question.grade(f)" and question.grade(lambda: 1)


def test_an_answer_in_a_larger_unit_says_how_it_was_read() -> None:
    for given, said in [
        ("128 KB", "right: 128 KB read as 128 × 1,024 B"),
        ("131 kB", "right: 131 kB read as 131 × 1,000 B"),
        ("0.125 MiB", "right: 0.125 MiB read as 0.125 × 1,048,576 B"),
        ("131072 B", "right"),
        ("130 kB", "too small"),
        ("64 KB", "too small by a factor of 2"),
        ("131,000", "too small"),
    ]:
        assert ask("How many bytes?", 131072, unit="B").grade(given).text == said


def test_a_still_picture_of_a_step_that_makes_a_cache_or_of_a_chosen_one_shows_its_rows() -> None:
    trace = kvviz.decode(model(), [1, 77, 108], 3, progress=False)
    step = next(step.index for step in trace.steps if trace.caches[3].output in step.outputs)
    told = f"rows of the cache {trace.caches[3].name} after every run"
    assert told in still_bundle(trace, step)["text/html"]
    assert told in still_bundle(trace, 0, {"kind": "cache", "id": 3})["text/html"]
    assert "rows of the cache" not in still_bundle(trace, 0)["text/html"]
