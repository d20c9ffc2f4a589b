"""Kinds of questions: a number, a choice, an op, a curve, what a function accepts; and how far an answer is off."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Protocol

import numpy as np

from kvviz.errors import KvvizError
from kvviz.lessons.questions.written_numbers import is_whole, readings, write_number

Hint = str | Mapping[Any, str] | Callable[[Any], str | None] | None

# Factors that show what was forgotten (keys *and* values, the bytes of a number, a prefix), and not the answer itself;
# a count that is slightly off; and the factor from which on an answer is of another magnitude.
_TELLING = frozenset({*range(2, 17), 32, 64, 100, 1000, 1024, 10**6, 2**20})
_NEAR, _MUCH, _SMALL = 2, 10, 10
_ROUNDS = 0.005  # share of the answer that is lost where one writes 131 kB for 131,072 B


@dataclass(frozen=True, slots=True)
class Verdict:
    """The engine's verdict on an answer; true if it is right."""

    right: bool
    text: str  # what is wrong, and the hint for it

    def __bool__(self) -> bool:
        return self.right


class Task(Protocol):
    @property
    def kind(self) -> str: ...
    def read(self, given: Any) -> Any: ...  # as the kind has it; KvvizError where it cannot be one
    def distance(self, given: Any) -> str | None: ...  # None: right; else by what it is wrong, maybe empty
    def alike(self, given: Any, other: Any) -> bool: ...  # whether a hint for the other one is meant
    def shown(self) -> str: ...  # the answer in words


def grade(task: Task, given: Any, hint: Hint = None) -> Verdict:
    """Compare an answer with the right one; raises `KvvizError` if it is not of the right kind."""
    answer = task.read(given)
    wrong = task.distance(answer)
    if wrong is None:
        return Verdict(True, "right" + getattr(task, "read_as", lambda given: "")(given))
    return Verdict(False, ": ".join(part for part in (wrong, _hint(task, answer, hint)) if part) or "not that")


def _hint(task: Task, answer: Any, hint: Hint) -> str:
    if hint is None or isinstance(hint, str):
        return hint or ""
    if isinstance(hint, Mapping):
        return next((text for wrong, text in hint.items() if task.alike(answer, wrong)), "")
    try:
        return hint(answer) or ""
    except Exception as error:  # a teacher's function; the answer is wrong all the same
        return f"(the hint of this question failed: {type(error).__name__}: {error})"


@dataclass(frozen=True, slots=True)
class NumberTask:
    answer: float
    unit: str = ""
    tolerance: float = 0.0  # share of the answer that it may be off
    kind: str = "number"

    def read(self, given: Any) -> float:
        try:
            number = self._nearest(given)[0] if isinstance(given, str) else float(given)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise KvvizError(f"the answer must be a finite number, not {str(given)[:60]!r}")
        return number

    def _nearest(self, given: str) -> tuple[float, str]:
        """The written number, rounded figures with a larger unit as the answer, and how it was read."""
        number, how = min(readings(given, self.unit), key=lambda one: abs(one[0] - self.answer))
        near = abs(number - self.answer) <= _ROUNDS * abs(self.answer)
        return (self.answer if how and near else number), how

    def read_as(self, given: Any) -> str:
        """A remark on the unit of a right answer, if it is not the requested one."""
        how = self._nearest(given)[1] if isinstance(given, str) else ""
        return f": {how}" if how else ""

    def alike(self, given: float, other: Any) -> bool:
        return abs(given - self.read(other)) <= max(self.tolerance, 1e-9) * abs(self.answer)

    def distance(self, given: float) -> str | None:
        """How far off, if that shows what was forgotten, and not the answer itself."""
        if self.alike(given, self.answer):
            return None
        way = "large" if given > self.answer else "small"
        larger, smaller = max(abs(given), abs(self.answer)), min(abs(given), abs(self.answer))
        factor = larger / smaller if smaller else 2.0 * _MUCH
        off = abs(given - self.answer)
        # For a small count, or for 1, either would reveal the answer; except half of it, the most common mistake.
        if abs(given) == 1 or (larger <= _SMALL and factor != 2):
            return f"too {way}"
        if given * self.answer > 0 and is_whole(factor) and round(factor) in _TELLING:
            return f"too {way} by a factor of {round(factor):,}"
        if is_whole(off) and off <= _NEAR:
            return f"too {way} by {write_number(off, self.unit)}"
        return f"{'much ' if factor > _MUCH else ''}too {way}"

    def shown(self) -> str:
        return write_number(self.answer, self.unit)


@dataclass(frozen=True, slots=True)
class ChoiceTask:
    answer: str
    choices: tuple[str, ...]
    kind: str = "choice"

    def read(self, given: Any) -> str:
        # A choice counts as such; a number may be its position.
        if str(given) in self.choices:
            return str(given)
        if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < len(self.choices):
            return self.choices[given]
        raise KvvizError(f"{given!r} is none of the choices: {', '.join(map(repr, self.choices))}")

    def alike(self, given: str, other: Any) -> bool:
        return given == str(other)

    def distance(self, given: str) -> str | None:
        return None if given == self.answer else ""

    def shown(self) -> str:
        return self.answer


@dataclass(frozen=True, slots=True)
class OpTask:
    """An op of a graph, by its name, or any op of a kind."""

    answers: tuple[str, ...]
    nodes: tuple[tuple[str, str], ...]  # name and kind of each that there is
    kind: str = "op"

    def read(self, given: Any) -> str:
        name = str(getattr(given, "node", getattr(given, "name", given))).strip()
        known = dict.fromkeys([*(kind for _, kind in self.nodes), *(name for name, _ in self.nodes)])
        if name not in known:  # a kind as people say it: *the reshapes*
            bare = re.sub(r"^(?:an?|the) | ops?$", "", name, flags=re.I).lower()
            name = next((one for one in known if one.lower() in (bare, bare.removesuffix("s"))), name)
        ends = [one for one in known if one.endswith(f"/{name}")]
        if name not in known and len(ends) != 1:
            near = get_close_matches(name, known, 3)
            raise KvvizError(f"there is no op {name!r} here" + (f"; near it: {', '.join(near)}" if near else ""))
        return name if name in known else ends[0]

    def alike(self, given: str, other: Any) -> bool:
        return str(getattr(other, "node", other)) in (given, dict(self.nodes).get(given))

    def distance(self, given: str) -> str | None:
        if given in self.answers or dict(self.nodes).get(given) in self.answers:
            return None
        meant = any(kind == given and name in self.answers for name, kind in self.nodes)
        return f"it is one of the {given} ops: which, by its name" if meant else ""

    def shown(self) -> str:
        return " or ".join(self.answers)


@dataclass(frozen=True, slots=True)
class CurveTask:
    answer: tuple[float, ...]
    unit: str
    labels: tuple[str, ...]  # one for each point
    top: float  # of the scale
    tolerance: float  # mean distance from the true points that is allowed, as a share of the largest true one
    accept: Callable[[Any], bool | str] | None = None  # what the curve is asked for: True, or what is wrong with it
    kind: str = "curve"

    def read(self, given: Any) -> tuple[float, ...]:
        try:
            points = tuple(float(one) for one in given)
        except (TypeError, ValueError):
            raise KvvizError("the answer is a curve: a number for each point, none left out") from None
        if len(points) != len(self.answer):
            raise KvvizError(f"the curve has {len(self.answer)} points, and {len(points)} were given")
        if not all(map(math.isfinite, points)):
            raise KvvizError("the answer is a curve: each point must be a finite number")
        return points

    def alike(self, given: Any, other: Any) -> bool:
        return isinstance(other, Sequence) and not isinstance(other, str) and self.error(given, other) <= self.tolerance

    def error(self, given: Sequence[float], true: Sequence[float]) -> float:
        """Mean distance of the points, as a share of the largest true one."""
        scale = max(map(abs, self.answer)) or self.top
        return sum(abs(a - b) for a, b in zip(given, true)) / len(self.answer) / scale

    def distance(self, given: tuple[float, ...]) -> str | None:
        off = self.error(given, self.answer)
        if off <= self.tolerance:
            wrong = self.accept(given) if self.accept else True
            return wrong if isinstance(wrong, str) else None
        worst = max(range(len(given)), key=lambda i: abs(given[i] - self.answer[i]))
        way = "low" if given[worst] < self.answer[worst] else "high"
        digits = 0 if f"{off:.0%}" != f"{self.tolerance:.0%}" else 1
        return (
            f"off by {off:.{digits}%} of the largest value on average, {self.tolerance:.{digits}%} is allowed; "
            f"furthest at {self.labels[worst]}, where it is too {way}"
        )

    def shown(self) -> str:
        values = (*self.answer[:3], self.answer[-1], min(self.answer), max(self.answer))
        *first, last, low, high = (write_number(value, self.unit) for value in values)
        return f"{', '.join(first)} … {last} (least {low}, most {high})"


@dataclass(frozen=True, slots=True)
class OwnTask:
    """Anything that a function of the lesson accepts: an order of ops, a patched graph. Answered in Python."""

    accept: Callable[[Any], bool | str]  # True, or what is wrong with it
    answer: str
    unit: str = "question.grade(…)"  # the line that answers it
    kind: str = "own"

    def read(self, given: Any) -> Any:
        return given

    def alike(self, given: Any, other: Any) -> bool:
        return bool(np.array_equal(given, other))

    def distance(self, given: Any) -> str | None:
        try:
            wrong = self.accept(given)
        except Exception as error:  # of what the learner wrote
            wrong = f"it failed: {type(error).__name__}: {error}"
        return wrong if isinstance(wrong, str) else None if wrong else ""

    def shown(self) -> str:
        return self.answer
