"""The text of a query in words: brackets, signs of negation, comparisons with their values, and everything else."""

from __future__ import annotations

import re
from typing import NamedTuple

from kvviz.query.grammar import ALL_SIGNS, BY_NAME, FIELDS, ORDERS, UNITS

BLANK = " \t\r\n\u00a0"
_QUOTES = "\"'"
# What stands between the parts of a title or of the path of a frame says nothing.
_BETWEEN = ("·", "›")
_TEST = re.compile(rf"([A-Za-z_][A-Za-z0-9_]*)(?:[{BLANK}]*(==|!=|>=|<=|=|>|<)[{BLANK}]*|:)")
_VALUE = re.compile(rf"[^{BLANK}()|]*")
_BARE = re.compile(rf"[^{BLANK}()]+")
_UNIT = re.compile(rf"[{BLANK}]+([A-Za-z]+)(?=[{BLANK}()]|$)")
_NUMERIC = re.compile(r"[0-9][0-9,]*(?:\.[0-9]+)?$")


class Unclear(Exception):
    """What is wrong with a query."""


class Given(NamedTuple):
    """A value as it was written."""

    text: str
    quoted: bool


class Token(NamedTuple):
    """A word of a query with its sort: a bracket, ``-``, ``or``, ``word``, ``quoted``, ``test`` or ``order``."""

    sort: str
    text: str
    field: str = ""
    sign: str = ""
    values: tuple[Given, ...] = ()


def words_of(text: str) -> list[Token]:
    """The words of a query."""
    found: list[Token] = []
    at, end = 0, len(text)
    while at < end:
        letter = text[at]
        if letter in BLANK:
            at += 1
        elif letter in "()":
            found.append(Token(letter, letter))
            at += 1
        elif letter in "-−" and at + 1 < end and text[at + 1] not in BLANK + ")":
            found.append(Token("-", letter))
            at += 1
        elif letter in _QUOTES:
            given, at = _quoted(text, at)
            found.append(Token("quoted", given))
        elif match := _TEST.match(text, at):
            token, at = _test(text, match)
            found.append(token)
        else:
            match = _BARE.match(text, at)
            assert match is not None
            at = match.end()
            found += _bare(match[0])
    return found


def is_unit(text: str) -> bool:
    return text.lower() in _UNIT_NAMES


def is_numeric(text: str) -> bool:
    return _NUMERIC.match(text) is not None


_UNIT_NAMES = frozenset(unit.lower() for unit in UNITS)


def _bare(text: str) -> list[Token]:
    if text in "-−":
        raise Unclear(f'nothing stands behind "{text}"')
    sign = next((sign for sign in sorted(ALL_SIGNS, key=len, reverse=True) if text.startswith(sign)), "")
    if sign:
        raise Unclear(f'no field stands before "{sign}" in "{text}"; put quotes around a text to search for it')
    if text in _BETWEEN or text.lower() == "and":
        return []
    return [Token("or" if text.lower() == "or" else "word", text)]


def _quoted(text: str, at: int) -> tuple[str, int]:
    close = text.find(text[at], at + 1)
    if close < 0:
        raise Unclear(f"the quote that begins with {text[at:]} has no end")
    if close == at + 1:
        raise Unclear("there is nothing between the quotes")
    return text[at + 1 : close], close + 1


def _test(text: str, match: re.Match[str]) -> tuple[Token, int]:
    written, sign = match[1], match[2] or ":"
    sign = "=" if sign == "==" else sign
    field = known(written)
    at = match.end()
    values: list[Given] = []
    while True:
        if text[at : at + 1] and text[at] in _QUOTES:
            given, at = _quoted(text, at)
            values.append(Given(given, True))
        else:
            plain = _VALUE.match(text, at)
            assert plain is not None
            at = plain.end()
            if not plain[0]:
                raise Unclear(f'nothing stands behind "{match[0].strip(BLANK)}"')
            values.append(Given(plain[0], False))
        if text[at : at + 1] != "|":
            break
        at += 1
    last = values[-1]
    if field in BY_NAME and BY_NAME[field].kind == "bytes" and not last.quoted and is_numeric(last.text):
        unit = _UNIT.match(text, at)
        if unit and is_unit(unit[1]):
            values[-1] = Given(last.text + unit[1], False)
            at = unit.end()
    token = Token("order" if field in ORDERS else "test", match[0].strip(BLANK), field, sign, tuple(values))
    return token, at


def known(written: str) -> str:
    """The field that a name or alias stands for."""
    name = written.lower()
    if name in ORDERS:
        return name
    if name not in BY_NAME:
        guess = meant(name, [*BY_NAME, *ORDERS])
        fields = ", ".join(field.name for field in FIELDS)
        raise Unclear(
            f'there is no field "{written}"{guess}; there are {fields}, {", ".join(ORDERS)}; '
            "put quotes around a text to search for it"
        )
    return BY_NAME[name].name


def meant(word: str, names: list[str]) -> str:
    """A question for the name that is nearest to a word, if one is near enough."""
    best, least = "", max(1, len(word) // 3) + 1
    for name in names:
        away = 1 if len(word) > 2 and name.startswith(word) else _distance(word, name)
        if away < least and " " not in name:
            best, least = name, away
    return f'; did you mean "{best}"' if best else ""


def _distance(a: str, b: str) -> int:
    """How many letters have to be changed, added, left out or swapped with the next to make one word of the other."""
    rows = [list(range(len(b) + 1))]
    for i, left in enumerate(a, 1):
        row = [i]
        for j, right in enumerate(b, 1):
            cost = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (left != right))
            if i > 1 and j > 1 and left == b[j - 2] and a[i - 2] == right:
                cost = min(cost, rows[-2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]
