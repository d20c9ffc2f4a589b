"""Numbers as people write them: with units, as arithmetic, in words, with a remark beside them."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable

from kvviz.errors import KvvizError
from kvviz.query.grammar import UNITS

_BYTES = {unit.lower(): float(size) for unit, size in UNITS.items() if "B" in unit}
_BYTES |= {"": 1.0, "byte": 1.0, "tb": 1e12, "tib": 2.0**40, "k": 1e3, "m": 1e6, "g": 1e9}
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
# Common variants, also copied from pages, of Python's signs.
_SIGNS = str.maketrans({"−": "-", "–": "-", "×": "*", "·": "*", "⋅": "*", "÷": "/", "^": "\x00", "’": "'"})
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_DIGITS = {word: str(number) for number, word in enumerate(_WORDS)} | {"fourteen": "14", "sixteen": "16"}
_DIGITS |= {f"{word}fold": digits for word, digits in _DIGITS.items()} | dict.fromkeys(("no", "none", "nothing"), "0")
# What may follow a number: *in all*, *a token*, *of 3*, *(13 + 3)*; and inside a product: the counted thing.
_AFTER = re.compile(r"(?:\b(?:per|an?|of|out of) \w+|/ ?[a-z]+|\bin (?:all|total)|\bat most|(?<=\d) \(.*\))$", re.I)
_COUNTED = re.compile(r"(?<=\d) ?(?:b|byte|row|key|layer|head|block|word|token|cache|beam)s?(?= ?[-+*/)]| rows)", re.I)
_TIMES = re.compile(r"(?<=\d) ?(?:times|x) ?(?=\d)", re.I)
# What may precede a number: a word for the counted thing, as in ``row 5``, or for about, and in ``x4`` a sign.
_BEFORE = re.compile(r"^(?:[a-z]+\s+|[=≈~]\s*|[x×]\s*(?=\d))+(?=[-+−(\d])", re.I)
# ``13 + 14 + … + 85`` has equal steps; without a second number the step is 1.
_SERIES = re.compile(r"(\d+)\s*\+\s*(?:(\d+)\s*\+\s*)?(?:\d+\s*\+\s*)*(?:…|\.\.\.?)\s*\+\s*(\d+)")
_SLOPPY = {"kb": 2.0**10, "mb": 2.0**20, "gb": 2.0**30}  # what is often meant by them
_SLOPPY |= {unit[0]: size for unit, size in _SLOPPY.items()}
_DOTTED = re.compile(r"[1-9]\d{0,2}(?:\.\d{3})+")  # in many languages a point separates thousands


def readings(text: str, unit: str = "") -> list[tuple[float, str]]:
    """The possible meanings of a text, each with how it was read: by its unit, then by the one often meant by it.

    ``text``: digits with or without thousands separators, arithmetic with ``+ - * / // % mod **`` and brackets, a sum
    with an ellipsis, or a word such as *four*, and after it a unit, which may be left out. ``unit``: the requested one;
    ``"B"`` also accepts kB, MB, KiB, MiB and so on. Without one, a word before or after the number is taken for the
    counted thing.

    Raises `KvvizError`: if it is no number, or one of something else.
    """
    given = " ".join(text.split())
    if len(given) > _LONGEST:
        raise KvvizError(f"the answer has {len(given):,} characters; write it in {_LONGEST:,} at most")
    refused = KvvizError(f"{given[:60]!r} is not a number: write digits, or arithmetic such as 2 * 3 * 64")
    said = _AFTER.sub("", given.translate(_SIGNS).rstrip(".*")).rpartition("=")[2].strip()  # what an equation comes to
    digits = re.sub(r"[a-zA-Z]+", lambda word: _DIGITS.get(word[0].lower(), word[0]), said)
    digits = _TIMES.sub("*", _COUNTED.sub("", digits))
    digits = re.sub(r"^(\d+),(\d\d?)(?!\d)", r"\1.\2", digits)  # a decimal comma
    digits = re.sub(r"\bmod\b", "%", _BEFORE.sub("", digits), flags=re.I)
    found = re.fullmatch(r"(.*?[\d).])\s*([^\d\s()+*/.,-][^\d()+*/]*)?", digits)
    if found is None or re.search("hundred|thousand|million", digits, re.I):
        raise refused
    word = (found[2] or "").strip()
    scale = _scale(word.lower().rstrip("s"), unit)
    if scale is None:
        raise KvvizError(f"the answer is asked for in {unit or 'a plain number'}, and {given[:60]!r} is in {word}")
    plain = re.sub(r"(?<=\d)[,_'\u00a0\u202f ](?=\d{3}(\D|$))", "", found[1]).replace("\x00", "**")
    # In a long number every separator is followed by three more digits.
    while plain != (shorter := re.sub(r"(?<=\d)[,_' ](?=\d{3}(?!\d))", "", plain)):
        plain = shorter
    plain = re.sub(r"(?<![\w.])0+(?=\d)", "", plain)
    try:
        value = _value(ast.parse(_SERIES.sub(_summed, plain).strip(), mode="eval").body)
        if not word and _DOTTED.fullmatch(plain):
            return [(value, ""), (float(plain.replace(".", "")), f"{plain} read as {plain.replace('.', ',')}")]
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
    """One written unit in the requested unit; None if it is of another kind."""
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
    # Useful figures after the point: four in all, and at least one.
    text = f"{number:,.1f}" if abs(number) >= 1000 else f"{number:.4g}"
    text = f"{round(number):,}" if is_whole(number) else text
    one = abs(number) == 1 and len(unit) > 1
    return f"{text} {unit.removesuffix('s') if one else unit}".strip()


def is_whole(number: float) -> bool:
    """Whether it is an integer, up to rounding errors."""
    return abs(number - round(number)) <= 1e-9 * abs(number)
