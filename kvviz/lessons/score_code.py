"""Scores that a student can hand in: a short code that a teacher reads by eye, or with ``kvviz demo --score``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from kvviz.errors import KvvizError

# Of a question: right at the first try; right after a wrong answer; not right, or its answer was shown.
FIRST, LATER, NONE = 2, 1, 0
_LETTERS = 26


@dataclass(frozen=True, slots=True)
class ScoreCode:
    """What a code says. ``marks``: for each question `FIRST`, `LATER` or `NONE`."""

    lesson: str
    marks: tuple[int, ...]

    def __str__(self) -> str:
        right, first = sum(map(bool, self.marks)), self.marks.count(FIRST)
        missed = ", ".join(str(at) for at, mark in enumerate(self.marks, 1) if mark == NONE)
        open_ones = f"; not right: question {missed}" if missed else ""
        return f"{self.lesson}: {right} of {len(self.marks)} right, {first} at the first try{open_ones}"


def write_score(lesson: str, marks: Sequence[int]) -> str:
    """The code of a lesson's answers: its name, a figure for each question, and two letters that notice a typing error.

    The letters are no secret: whoever wants to can make up a code.

    >>> write_score("story", [2, 1, 0])
    'story-210-HG'
    """
    said = f"{lesson}-{''.join(map(str, marks))}"
    check = reduce(lambda sum, letter: (31 * sum + ord(letter)) % _LETTERS**2, said, 0)
    return f"{said}-{chr(ord('A') + check // _LETTERS)}{chr(ord('A') + check % _LETTERS)}"


def read_score(code: str) -> ScoreCode:
    """What a code says, whatever the case of its letters.

    Raises `KvvizError`: if it is none, or was mistyped.
    """
    found = re.fullmatch(r"([a-z0-9]+)-([012]+)-[a-z]{2}", code.strip().lower())
    if found is None:
        raise KvvizError(f"{code!r} is no score: one looks like {write_score('story', [2, 1, 0])}")
    marks = tuple(map(int, found[2]))
    if write_score(found[1], marks).lower() != code.strip().lower():
        raise KvvizError(f"{code!r} was mistyped: its last two letters do not fit the rest")
    return ScoreCode(found[1], marks)
