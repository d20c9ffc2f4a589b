"""What was answered in a lesson, and the code of it that a student hands in."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from html import escape
from typing import Any

from kvviz.errors import KvvizError
from kvviz.lessons.questions.by_number import all_numbers


@dataclass(frozen=True, slots=True)
class Score:
    """What was answered in a lesson."""

    lesson: str
    asked: int  # questions so far
    right: int  # of them answered right, before the answer was shown
    first: int  # of these right at the first try
    shown: int  # questions whose answer was shown instead
    code: str = ""  # which of them: what a student hands in, and `read_code` reads

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


# By its sign: what became of a question.
_KINDS = {"1": "right at the first try", "2": "right", "s": "its answer was shown", "-": "open"}


def _code(asked: list[Any]) -> str:
    """A sign for each question of the lesson that these belong to, and three figures that hold them together."""
    known = {one.number: one for one in asked if one.number}
    if not known:
        return ""
    prefix = next(iter(known)).partition("-")[0]
    signs = ""
    for number in all_numbers():
        if number.startswith(f"{prefix}-"):
            one = known.get(number)
            if one is None or not (one.right or one.revealed):
                signs += "-"
            else:
                signs += "s" if not one.right else "1" if one.tries == 1 else "2"
    return f"{prefix}:{signs}.{_check(prefix, signs)}"


def _check(prefix: str, signs: str) -> str:
    return f"{zlib.crc32(f'{prefix}:{signs}'.encode()) % 1000:03d}"


def read_code(code: str) -> dict[str, str]:
    """What a student handed in: by the number of each question, what became of it.

    Raises `KvvizError`: if it was not copied as `score` printed it. (It guards against slips, not against cheating.)
    """
    found = re.fullmatch(r"(\w+):([12s-]+)\.(\d{3})", code.strip())
    numbers = [number for number in all_numbers() if found and number.startswith(f"{found[1]}-")]
    if found is None or _check(found[1], found[2]) != found[3] or len(found[2]) != len(numbers):
        raise KvvizError(f"{code!r} is not a code as kvviz.lessons.score() prints it: ask for it again")
    return {number: _KINDS[sign] for number, sign in zip(numbers, found[2])}
