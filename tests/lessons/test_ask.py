"""Questions: what is right, by what an answer is wrong, what counts, and what a reader without a kernel sees."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvviz
from kvviz.lessons import Question, ask, begin, score
from kvviz.lessons.questions.written_numbers import readings, write_number
from tests.graph.build import model, node


@pytest.fixture(autouse=True)
def lesson() -> None:
    begin("test")


@pytest.fixture(scope="module")
def graph() -> Any:
    made = [node("Add", "x x", "y", name="first"), node("Add", "y x", "z", name="second"), node("Neg", "z", "w")]
    return kvviz.load(model(made, ["x"], ["w"]))


SAID: dict[tuple[str, str], float] = {
    ("4,992 B", "B"): 4992,
    ("1,234,567", "B"): 1234567,
    ("4.5kB", "B"): 4500,
    ("4.5 KiB", "B"): 4608,
    ("0,75 KiB", "B"): 768,
    ("2^10", "B"): 1024,
    ("(1 + 2) × 8 B", "B"): 24,
    ("7 // 2", "B"): 3,
    ("1 000", "B"): 1000,
    ("1_000_000", "B"): 1000000,
    ("1’000", ""): 1000,
    ("−3", ""): -3,
    ("+5", ""): 5,
    ("08", ""): 8,
    ("0.05", ""): 0.05,
    ("1 byte", "B"): 1,
    ("1 row", "rows"): 1,
    ("4 times", ""): 4,
    ("3 · 4", ""): 12,
    (" + ".join(map(str, range(13, 86))), "rows"): 3577,
    ("13 + 14 + … + 85", "rows"): 3577,
    ("2 * (10 + 12 + ... + 20)", ""): 180,
    ("(41-4)%12+4", ""): 5,
    ("4 + 37 mod 12", ""): 5,
    ("row 5", ""): 5,
    ("x4", ""): 4,
    ("Four rows", "rows"): 4,
    ("≈ 12", ""): 12,
    ("sixteen", ""): 16,
    ("13 + 3 = 16 rows", "rows"): 16,
    ("all 160 rows", "rows"): 160,
    ("3 layers × 2 × 128 B", "B"): 768,
    ("6x128", "B"): 768,
    ("one of three", ""): 1,
    ("1 out of 3", ""): 1,
    ("only 1", ""): 1,
    ("none", ""): 0,
    ("no bytes", "B"): 0,
}
UNREADABLE = [
    *("", "many", "2 +", "1e", "2 ** 9999", "1 / 0", "3 rows", "[1]", "f(2)", "2 if 1 else 3", "(" * 300, "1,2,3"),
    *("sixteen hundred", "0 ** -1", "10 + 13 + … + 20", "9 + … + 3", "5 + 5 + … + 9", "…", "row", "4 mod 0"),
]


def test_a_number_may_be_written_in_any_usual_way() -> None:
    assert {said: readings(*said)[0][0] for said in SAID} == SAID


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_is_no_number_of_bytes_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(kvviz.KvvizError, match=r"is not a number|is asked for in B"):
        readings(text, "B")


@given(st.integers(-(10**15), 10**15))
def test_a_number_is_read_as_it_is_written(number: int) -> None:
    assert readings(write_number(number, "B"), "B")[0][0] == number


def test_a_wrong_number_is_told_by_what_it_is_off_and_gets_its_own_hint() -> None:
    question = ask("?", 768, {384: "keys *and* values", 100: "count the rows"}, unit="B")
    said = {given: question.grade(given).text for given in (384, 100, 2304, 770, "768 B")}
    assert said == {
        384: "too small by a factor of 2: keys *and* values",
        100: "too small: count the rows",
        2304: "too large by a factor of 3",
        770: "too large by 2 B",
        "768 B": "right",
    }
    # a hint may be worked out of the answer, or be said always
    assert ask("?", 10, lambda given: f"{given:.0f} is even").grade(4).text == "too small: 4 is even"
    assert ask("?", 10, lambda given: None).grade(4).text == "too small"
    assert ask("?", 10, "count").grade(4).text == "too small: count"


def test_a_fraction_may_be_rounded_and_a_whole_number_not() -> None:
    assert ask("?", 2 / 3).grade("0.667") and not ask("?", 2 / 3).grade("0.66")
    assert not ask("?", 100_000).grade(100_001)
    assert ask("?", 100, tolerance=0.1).grade(109) and not ask("?", 100, tolerance=0.1).grade(111)


def test_a_choice_is_given_by_its_text_or_its_number() -> None:
    question = ask("?", "b", {"a": "not the first"}, choices=["a", "b", "c"])
    assert question.grade("a").text == "not the first"
    assert question.grade(2).text == "not that"
    assert question.grade(1)
    with pytest.raises(kvviz.KvvizError, match="none of the choices"):
        question.grade("d")
    # a choice that is a number is meant as it is
    question = ask("?", 2, choices=[1, 2, 3])
    assert not question.grade(1) and question.grade(2)


def test_an_op_is_named_by_itself_by_its_step_or_by_its_kind(graph: Any) -> None:
    trace = kvviz.run(graph, {"x": np.ones(4, np.float32)})
    question = ask("?", "second", {"first": "it is read again", "Neg": "nothing is left"}, among=trace)
    assert question.grade("first").text == "it is read again"
    assert question.grade("Neg").text == "nothing is left"
    assert question.grade("Add").text == "it is one of the Add ops: which, by its name"
    assert question.grade(trace.steps[1])
    with pytest.raises(kvviz.KvvizError, match="there is no op 'secnd' here; near it: second"):
        question.grade("secnd")
    of_kind = ask("?", "Add", among=graph)
    assert of_kind.grade("first") and of_kind.grade("Add") and not of_kind.grade("Neg")
    either = ask("?", ["first", "second"], among=graph)
    assert either.grade("second") and either.answer == "first or second"
    with pytest.raises(kvviz.KvvizError, match="names no op"):
        ask("?", [], among=graph)


def test_a_curve_is_graded_by_its_mean_distance_and_told_where_it_is_furthest_off() -> None:
    words = ["once", "upon", "a", "time"]
    question = ask("?", [0, 100, 200, 400], curve=words, unit="B")
    # then: 40 + 0 + 0 + 0 of four points is 10 of 400, and 100 + 0 + 0 + 100 is 50 of 400
    assert question.grade([40, 100, 200, 400])
    wrong = question.grade([0, 200, 200, 300]).text
    assert wrong == (
        "off by 12% of the largest value on average, 10% is allowed; furthest at upon, where it is too high"
    )
    for bad in ([1, 2, 3], [1, 2, 3, None], 7):
        with pytest.raises(kvviz.KvvizError, match=r"the curve has 4 points|the answer is a curve"):
            question.grade(bad)
    assert ask("?", [0, 0], curve="ab").grade([0, 0])


def test_what_a_lesson_itself_judges_is_answered_in_python() -> None:
    question = ask("Find an order.", "the greedy one", accept=lambda order: order == [1, 0] or "it ends too late")
    assert question.grade([0, 1]).text == "it ends too late"
    assert question.grade([1, 0]) and question.answer == "the greedy one"
    # also by numpy
    question = ask("?", "[1, 2]", {(2, 1): "the other way round"}, accept=lambda a: (np.asarray(a) == [1, 2]).all())
    assert question.grade(np.array([2, 1])).text == "the other way round"
    assert question.grade([1, 2])


def test_an_answer_that_is_worked_out_waits_until_somebody_asks() -> None:
    called: list[int] = []

    def worked_out() -> int:
        called.append(1)
        return 5

    question = ask("?", worked_out)
    assert not called
    assert question.grade(5) and question.answer == "5" and called == [1]


def test_a_question_that_cannot_be_answered_is_refused_where_it_is_asked() -> None:
    cases: list[tuple[Any, str]] = [
        ({"answer": "x", "choices": ["a", "b"]}, "none of the choices"),
        ({"answer": [1, 2], "curve": ["a"]}, "1 labels and its answer 2 values"),
        ({"answer": "text"}, "is not a number"),
        ({"answer": True}, "is not a number"),
        ({}, "has no answer="),
        ({"answer": 1, "choices": [1], "curve": ["a"]}, "choices= and curve="),
        ({"answer": 10, "hint": {"twice": "x"}}, "hint= has a text for 'twice', which is no answer"),
        ({"answer": "a", "choices": ["a", "b"], "hint": {"c": "x"}}, "hint= has a text for 'c'"),
        ({"answer": 10, "hint": ["x"]}, "hint= is a text, a mapping"),
        ({"answer": float("nan")}, "not a finite number"),
        ({"answer": 1, "tolerance": -1}, "tolerance=-1"),
        ({"answer": 1, "why": 7}, "why= of a question is a text"),
        ({"answer": [1, 2], "curve": "ab", "top": 1}, "has to reach to 2"),
        ({"answer": [0, 0], "curve": "ab", "top": 0}, "top=0"),
        ({"answer": [-1, 2], "curve": "ab"}, "not below 0"),
        ({"answer": [1, float("nan")], "curve": "ab"}, "finite"),
        ({"answer": 5, "curve": "ab"}, "is no curve"),
        ({"answer": "Add", "among": "graph"}, "among= is a graph or a trace"),
    ]
    for arguments, said in cases:
        with pytest.raises(kvviz.KvvizError, match=said):
            ask("?", **arguments)
        assert score().asked == 0


def test_right_answers_count_once_and_not_after_the_answer_was_shown() -> None:
    first, second, third = (ask(name, 1) for name in "abc")
    first.grade(1)
    first.grade(2)  # what is right stays right
    first.reveal()  # and is not one whose answer was shown instead
    second.grade(2)
    second.grade(1)
    assert third.reveal() == "1"
    third.grade(1)
    told = score()
    assert (told.asked, told.right, told.first, told.shown) == (3, 2, 1, 1)
    assert str(told) == "test: 2 of 3 right, 1 at the first try; the answer of 1 was shown"
    # when: a cell runs again, and another lesson begins
    ask("a", 1)
    assert (score().asked, score().right) == (3, 1)
    begin("next")
    assert score().asked == 0 and score("test").asked == 3
    # or one anew: a question of before counts when it is answered
    before = ask("d", 1)
    begin("next")
    assert score().asked == 0
    before.grade(1)
    assert str(score()) == "next: 1 of 1 right, 1 at the first try"


def test_the_page_is_told_by_what_an_answer_is_wrong_also_when_it_is_none() -> None:
    question = ask("?", 768, unit="B")

    def sent(given: Any) -> dict[str, Any]:
        question._receive(question, {"do": "grade", "given": given}, [])
        told: dict[str, Any] = question.verdict
        return told

    assert sent("384") == {"right": False, "text": "too small by a factor of 2", "number": 1}
    assert sent("much")["right"] is None and question.tries == 1
    again = sent("much")  # told as something new
    assert again["text"] == sent("much")["text"] and again != question.verdict
    assert sent("768")["right"] is True
    question._receive(question, {"do": "reveal"}, [])
    assert question.revealed and question.right


def test_without_a_kernel_the_answer_folds_out_and_nothing_of_the_question_is_markup() -> None:
    question = ask("Is <b> *one* `Add`?", "<no>", choices=["<no>", "yes"], why="**Two** of them & more.")
    html = question._fold()
    assert "Is &lt;b&gt; <em>one</em> <code>Add</code>?" in html
    assert "<li>&lt;no&gt;</li><li>yes</li>" in html
    before, _, after = html.partition("<details><summary>Answer</summary>")
    assert "<b>&lt;no&gt;</b>" in after and "<b>Two</b> of them &amp; more." in after
    assert "Two" not in before
    # stars that stress nothing stay
    for text in ("2**3 + 2**4", "*.onnx and *.json", "a * b * c", "**"):
        assert ask(text, 1)._fold().startswith(f"<p><b>Question.</b> {text}</p>")


def test_a_question_has_its_answer_for_readers_in_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, Any]] = []
    monkeypatch.setattr("kvviz.lessons.questions.question.display", lambda data, **options: shown.append(data))
    question: Question = ask("How many?", lambda: 3)
    question._ipython_display_()
    widget, behind = shown
    assert "text/html" not in widget and widget["text/plain"] == ""
    assert "<details>" in behind["text/html"] and question.still in behind["text/html"]
    assert behind["text/plain"] == "<Question: How many?>"
    assert question.solution["answer"] == "3"


def test_what_is_no_finite_number_is_refused_and_is_no_try() -> None:
    for wrong in ["1e400", "-1e400", "1e308*10", float("inf"), float("nan"), 10**400, "9" * 5000, None, [1]]:
        question = ask("?", 768, unit="B")
        with pytest.raises(kvviz.KvvizError, match=r"must be a (finite )?number|at most|is not a number"):
            question.grade(wrong)
        assert question.tries == 0


def test_by_what_an_answer_is_off_does_not_tell_the_right_one() -> None:
    for answer, wrong in [(768, 0), (768, 1), (131072, 1), (3577, 3082), (8, 1), (3, 2), (3, 0)]:
        assert ask("?", answer).grade(wrong).text in ("too small", "much too small")
    question = ask("How many caches have 3 layers?", 6, {3: "keys *and* values"})
    assert question.grade(3).text == "too small by a factor of 2: keys *and* values"
    assert question.grade(4).text == "too small"


def test_a_number_is_written_with_the_figures_that_it_has_and_one_of_a_unit_without_its_plural() -> None:
    written = {12345.5: "12,345.5 B", 1e-10: "1e-10 B", 0.25: "0.25 B", 0: "0 B"}
    assert {number: write_number(number, "B") for number in written} == written
    assert [write_number(n, "rows") for n in (1, 2, 0.5)] == ["1 row", "2 rows", "0.5 rows"]


def test_a_hint_that_fails_is_told_with_the_verdict() -> None:
    question = ask("?", 10, lambda given: f"{1 / 0}")
    assert question.grade(40).text == "too large by a factor of 4: (the hint of this question failed: " + (
        "ZeroDivisionError: division by zero)"
    )
    assert question.tries == 1
