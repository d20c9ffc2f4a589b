"""Runs after the last cell of a lesson: each question takes its own answer, and each wrong answer gets its hint."""

from collections.abc import Mapping
from typing import Any

from kvviz.lessons.questions.answer_kinds import ChoiceTask, CurveTask, NumberTask, OpTask, OwnTask
from kvviz.lessons.questions.score import questions

# Wrong answers to questions whose hint is worked out of what was given, each with a part of that hint.
WRONG: dict[str, list[tuple[Any, str]]] = {
    "01-5": [([13] * 12, "longer by each word"), ([1] * 12, "reads the prompt")],
    "01-10": [("step", "the function itself")],
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
        for given, text in WRONG.get(question.number, ()):
            said = question.grade(given)
            assert not said.right and text in said.text, f"{question.number}: {given!r} is told {said.text!r}"
        assert hint or task.kind == "own", f"{question.question}: no hint for a wrong answer"
    return len(asked)


if __name__ == "__main__":
    print(check(), "questions")
