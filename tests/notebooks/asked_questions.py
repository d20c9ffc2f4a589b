"""Runs after the last cell of a lesson: each question takes its own answer, and each wrong answer gets its hint."""

from collections.abc import Mapping
from typing import Any

from kvviz.errors import KvvizError
from kvviz.lessons.questions.answer_kinds import ChoiceTask, CurveTask, NumberTask, OpTask, OwnTask, Verdict
from kvviz.lessons.questions.score import questions

# By question right answers, in other units, words or as sums, and wrong ones with a part of the hint that each has to
# get, where they do not stand in the question. How numbers are read is tested with the lessons.
RIGHT: dict[str, list[str]] = {
    "00-1": ["13 + 3 = 16 rows", "sixteen"],
    "00-2": ["0.75 KiB", "3 layers × 2 × 128 B", "6x128"],
    "00-3": ["Reshape"],
    "01-1": ["arrays that the run before returned"],
    "01-3": ["in run 8 only"],
    "01-6": ["3577", "13 + 14 + … + 85"],
    "01-7": ["the memory; the arithmetic"],
    "01-8": ["128 KiB"],
    "01-9": ["four"],
    "05-2": ["33 KiB", "768*44"],
    "05-3": ["three moves"],
    "06-1": ["all 160 rows"],
    "06-4": ["one of three", "1 out of 3", "only 1"],
    "06-6": ["fourteen", "13 + 1 = 14"],
    "07-1": ["17 + 48", "position 65"],
    "08-1": ["none", "nothing", "no bytes", "0 B"],
    "08-3": ["row 5", "4 + 37 mod 12", "4+(41-4) % (16-4)"],
    "08-5": ["three blocks", "2 + 1"],
    "08-7": ["29,952 B", "3 × 13 × 768 B", "29.25 KiB", "30 kB"],
}

WRONG: dict[str, list[tuple[Any, str]]] = {
    "00-3": [("Concat", "writes one row and copies nothing"), ("MatMul", "no copy")],
    "01-5": [([13] * 12, "longer by each word"), ([1] * 12, "reads the prompt")],
    "01-8": [("64 KiB", "keys *and* values"), ("512 KiB", "not for query heads")],
    "01-10": [("step", "the function itself")],
    "00-1": [
        ("17", "run 0 reads the prompt"),
        ("3", "rows of the prompt"),
        ("sixteen hundred", "is not a number"),
        ("13", "too small"),
    ],
    "00-2": [
        ("128", "one of the 6"),
        ("384 B", "keys *and* values"),
        ("0.375 KiB", "keys *and* values"),
        ("2 rows", "is in rows"),
        ("3 * 128", "keys *and*"),
        ("1536", "by a factor of 2"),
    ],
    "06-4": [("none", "in which `old` runs before"), ("2 of 3", "read too late")],
    "05-2": [
        ("64*768", "64 rows are reserved"),
        ("768", "one word"),
        ("45*768", "run 0 read the prompt"),
        ("0", "too small"),
        ("nothing", "where is the row of a new word"),
    ],
    "05-3": [("45", "only when it is full"), ("two", "exactly full"), ("2 times", "exactly full")],
    "07-1": [
        ("48", "goes to row 0"),
        ("17", "where *castle* is itself"),
        ("64", "one full turn"),
        ("17 + 47", "one full turn"),
    ],
    "08-7": [("768", "one row"), ("39", "how many bytes"), ("2 * 13 * 768", "three beams")],
    "08-1": [("2304", "clear a row"), ("768 B", "which row"), ("3 * 768", "clear a row")],
    "08-3": [
        ("9", "without pinned rows"),
        ("41 mod 16", "without pinned rows"),
        ("37 mod 12", "add the pinned rows"),
        ("row 1", "add the pinned rows"),
    ],
    "08-5": [("2", "whose would be there"), ("four", "first 8 rows"), ("4 blocks", "first 8 rows")],
}


def right_answer(task: Any) -> Any:
    if isinstance(task, OpTask):
        return task.answers[0]
    if isinstance(task, OwnTask) and task.answer.startswith("def "):
        exec(task.answer, globals())  # what the learner is to write, beside what the lesson has made
        return globals()[task.answer.split("(")[0].removeprefix("def ")]
    return task.answer if isinstance(task, (NumberTask, ChoiceTask, CurveTask)) else task.shown()


def wrong_answer(task: Any) -> Any:
    if isinstance(task, ChoiceTask):
        return next(choice for choice in task.choices if choice != task.answer)
    if isinstance(task, OpTask):
        return next(name for name, kind in task.nodes if not {name, kind} & set(task.answers))
    if isinstance(task, CurveTask):
        return [max(task.answer) - value + 1 for value in task.answer]
    return 3 * task.answer + 7


def check() -> int:
    asked = list(questions())
    for question in asked:
        task, hint = question.task, question.hint
        said = question.grade(right_answer(task))
        assert said.right, f"{question.question}: its own answer is told {said.text!r}"
        for wrong, text in hint.items() if isinstance(hint, Mapping) else ():
            said = question.grade(wrong)
            assert not said.right, f"{question.question}: the hint for {wrong!r} belongs to the right answer"
            assert text in said.text, f"{question.question}: {wrong!r} is told {said.text!r}"
        if isinstance(hint, str) or (hint and not isinstance(hint, Mapping)):
            said = question.grade(wrong_answer(task))
            assert not said.right and len(said.text) > 8, f"{question.question}: {said.text!r}"
            assert not isinstance(hint, str) or hint in said.text
        for given in RIGHT.get(question.number, ()):
            said = question.grade(given)
            assert said.right, f"{question.number}: {given!r} is told {said.text!r}"
        for given, text in WRONG.get(question.number, ()):
            try:
                said = question.grade(given)
            except KvvizError as error:
                said = Verdict(False, str(error))
            assert not said.right and text in said.text, f"{question.number}: {given!r} is told {said.text!r}"
        assert hint or task.kind == "own", f"{question.question}: no hint for a wrong answer"
    return len(asked)


if __name__ == "__main__":
    print(check(), "questions")
