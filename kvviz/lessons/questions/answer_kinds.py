"""What can be asked for: a number, a choice, an op, a curve, what a function accepts; by what an answer is off."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Protocol

import numpy as np

from kvviz.errors import KvvizError
from kvviz.query.grammar import UNITS

_BYTES = {unit.lower(): float(size) for unit, size in UNITS.items() if "B" in unit}
_BYTES |= {"": 1.0, "byte": 1.0, "tb": 1e12, "tib": 2.0**40}
_BOTH: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_MOST_POWER = 64  # a larger one would take long to work out
_LONGEST = 4000  # a sum of a few hundred numbers is an answer, too
# Other signs that people write, or copy from a page, for those of Python.
_SIGNS = str.maketrans({"−": "-", "–": "-", "×": "*", "·": "*", "⋅": "*", "÷": "/", "^": "\x00", "’": "'"})
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_DIGITS = {word: str(number) for number, word in enumerate(_WORDS)}
# What may stand before a number: a word for what is counted, as in ``row 5``, or for about, and in ``x4`` a sign.
_BEFORE = re.compile(r"^(?:[a-z]+\s+|[=≈~]\s*|[x×]\s*(?=\d))+(?=[-+−(\d])", re.I)
# ``13 + 14 + … + 85`` has equal steps; without a second number the step is 1.
_SERIES = re.compile(r"(\d+)\s*\+\s*(?:(\d+)\s*\+\s*)?(?:\d+\s*\+\s*)*(?:…|\.\.\.?)\s*\+\s*(\d+)")
_SLOPPY = {"kb": 2.0**10, "mb": 2.0**20, "gb": 2.0**30}  # what is often meant by them
_ROUNDS = 0.005  # share of the answer that is lost where one writes 131 kB for 131,072 B


def read_number(text: str, unit: str = "") -> float:
    """The number that a text says.

    ``text``: digits with or without thousands separators, arithmetic with ``+ - * / // % mod **`` and brackets, a sum
    with an ellipsis, or a word such as *four*, and after it a unit, which may be left out.
    ``unit``: what is asked for. ``"B"`` takes kB, MB, KiB, MiB and so on as well. Where no unit is asked for, a word
    before or after the number is taken for what is counted.

    Raises `KvvizError`: if it is no number, or one of something else.
    """
    return readings(text, unit)[0][0]


def readings(text: str, unit: str = "") -> list[tuple[float, str]]:
    """What a text may say, each with how it was read: by its unit, then by the one that is often meant by it."""
    given = " ".join(text.split())
    if len(given) > _LONGEST:
        raise KvvizError(f"the answer has {len(given):,} characters; write it in {_LONGEST:,} at most")
    refused = KvvizError(f"{given[:60]!r} is not a number: write digits, or arithmetic such as 2 * 3 * 64")
    digits = re.sub(r"[a-zA-Z]+", lambda word: _DIGITS.get(word[0].lower(), word[0]), given)
    digits = re.sub(r"^(\d+),(\d\d?)(?!\d)", r"\1.\2", digits)  # a decimal comma
    digits = re.sub(r"\bmod\b", "%", _BEFORE.sub("", digits), flags=re.I)
    found = re.fullmatch(r"(.*?[\d).])\s*([^\d\s()+*/.,-][^\d()+*/]*)?", digits)
    if found is None:
        raise refused
    word = (found[2] or "").strip()
    scale = _scale(word.lower().rstrip("s"), unit)
    if scale is None:
        raise KvvizError(f"the answer is asked for in {unit or 'a plain number'}, and {given[:60]!r} is in {word}")
    plain = re.sub(r"(?<=\d)[,_'\u00a0\u202f ](?=\d{3}(\D|$))", "", found[1].translate(_SIGNS)).replace("\x00", "**")
    # Of a long number every separator is followed by three more digits.
    while plain != (shorter := re.sub(r"(?<=\d)[,_' ](?=\d{3}(?!\d))", "", plain)):
        plain = shorter
    plain = re.sub(r"(?<![\w.])0+(?=\d)", "", plain)
    try:
        value = _value(ast.parse(_SERIES.sub(_summed, plain).strip(), mode="eval").body)
        scales = dict.fromkeys((scale, _SLOPPY.get(word.lower(), scale) if unit == "B" else scale))
        how = f"{found[1]} {word} read as {found[1]} × "
        return [(one * value, f"{how}{one:,.0f} B" if one != 1 else "") for one in scales]
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError, MemoryError):
        raise refused from None


def _summed(series: re.Match[str]) -> str:
    first, second, last = (int(one) if one else None for one in series.groups())
    assert first is not None and last is not None
    step = 1 if second is None else second - first
    count, rest = divmod(last - first, step)  # a step of 0 is refused with what divides by it
    if rest or count < 0:
        raise ValueError
    return f"({(first + last) * (count + 1) // 2})"


def _scale(word: str, unit: str) -> float | None:
    """What one of the unit that was written is in the unit that is asked for; None where it is of another kind."""
    if unit == "B" and word in _BYTES:
        return _BYTES[word]
    counts = not unit and word not in _BYTES and word != "%"
    return 1.0 if not word or word == unit.lower().rstrip("s") or counts else None


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return -_value(node.operand) if isinstance(node.op, ast.USub) else _value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _BOTH:
        left, right = _value(node.left), _value(node.right)
        if not isinstance(node.op, ast.Pow) or abs(right) <= _MOST_POWER:
            made = _BOTH[type(node.op)](left, right)
            if isinstance(made, float) and made == made:
                return made
    raise ValueError


def write_number(number: float, unit: str = "") -> str:
    """A number as a reader expects it: ``4,992 B``, ``0.25``."""
    # Figures after the point as a reader can use them: four in all, and one at least.
    text = f"{number:,.1f}" if abs(number) >= 1000 else f"{number:.4g}"
    text = f"{round(number):,}" if is_whole(number) else text
    one = abs(number) == 1 and len(unit) > 1
    return f"{text} {unit.removesuffix('s') if one else unit}".strip()


def is_whole(number: float) -> bool:
    """Whether it is a whole number, but for what rounding leaves of one."""
    return abs(number - round(number)) <= 1e-9 * abs(number)


Hint = str | Mapping[Any, str] | Callable[[Any], str | None] | None

# Factors that name what was forgotten (keys *and* values, the bytes of a number, a prefix), and not the answer itself;
# a count that is so little off; and from where on an answer is of another size.
_TELLING = frozenset({*range(2, 17), 32, 64, 100, 1000, 1024, 10**6, 2**20})
_NEAR, _MUCH, _SMALL = 2, 10, 10


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the engine says of an answer; true if it is right."""

    right: bool
    text: str  # what is wrong, and the hint for it

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
    """Compare an answer with what is asked for.

    Raises `KvvizError`: if it is no answer of that kind.
    """
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
    """A number."""

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
        """What is written, rounded figures with a larger unit as the answer, and how it was read."""
        number, how = min(readings(given, self.unit), key=lambda one: abs(one[0] - self.answer))
        near = abs(number - self.answer) <= _ROUNDS * abs(self.answer)
        return (self.answer if how and near else number), how

    def read_as(self, given: Any) -> str:
        """What is said of the unit of a right answer, where it is not the one that was asked for."""
        how = self._nearest(given)[1] if isinstance(given, str) else ""
        return f": {how}" if how else ""

    def alike(self, given: float, other: Any) -> bool:
        return abs(given - self.read(other)) <= max(self.tolerance, 1e-9) * abs(self.answer)

    def distance(self, given: float) -> str | None:
        """How far off, as far as that shows what was forgotten, and not what the answer is."""
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
    """An op of a graph, by its name, or any of a kind."""

    answers: tuple[str, ...]
    nodes: tuple[tuple[str, str], ...]  # name and kind of each that there is
    kind: str = "op"

    def read(self, given: Any) -> str:
        name = str(getattr(given, "node", getattr(given, "name", given))).strip()
        known = dict.fromkeys([*(kind for _, kind in self.nodes), *(name for name, _ in self.nodes)])
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
    """A series that is drawn."""

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
    """Whatever a function of the lesson accepts: an order of ops, a patched graph. Answered in Python."""

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
