"""Numbers as people write them: ``4,992 B``, ``1.5 KiB``, ``2 * 3 * 64``."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable

from kvviz.errors import KvvizError

# Of bytes: decimal units and binary ones, as IEC 80000-13 has them.
SCALES = {
    "": 1.0,
    "b": 1.0,
    **{f"{letter}b": 1000.0**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024.0**power for power, letter in enumerate("kmgt", 1)},
}
_BOTH: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
# A power larger than this would take long to work out.
_MOST_POWER = 64
# A sum of a few hundred numbers is an answer, too.
_LONGEST = 4000
# Other signs that people write, or copy from a page, for those of Python.
_SIGNS = str.maketrans({"−": "-", "–": "-", "×": "*", "·": "*", "⋅": "*", "÷": "/", "^": "\x00", "’": "'"})


def read_number(text: str, unit: str = "") -> float:
    """The number that a text says.

    Parameters
    ----------
    text : str
        Digits with or without thousands separators, arithmetic with ``+ - * / // **`` and brackets, and behind it a
        unit, which may be left out.
    unit : str
        What is asked for. ``"B"`` takes kB, MB, KiB, MiB and so on as well. Where no unit is asked for, a word behind
        the number is taken for what is counted.

    Raises
    ------
    KvvizError
        If it is no number, or one of something else.
    """
    said = " ".join(text.split())
    if len(said) > _LONGEST:
        raise KvvizError(f"the answer has {len(said):,} characters; write it in {_LONGEST:,} at most")
    found = re.fullmatch(r"(.*?[\d).])?\s*([^\d\s()+*/.,-][^\d()+*/]*)?", said)
    amount, told = ((found[1] or ""), (found[2] or "").strip()) if found else ("", "")
    if not amount:
        raise _no_number(said)
    scale = _scale(told, unit)
    if scale is None:
        raise KvvizError(f"the answer is asked for in {unit or 'a plain number'}, and {said[:60]!r} is in {told}")
    plain = re.sub(r"(?<=\d)[,_'\u00a0\u202f ](?=\d{3}(\D|$))", "", amount.translate(_SIGNS)).replace("\x00", "**")
    # Of a long number every separator is followed by three more digits.
    while plain != (shorter := re.sub(r"(?<=\d)[,_' ](?=\d{3}(?!\d))", "", plain)):
        plain = shorter
    plain = re.sub(r"(?<![\w.])0+(?=\d)", "", plain)
    try:
        return scale * _value(ast.parse(plain.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError, MemoryError):
        raise _no_number(said) from None


def _no_number(said: str) -> KvvizError:
    return KvvizError(f"{said[:60]!r} is not a number: write digits, or arithmetic such as 2 * 3 * 64")


def _scale(told: str, unit: str) -> float | None:
    """What one of the unit that was written is in the unit that is asked for; None where it is of another kind."""
    word, wanted = told.lower().rstrip("s"), unit.lower().rstrip("s")
    word = "b" if word == "byte" else word
    if unit == "B" and word in SCALES:
        return SCALES[word]
    counts = not unit and word not in SCALES and word != "%"
    return 1.0 if not word or word == wanted or counts else None


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return -_value(node.operand) if isinstance(node.op, ast.USub) else _value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _BOTH:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow) and abs(right) > _MOST_POWER:
            raise ValueError
        made = _BOTH[type(node.op)](left, right)
        if isinstance(made, complex) or made != made:
            raise ValueError
        return made
    raise ValueError


def write_number(number: float, unit: str = "") -> str:
    """A number as a reader expects it: ``4,992 B``, ``0.25``."""
    whole = is_whole(number)
    # Figures behind the point as a reader can use them: four in all, and one at least.
    text = f"{round(number):,}" if whole else f"{number:,.1f}" if abs(number) >= 1000 else f"{number:.4g}"
    one = abs(number) == 1 and len(unit) > 1 and unit.endswith("s")
    return f"{text} {unit.removesuffix('s') if one else unit}".strip()


def is_whole(number: float) -> bool:
    """Whether it is a whole number, but for what rounding leaves of one."""
    return abs(number - round(number)) <= 1e-9 * abs(number)
