"""What can be asked for: a number, a choice, an op, a curve, what a function accepts; and how far an answer is off."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from kvviz.errors import KvvizError
from kvviz.lessons.number_text import is_whole, read_number, write_number

# Factors that name what was forgotten (keys *and* values, the bytes of a number, a prefix), and not the answer itself;
# a count that is so little off; and from where on an answer is of another size.
_TELLING = frozenset({*range(2, 17), 32, 64, 100, 1000, 1024, 10**6, 2**20})
_NEAR, _MUCH, _SMALL = 2, 10, 10


@dataclass(frozen=True, slots=True)
class NumberTask:
    """A number. ``tolerance``: by what share of the answer it may be off."""

    answer: float
    unit: str = ""
    tolerance: float = 0.0
    kind: str = "number"

    def read(self, given: Any) -> float:
        try:
            number = read_number(given, self.unit) if isinstance(given, str) else float(given)
        except (TypeError, ValueError, OverflowError):
            raise KvvizError(f"the answer must be a number, not {str(given)[:60]!r}") from None
        if not math.isfinite(number):
            raise KvvizError(f"the answer must be a finite number, not {str(given)[:60]!r}")
        return number

    def alike(self, given: float, other: Any) -> bool:
        return abs(given - self.read(other)) <= max(self.tolerance, 1e-9) * abs(self.answer)

    def distance(self, given: float) -> str | None:
        """How far off, as far as that tells what was forgotten, and not what the answer is."""
        if self.alike(given, self.answer):
            return None
        way = "large" if given > self.answer else "small"
        larger, smaller = max(abs(given), abs(self.answer)), min(abs(given), abs(self.answer))
        factor = larger / smaller if smaller else 2.0 * _MUCH
        off = abs(given - self.answer)
        # Of a small count, or of 1, either would be the answer; but for half of it, which is forgotten most often.
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
    """One of several texts."""

    answer: str
    choices: tuple[str, ...]
    kind: str = "choice"

    def read(self, given: Any) -> str:
        # What is a choice is meant as it is; a number may count them.
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
    """An op of a graph, by its name, or any of a kind. ``nodes``: name and kind of each that there is."""

    answers: tuple[str, ...]
    nodes: tuple[tuple[str, str], ...]
    kind: str = "op"

    def read(self, given: Any) -> str:
        said = str(getattr(given, "node", getattr(given, "name", given))).strip()
        names = {name for name, _ in self.nodes}
        kinds = {op for _, op in self.nodes}
        if said in names or said in kinds:
            return said
        ends = [name for name in names if name.endswith(f"/{said}")]
        if len(ends) == 1:
            return ends[0]
        near = get_close_matches(said, [*kinds, *names], 3)
        hint = f"; near it: {', '.join(near)}" if near else ""
        raise KvvizError(f"there is no op {said!r} here{hint}")

    def alike(self, given: str, other: Any) -> bool:
        return str(getattr(other, "node", other)) in (given, dict(self.nodes).get(given))

    def distance(self, given: str) -> str | None:
        kind = dict(self.nodes).get(given)
        if given in self.answers or kind in self.answers:
            return None
        if kind is None:
            wanted = [name for name, op in self.nodes if op == given and name in self.answers]
            if wanted:
                return f"it is one of the {given} ops: which, by its name"
        return ""

    def shown(self) -> str:
        return " or ".join(self.answers)


@dataclass(frozen=True, slots=True)
class CurveTask:
    """A series that is drawn.

    ``tolerance``: how far the drawn points may be from the true ones on average, as a share of the largest true one.
    ``top``: of the scale. ``labels``: one for each point.
    """

    answer: tuple[float, ...]
    unit: str
    labels: tuple[str, ...]
    top: float
    tolerance: float
    kind: str = "curve"

    def read(self, given: Any) -> tuple[float, ...]:
        try:
            said = tuple(float(one) for one in given)
        except (TypeError, ValueError):
            raise KvvizError("the answer is a curve: a number for each point, none left out") from None
        if len(said) != len(self.answer):
            raise KvvizError(f"the curve has {len(self.answer)} points, and {len(said)} were given")
        if not all(map(math.isfinite, said)):
            raise KvvizError("the answer is a curve: each point must be a finite number")
        return said

    def alike(self, given: Any, other: Any) -> bool:
        return isinstance(other, Sequence) and not isinstance(other, str) and self.error(given, other) <= self.tolerance

    def error(self, given: Sequence[float], of: Sequence[float] | None = None) -> float:
        """Mean distance of the points, as a share of the largest true one."""
        true = self.answer if of is None else of
        scale = max(map(abs, self.answer)) or self.top
        return sum(abs(a - b) for a, b in zip(given, true)) / len(self.answer) / scale

    def distance(self, given: tuple[float, ...]) -> str | None:
        off = self.error(given)
        if off <= self.tolerance:
            return None
        worst = max(range(len(given)), key=lambda i: abs(given[i] - self.answer[i]))
        way = "low" if given[worst] < self.answer[worst] else "high"
        digits = 0 if f"{off:.0%}" != f"{self.tolerance:.0%}" else 1
        return (
            f"off by {off:.{digits}%} of the largest value on average, {self.tolerance:.{digits}%} is allowed; "
            f"furthest at {self.labels[worst]}, where it is too {way}"
        )

    def shown(self) -> str:
        low, high = min(self.answer), max(self.answer)
        ends = ", ".join(write_number(value, self.unit) for value in self.answer[:3])
        return f"{ends} … {write_number(self.answer[-1], self.unit)} (least {write_number(low, self.unit)}, " + (
            f"most {write_number(high, self.unit)})"
        )


@dataclass(frozen=True, slots=True)
class OwnTask:
    """Whatever a function of the lesson accepts: an order of ops, a patched graph. Answered in Python.

    ``accept``: says whether it is right, or what is wrong with it.
    """

    accept: Callable[[Any], bool | str]
    answer: str
    kind: str = "own"

    def read(self, given: Any) -> Any:
        return given

    def alike(self, given: Any, other: Any) -> bool:
        return bool(np.array_equal(given, other))

    def distance(self, given: Any) -> str | None:
        said = self.accept(given)
        return said if isinstance(said, str) else None if said else ""

    def shown(self) -> str:
        return self.answer
