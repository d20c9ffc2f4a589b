"""Runs after the last cell of a lesson: each question takes its own answer, and each wrong answer gets its hint."""

from collections.abc import Mapping
from typing import Any

from kvviz.errors import KvvizError
from kvviz.lessons.questions.answer_kinds import ChoiceTask, CurveTask, NumberTask, OpTask, OwnTask, Verdict
from kvviz.lessons.questions.score import questions

# Ways to write an answer, by question: right ones, and wrong ones with a part of the hint that each has to get.
RIGHT: dict[str, list[str]] = {
    "00-1": ["sixteen", "13 + 3 = 16 rows", "16 (13 + 3)", "16", "16 rows", "13 + 3", "about 16", "13+1+1+1"],
    "00-2": [
        "128 B * 6",
        "6 times 128",
        "3 layers × 2 × 128 B",
        "6x128",
        "768",
        "768 B",
        "0.75 KiB",
        "768 bytes",
        "6 * 128",
        "2*3*2*16*4",
        "6 × 128 B",
    ],
    "01-6": [
        "3.577",
        "3,577 key rows",
        "3577 in all",
        "13 + 14 + … + 85 = 3577",
        "3577",
        "3,577",
        "3 577",
        "13 + 14 + … + 85",
        "13+14+15+...+85",
        "73*(13+85)/2",
        "3577 rows",
    ],
    "01-8": [
        "2 x 32 x 8 x 128 x 2",
        "131072 bytes per token",
        "131072 bytes/token",
        "128k",
        "131072",
        "128 KB",
        "131 kB",
        "128 KiB",
        "131,072 B",
        "2*32*8*128*2",
        "2^17",
        "0.125 MiB",
        "128kb",
    ],
    "01-9": ["fourfold", "32 / 8 = 4", "4", "x4", "four", "4x", "4 times", "four times", "32/8", "= 4"],
    "05-2": ["33,792", "33792 B", "33 KiB", "768*44", "44 × 768"],
    "05-3": ["3", "three", "3 times", "three moves"],
    "07-1": ["65", "17 + 48", "position 65", "17+48"],
    "08-1": ["none", "nothing", "no bytes", "0", "0 B", "zero", "0 bytes"],
    "08-3": ["5", "row 5", "4 + 37 mod 12", "(41-4)%12+4", "4 + 1", "five", "4+(41-4) % (16-4)"],
    "06-1": ["all 160 rows"],
    "06-4": ["one of three", "1 out of 3", "only 1"],
    "06-6": ["fourteen", "13 + 1 = 14"],
    "08-7": ["29,952 B", "3 × 13 × 768 B", "29.25 KiB", "30 kB"],
    "08-5": ["3", "three blocks", "2 + 1", "3 blocks"],
}

WRONG: dict[str, list[tuple[str, str]]] = {
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
    "01-6": [
        ("13 * 73", "only run 0"),
        ("85", "with a cache"),
        ("1 + 2 + … + 73", "13 tokens more"),
        ("73*85", "only the last"),
        ("1+2+...+85", "not token by token"),
        ("14 + … + 86", "run 0 is fed the prompt alone"),
        ("3577 B", "is in B"),
    ],
    "01-8": [
        ("64 KiB", "keys *and* values"),
        ("64 KB", "keys *and* values"),
        ("2048", "in every layer"),
        ("4 KiB", "in every layer"),
        ("0.5 MiB", "not for query heads"),
        ("256 KiB", "not for query heads"),
        ("many", "is not a number"),
    ],
    "01-9": [
        ("8", "share one KV head"),
        ("x32", "share one KV head"),
        ("two", "share one KV head"),
        ("32 * 8", "share one KV head"),
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
