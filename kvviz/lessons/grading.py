"""What is asked for, by its kind, and how far an answer is from it. No Jupyter here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Protocol

from kvviz.errors import KvvizError
from kvviz.lessons.number_text import read_number, write_number

Hint = str | Mapping[Any, str] | Callable[[Any], str | None] | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the engine says of an answer.

    Attributes
    ----------
    right : bool
    text : str
        What is wrong, and the hint for it.
    """

    right: bool
    text: str

    def __bool__(self) -> bool:
        return self.right


class Task(Protocol):
    """One kind of question."""

    @property
    def kind(self) -> str: ...
    def read(self, given: Any) -> Any: ...  # as the kind has it; KvvizError where it cannot be one
    def distance(self, given: Any) -> str | None: ...  # None: right; else by what it is wrong, maybe empty
    def alike(self, given: Any, other: Any) -> bool: ...  # whether a hint for the other one is meant
    def shown(self) -> str: ...  # the answer in words


def grade(task: Task, given: Any, hint: Hint = None) -> Verdict:
    """Hold an answer against what is asked for.

    Raises `KvvizError`: if it is no answer of that kind.
    """
    said = task.read(given)
    wrong = task.distance(said)
    if wrong is None:
        return Verdict(True, "right")
    return Verdict(False, ": ".join(part for part in (wrong, _hint(task, said, hint)) if part) or "not that")


def _hint(task: Task, said: Any, hint: Hint) -> str:
    if hint is None or isinstance(hint, str):
        return hint or ""
    if isinstance(hint, Mapping):
        return next((text for wrong, text in hint.items() if task.alike(said, wrong)), "")
    return hint(said) or ""


@dataclass(frozen=True, slots=True)
class NumberTask:
    """A number. ``tolerance``: by what share of the answer it may be off."""

    answer: float
    unit: str = ""
    tolerance: float = 0.0
    kind: str = "number"

    def read(self, given: Any) -> float:
        if isinstance(given, str):
            return read_number(given, self.unit)
        try:
            return float(given)
        except (TypeError, ValueError):
            raise KvvizError(f"the answer must be a number, not {given!r}") from None

    def alike(self, given: float, other: Any) -> bool:
        return abs(given - self.read(other)) <= self.tolerance * abs(self.answer) + 1e-9 * abs(given)

    def distance(self, given: float) -> str | None:
        if self.alike(given, self.answer):
            return None
        way = "large" if given > self.answer else "small"
        larger, smaller = max(abs(given), abs(self.answer)), min(abs(given), abs(self.answer))
        factor = larger / smaller if smaller else 0.0
        # Of small counts a difference says more.
        if given * self.answer > 0 and larger > 10 and factor > 1.5 and abs(factor - round(factor)) < 1e-6 * factor:
            return f"too {way} by a factor of {round(factor):,}"
        return f"too {way} by {write_number(abs(given - self.answer), self.unit)}"

    def shown(self) -> str:
        return write_number(self.answer, self.unit)


@dataclass(frozen=True, slots=True)
class ChoiceTask:
    """One of several texts."""

    answer: str
    choices: tuple[str, ...]
    kind: str = "choice"

    def read(self, given: Any) -> str:
        # By its number as well; a text that is a choice is meant as it is.
        if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < len(self.choices):
            return self.choices[given]
        if str(given) not in self.choices:
            raise KvvizError(f"{given!r} is none of the choices: {', '.join(map(repr, self.choices))}")
        return str(given)

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
        return (
            f"off by {off:.0%} of the largest value on average, {self.tolerance:.0%} is allowed; "
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
        return bool(given == other)

    def distance(self, given: Any) -> str | None:
        said = self.accept(given)
        return None if said is True else said if isinstance(said, str) else ""

    def shown(self) -> str:
        return self.answer
