"""Reads a query; a query that was read cannot fail at a step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from kvviz.errors import KvvizError, quoted
from kvviz.query.grammar import (
    BY_NAME,
    DEEPEST,
    FIELDS,
    KIND,
    LONGEST,
    UNITS,
    WORDS,
    Field,
    Given,
    Token,
    Unclear,
    is_numeric,
    is_unit,
    known,
    meant,
    words_of,
)


class Range(NamedTuple):
    """An inclusive range of numbers; a single number is a range of one."""

    low: float
    high: float


class Buffer(NamedTuple):
    """A storage and a generation of it; -1: any."""

    storage: int
    generation: int


Value: TypeAlias = str | Range | Buffer


@dataclass(frozen=True, slots=True)
class Compare:
    """A field that has one of some values (``:``, ``=``), none of them, or is larger or smaller than one."""

    field: str
    sign: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Word:
    """A text that is part of a name, or a label."""

    text: str


@dataclass(frozen=True, slots=True)
class Not:
    part: Part


@dataclass(frozen=True, slots=True)
class Every:
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Some:
    parts: tuple[Part, ...]


Part: TypeAlias = Compare | Word | Not | Every | Some


class Order(NamedTuple):
    """Sort by a field, the largest first if ``down``."""

    field: str
    down: bool


@dataclass(frozen=True, slots=True)
class Query:
    """A query that was read. ``part``: the condition; None: all steps. ``orders``: the first decides, the next on ties;
    then the number of the step. ``limit``: maximum number of steps."""

    text: str
    part: Part | None
    orders: tuple[Order, ...] = ()
    limit: int | None = None


_NUMBER = re.compile(r"([-−]?)([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.([0-9]+))? ?([A-Za-z]*)$")
_BUFFER = re.compile(r"[Bb]?([0-9]{1,15})(?:\.([0-9]{1,15}))?$")
_COMPARISON = re.compile(r"\s*([A-Za-z_]\w*)\s*(==|!=|>=|<=|=|>|<|:)\s*(.*?)\s*$", re.DOTALL)
_COUNT = re.compile(r"[1-9][0-9]{0,8}$")
_SCALE = {name.lower(): scale for name, scale in UNITS.items()}
_NUMBERS = ("number", "bytes", "run")


def read_query(text: str) -> Query:
    """The query of a text; raises KvvizError that says what is wrong with it."""
    try:
        return _Reader(text).whole()
    except Unclear as error:
        raise KvvizError(f"the query {quoted(text)} cannot be read: {error}") from None


def read_comparison(text: str, fields: Mapping[str, Field]) -> Compare:
    """One comparison, such as ``peak > 1.5 MB``, of fields other than those of steps. Raises `KvvizError` that names
    the possible fields or values."""
    try:
        match = _COMPARISON.match(text)
        field = fields.get(match[1].lower()) if match is not None else None
        if match is None or field is None:
            wrong = f'there is no "{match[1]}"' if match is not None else "it is not like peak>120MB"
            raise Unclear(f"{wrong}; there are {', '.join(fields)}")
        part = _compared(field, "=" if match[2] == "==" else match[2], (Given(match[3], False),), match[1])
        assert isinstance(part, Compare)
        return part
    except Unclear as error:
        raise KvvizError(f"the limit {quoted(text)} cannot be read: {error}") from None


class _Reader:
    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise Unclear(f"it has {len(text)} characters, more than {LONGEST}")
        self.text = text
        self.tokens = words_of(text)
        self.at = 0
        self.depth = 0
        self.orders: list[Order] = []
        self.limit: int | None = None

    def whole(self) -> Query:
        part = self._some()
        if self._sort() == ")":
            raise Unclear('")" has no "(" before it')
        return Query(self.text, part, tuple(self.orders), self.limit)

    def _sort(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at].sort if at < len(self.tokens) else ""

    def _take(self) -> Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def _some(self) -> Part | None:
        parts = [self._every()]
        while self._sort() == "or":
            if parts[-1] is None:
                raise Unclear('nothing stands before "or"')
            self.at += 1
            parts.append(self._every())
            if parts[-1] is None:
                raise Unclear('nothing stands after "or"')
        return parts[0] if len(parts) == 1 else Some(tuple(part for part in parts if part is not None))

    def _every(self) -> Part | None:
        parts: list[Part] = []
        while self._sort() not in ("", ")", "or"):
            if self._sort() == "order":
                self._order(self._take())
            else:
                parts.append(self._one())
        return None if not parts else parts[0] if len(parts) == 1 else Every(tuple(parts))

    def _one(self) -> Part:
        token = self._take()
        if token.sort == "-":
            if self._sort() == "order":
                raise Unclear(
                    f'"{self.tokens[self.at].text}" cannot be negated; write sort:-copied for the largest first'
                )
            if self._sort() in ("", ")", "or"):
                raise Unclear(f'nothing stands behind "{token.text}"')
            return Not(self._one())
        if token.sort == "(":
            return self._inner()
        if token.sort == "quoted":
            return Word(token.text)
        if token.sort == "test":
            return _compared(BY_NAME[token.field], token.sign, token.values, token.text)
        self.at -= 1
        return self._phrase()

    def _inner(self) -> Part:
        self.depth += 1
        if self.depth > DEEPEST:
            raise Unclear(f"it nests more than {DEEPEST} deep")
        part = self._some()
        if self._sort() != ")":
            raise Unclear('"(" has no ")" after it')
        self.at += 1
        self.depth -= 1
        if part is None:
            raise Unclear('there is nothing between "(" and ")"')
        return part

    def _phrase(self) -> Part:
        """One word, or several that the page shows together."""
        for many in (3, 2):
            decision = WORDS.get(self._joined(many))
            if decision:
                self.at += many
                return Compare("decision", ":", (decision,))
        for many in (2, 1):
            field = BY_NAME.get(self._joined(many))
            number = self._word(many)
            if field and number and _is_value(field, number):
                self.at += many + 1
                if field.kind == "bytes" and is_numeric(number) and is_unit(self._word(0)):
                    number += self._take().text
                return _compared(field, ":", (Given(number, False),), field.name)
        return Word(self._take().text)

    def _word(self, ahead: int) -> str:
        return self.tokens[self.at + ahead].text if self._sort(ahead) == "word" else ""

    def _joined(self, many: int) -> str:
        """The next words in lower case; empty if there are fewer."""
        words = [self._word(i) for i in range(many)]
        return " ".join(words).lower() if all(words) else ""

    def _order(self, token: Token) -> None:
        if self.depth:
            raise Unclear(f'"{token.text}" cannot stand between brackets')
        if token.sign not in (":", "=") or len(token.values) > 1:
            raise Unclear(f'"{token.field}" is written with one value, like {token.field}:{_LIKE[token.field]}')
        value = token.values[0].text
        if token.field == "limit":
            if not _COUNT.match(value):
                raise Unclear(f'"limit" is a whole number from 1 on, not "{value}"')
            self.limit = int(value)
            return
        down = value[0] in "-−"
        name = known(value[1:] if down else value)
        if name not in BY_NAME or not BY_NAME[name].sorts:
            sorting = ", ".join(field.name for field in FIELDS if field.sorts)
            raise Unclear(f'steps have no order by "{name}"; there are {sorting}')
        self.orders.append(Order(name, down))


_LIKE = {"sort": "-copied", "limit": "10"}


def _is_value(field: Field, word: str) -> bool:
    if field.kind == "buffer":
        return _BUFFER.match(word) is not None
    match = _NUMBER.match(word) if field.kind in _NUMBERS else None
    return match is not None and (not match[4] or (field.kind == "bytes" and is_unit(match[4])))


def _compared(field: Field, sign: str, given: tuple[Given, ...], written: str) -> Part:
    kind = KIND[field.kind]
    if sign not in kind.signs:
        raise Unclear(f'"{field.name}" is {kind.about}: "{sign}" does not go with it, only {" ".join(kind.signs)}')
    return Compare(field.name, sign, tuple(_value(field, sign, value) for value in given))


def _value(field: Field, sign: str, given: Given) -> Value:
    text = given.text
    if field.kind == "choice":
        chosen = next((choice for choice in field.choices if choice.lower() == text.lower()), None)
        chosen = chosen or (WORDS.get(text.lower()) if field.name == "decision" else None)
        if chosen is None:
            # Choices are matched without regard to case, and shown as they are written.
            guess = meant(text.upper() if field.choices[0].isupper() else text.lower(), list(field.choices))
            raise Unclear(f'there is no {field.name} "{text}"{guess}; there are {", ".join(field.choices)}')
        return chosen
    if field.kind == "buffer":
        match = _BUFFER.match(text)
        if match is None:
            raise _wrong(field, text)
        return Buffer(int(match[1]), -1 if match[2] is None else int(match[2]))
    if field.kind not in _NUMBERS:
        return text
    low, dots, high = text.partition("..")
    if field.kind == "run" and (given.quoted or not _is_value(field, low)) and sign in (":", "=", "!="):
        return text
    if dots:
        if sign not in (":", "=", "!="):
            raise Unclear(f'"{sign}" takes one number, not "{text}"')
        return Range(_number(field, low)[0], _number(field, high)[0])
    number, half = _number(field, text)
    half = half if sign == ":" else 0
    return Range(number - half, number + half)


def _number(field: Field, text: str) -> tuple[float, float]:
    """A number, and its tolerance as written: 12.3 kB is anything from 12,250 to 12,350 B."""
    match = _NUMBER.match(text)
    if match is None or not _is_value(field, text):
        raise _wrong(field, text)
    unit, decimals = match[4].lower() or "b", match[3] or ""
    number = float(f"{match[2].replace(',', '')}.{decimals or '0'}") * _SCALE[unit]
    return -number if match[1] else number, 0 if unit == "b" else _SCALE[unit] / 2 / 10 ** len(decimals)


def _wrong(field: Field, text: str) -> Unclear:
    return Unclear(f'"{field.name}" is {KIND[field.kind].about}, not "{text}"')
