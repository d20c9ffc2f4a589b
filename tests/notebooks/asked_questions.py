"""Runs behind the last cell of a lesson: each question takes its own answer, and each wrong answer gets its hint."""

from collections.abc import Mapping
from typing import Any

from kvviz.lessons.questions.answer_kinds import ChoiceTask, CurveTask, NumberTask, OpTask
from kvviz.lessons.questions.question import questions


def right_answer(task: Any) -> Any:
    if isinstance(task, OpTask):
        return task.answers[0]
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
        assert hint or task.kind == "own", f"{question.question}: no hint for a wrong answer"
    return len(asked)


if __name__ == "__main__":
    print(check(), "questions")
