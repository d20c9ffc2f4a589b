"""The answers of a lesson, and their code that a student hands in: a teacher reads it by eye, or with ``kvviz demo
--score``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from html import escape
from typing import Any

from kvviz.errors import KvvizError
from kvviz.lessons.questions.by_number import all_numbers

# Marks of a question: right at the first try; right after a wrong answer; not right, or its answer was shown.
FIRST, LATER, NONE = 2, 1, 0
_LETTERS = 26


@dataclass(frozen=True, slots=True)
class ScoreCode:
    """The content of a code. ``marks``: for each question `FIRST`, `LATER` or `NONE`."""

    lesson: str
    marks: tuple[int, ...]

    def __str__(self) -> str:
        right, first = sum(map(bool, self.marks)), self.marks.count(FIRST)
        missed = ", ".join(str(at) for at, mark in enumerate(self.marks, 1) if mark == NONE)
        open_ones = f"; not right: question {missed}" if missed else ""
        return f"{self.lesson}: {right} of {len(self.marks)} right, {first} at the first try{open_ones}"


def write_score(lesson: str, marks: Sequence[int]) -> str:
    """The code of a lesson's answers: its name, a figure for each question, and two letters that detect typing errors.

    The letters are no secret: anyone can make up a code.

    >>> write_score("story", [2, 1, 0])
    'story-210-HG'
    """
    said = f"{lesson}-{''.join(map(str, marks))}"
    check = reduce(lambda sum, letter: (31 * sum + ord(letter)) % _LETTERS**2, said, 0)
    return f"{said}-{chr(ord('A') + check // _LETTERS)}{chr(ord('A') + check % _LETTERS)}"


def read_score(code: str) -> ScoreCode:
    """The content of a code, in upper or lower case.

    Raises `KvvizError`: if it is not a code, or was mistyped.
    """
    found = re.fullmatch(r"([a-z0-9]+)-([012]+)-[a-z]{2}", code.strip().lower())
    if found is None:
        raise KvvizError(f"{code!r} is no score: one looks like {write_score('story', [2, 1, 0])}")
    marks = tuple(map(int, found[2]))
    if write_score(found[1], marks).lower() != code.strip().lower():
        raise KvvizError(f"{code!r} was mistyped: its last two letters do not fit the rest")
    return ScoreCode(found[1], marks)


@dataclass(frozen=True, slots=True)
class Score:
    """The answers of a lesson."""

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
    """Begin a lesson of this name; the count of questions restarts."""
    global _lesson
    _lesson = lesson
    for key in [key for key in _asked if key[0] == lesson]:
        del _asked[key]


def present() -> str:
    return _lesson


def enter(question: Any) -> None:
    """Note that a question is asked in its lesson. Questions are distinguished by their texts."""
    _asked[question.lesson, question.question] = question


def questions(lesson: str | None = None) -> list[Any]:
    """The questions of a lesson in the order in which they were asked; of the present one by default."""
    wanted = _lesson if lesson is None else lesson
    return [asked for (name, _), asked in _asked.items() if name == wanted]


def score(lesson: str | None = None) -> Score:
    """How many questions of a lesson, by default the current one, were answered right."""
    asked = questions(lesson)
    right = [one for one in asked if one.right]
    first = sum(one.tries == 1 for one in right)
    shown = sum(one.revealed and not one.right for one in asked)
    return Score(_lesson if lesson is None else lesson, len(asked), len(right), first, shown, _code(asked))


def _code(asked: list[Any]) -> str:
    """`write_score` of all questions of their lesson; unasked ones count as not right."""
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
