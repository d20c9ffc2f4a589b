"""What was answered in a lesson, and the code of it that a student hands in."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from kvviz.lessons.questions.by_number import all_numbers
from kvviz.lessons.score_code import FIRST, LATER, NONE, write_score


@dataclass(frozen=True, slots=True)
class Score:
    """What was answered in a lesson."""

    lesson: str
    asked: int  # questions so far
    right: int  # of them answered right, before the answer was shown
    first: int  # of these right at the first try
    shown: int  # questions whose answer was shown instead
    code: str = ""  # which of them: what a student hands in, and `kvviz.lessons.read_score` reads

    def __str__(self) -> str:
        counts = f"{self.right} of {self.asked} right, {self.first} at the first try"
        shown = f"; the answer of {self.shown} was shown" if self.shown else ""
        code = f"; to hand in: {self.code}" if self.code and self.right else ""
        return f"{self.lesson + ': ' if self.lesson else ''}{counts}{shown}{code}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}</p>"


_lesson = ""
# By lesson and question, so that a cell that runs again asks the same one.
_asked: dict[tuple[str, str], Any] = {}


def begin(lesson: str) -> None:
    """Begin a lesson of this name: questions are counted anew from here."""
    global _lesson
    _lesson = lesson
    for key in [key for key in _asked if key[0] == lesson]:
        del _asked[key]


def present() -> str:
    """The name of the lesson that began last."""
    return _lesson


def enter(question: Any) -> None:
    """Note that a question is asked in its lesson. Questions are distinguished by their texts."""
    _asked[question.lesson, question.question] = question


def questions(lesson: str | None = None) -> list[Any]:
    """The questions of a lesson in the order in which they were asked; of the present one by default."""
    wanted = _lesson if lesson is None else lesson
    return [asked for (name, _), asked in _asked.items() if name == wanted]


def score(lesson: str | None = None) -> Score:
    """How many questions of a lesson were answered right; of the present one by default."""
    asked = questions(lesson)
    right = [one for one in asked if one.right]
    first = sum(one.tries == 1 for one in right)
    shown = sum(one.revealed and not one.right for one in asked)
    return Score(_lesson if lesson is None else lesson, len(asked), len(right), first, shown, _code(asked))


def _code(asked: list[Any]) -> str:
    """`write_score` of all questions of their lesson; those that were not asked count as not right."""
    known = {one.number: one for one in asked if one.number}
    if not known:
        return ""
    prefix = next(iter(known)).partition("-")[0]
    numbers = [number for number in all_numbers() if number.startswith(f"{prefix}-")]
    return write_score(prefix, [_mark(known.get(number)) for number in numbers])


def _mark(question: Any) -> int:
    if question is None or not question.right:
        return NONE
    return FIRST if question.tries == 1 else LATER
