"""Numbers as people write them: ``4,992 B``, ``1.5 KiB``, ``2 * 3 * 64``."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable

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
    ast.Pow: operator.pow,
}
_MOST_POWER = 64  # a larger one would take long to work out
_LONGEST = 4000  # a sum of a few hundred numbers is an answer, too
# Other signs that people write, or copy from a page, for those of Python.
_SIGNS = str.maketrans({"−": "-", "–": "-", "×": "*", "·": "*", "⋅": "*", "÷": "/", "^": "\x00", "’": "'"})


def read_number(text: str, unit: str = "") -> float:
    """The number that a text says.

    ``text``: digits with or without thousands separators, arithmetic with ``+ - * / // **`` and brackets, and behind it
    a unit, which may be left out.
    ``unit``: what is asked for. ``"B"`` takes kB, MB, KiB, MiB and so on as well. Where no unit is asked for, a word
    behind the number is taken for what is counted.

    Raises `KvvizError`: if it is no number, or one of something else.
    """
    given = " ".join(text.split())
    if len(given) > _LONGEST:
        raise KvvizError(f"the answer has {len(given):,} characters; write it in {_LONGEST:,} at most")
    refused = KvvizError(f"{given[:60]!r} is not a number: write digits, or arithmetic such as 2 * 3 * 64")
    found = re.fullmatch(r"(.*?[\d).])\s*([^\d\s()+*/.,-][^\d()+*/]*)?", given)
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
        return scale * _value(ast.parse(plain.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError, MemoryError):
        raise refused from None


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
    # Figures behind the point as a reader can use them: four in all, and one at least.
    text = f"{number:,.1f}" if abs(number) >= 1000 else f"{number:.4g}"
    text = f"{round(number):,}" if is_whole(number) else text
    one = abs(number) == 1 and len(unit) > 1
    return f"{text} {unit.removesuffix('s') if one else unit}".strip()


def is_whole(number: float) -> bool:
    """Whether it is a whole number, but for what rounding leaves of one."""
    return abs(number - round(number)) <= 1e-9 * abs(number)
