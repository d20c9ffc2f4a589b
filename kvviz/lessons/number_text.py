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
_LONGEST = 200


def read_number(text: str, unit: str = "") -> float:
    """The number that a text says.

    Parameters
    ----------
    text : str
        Digits with or without thousands separators, arithmetic with ``+ - * / // **`` and brackets, and behind it a
        unit, which may be left out.
    unit : str
        What is asked for. ``"B"`` takes kB, MB, KiB, MiB and so on as well.

    Raises
    ------
    KvvizError
        If it is no number, or one of something else.
    """
    said = " ".join(text.split())
    found = re.fullmatch(r"(.*?[\d).])?\s*([^\d\s()+*/.,-][^\d()+*/]*)?", said[:_LONGEST])
    amount, told = ((found[1] or ""), (found[2] or "").strip()) if found else ("", "")
    if not amount:
        raise KvvizError(f"{said[:60]!r} is not a number: write digits, or arithmetic such as 2 * 3 * 64")
    if unit == "B" and told.lower() in SCALES:
        scale = SCALES[told.lower()]
    elif told and told.lower().rstrip("s") != unit.lower().rstrip("s"):
        raise KvvizError(f"the answer is asked for in {unit or 'a plain number'}, and {said[:60]!r} is in {told}")
    else:
        scale = 1.0
    plain = re.sub(r"(?<=\d)[,_'\u00a0\u202f ](?=\d{3}(\D|$))", "", amount).replace("×", "*").replace("^", "**")
    # Of a long number every separator is followed by three more digits.
    while plain != (shorter := re.sub(r"(?<=\d)[,_' ](?=\d{3}(?!\d))", "", plain)):
        plain = shorter
    try:
        return scale * _value(ast.parse(plain, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError, MemoryError):
        raise KvvizError(f"{said[:60]!r} is not a number: write digits, or arithmetic such as 2 * 3 * 64") from None


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
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
    whole = abs(number - round(number)) < 1e-9 * max(1.0, abs(number))
    text = f"{round(number):,}" if whole else f"{number:,.4g}"
    return f"{text} {unit}".strip()
