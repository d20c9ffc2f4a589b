"""Conditions as text: comparisons over the fields of a step, read by a parser of their own and never run as Python.

    or_      = and_ ("or" and_)*
    and_     = not_ ("and" not_)*
    not_     = "not" not_ | compared
    compared = operand (("==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not in") operand)*
    operand  = number | text | True | False | field | function "(" field ")" | "(" or_ ")" | list of numbers or texts

A field may be written with ``step.`` before it. Every expression has a kind (number, text, flag, numbers, texts), so
that whatever makes no sense is refused when the condition is read; a condition that was read cannot fail at a step.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kvviz.errors import KvvizError
from kvviz.graph.names import quoted
from kvviz.trace.records import Step

LONGEST = 500
DEEPEST = 20

Value = Callable[[Step], Any]

FIELDS: Mapping[str, tuple[str, Value]] = {
    "index": ("number", lambda step: step.index),
    "run": ("number", lambda step: step.run),
    "frame": ("texts", lambda step: step.frame),
    "node": ("text", lambda step: step.node),
    "node_index": ("number", lambda step: step.node_index),
    "op_type": ("text", lambda step: step.op_type),
    "inputs": ("texts", lambda step: step.inputs),
    "outputs": ("texts", lambda step: step.outputs),
    "live_bytes": ("number", lambda step: step.live_bytes),
    "allocated": ("number", lambda step: step.allocated),
    "copied": ("number", lambda step: step.copied),
    "written": ("number", lambda step: step.written),
    "freed": ("numbers", lambda step: step.freed),
    "foreign": ("flag", lambda step: step.foreign),
    "outcome": ("text", lambda step: step.outcome),
    "decision.dispatch": ("text", lambda step: step.decision.dispatch),
    "decision.taken": ("texts", lambda step: step.decision.taken),
    "decision.blockers": ("texts", lambda step: tuple(str(b.code) for b in step.decision.blockers)),
    "outs.name": ("texts", lambda step: tuple(out.name for out in step.outs)),
    "outs.storage": ("numbers", lambda step: tuple(out.storage for out in step.outs)),
    "outs.how": ("texts", lambda step: tuple(out.how for out in step.outs)),
    "outs.dtype": ("texts", lambda step: tuple(out.dtype for out in step.outs)),
    "outs.nbytes": ("numbers", lambda step: tuple(out.nbytes for out in step.outs)),
}
"""Name to kind and value."""

_FUNCTIONS: Mapping[str, tuple[tuple[str, ...], Callable[[Any], Any]]] = {
    "len": (("text", "texts", "numbers"), len),
    "max": (("numbers",), lambda numbers: max(numbers, default=0)),
    "min": (("numbers",), lambda numbers: min(numbers, default=0)),
    "sum": (("numbers",), sum),
}
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda a, b: a in b,
    "not in": lambda a, b: a not in b,
}
_MEMBERS = {"numbers": "number", "texts": "text"}
_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.])"
    r"|(?P<text>'[^']*'|\"[^\"]*\")"
    r"|(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"
    r"|(?P<sign>==|!=|<=|>=|[<>()\[\],]))"
)


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of a condition: its kind and how to work it out."""

    kind: str
    value: Value


def read_condition(text: str) -> Callable[[Step], bool]:
    """What a condition says, as a function of a step that never fails. The text has comparisons over the fields of a
    `Step`, joined by ``and``, ``or``, ``not``; of any other text the KvvizError says what is wrong, and where."""
    try:
        value = _Reader(text).whole().value
    except _Unclear as error:
        raise KvvizError(f"the condition {quoted(text)} cannot be read: {error}") from None
    return lambda step: bool(value(step))


class _Unclear(Exception):
    """What is wrong with a condition."""


class _Reader:
    """A recursive descent over the words of a condition."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise _Unclear(f"it has {len(text):,} characters, more than {LONGEST}")
        self.words = _words(text)
        self.at = 0
        self.depth = 0

    def whole(self) -> _Part:
        part = self._or()
        if self.word:
            raise _Unclear(f"{quoted(self.word)} was not expected {self._where()}")
        return part

    @property
    def word(self) -> str:
        """The present word; empty at the end."""
        return self.words[self.at][1] if self.at < len(self.words) else ""

    def _take(self, *wanted: str) -> bool:
        """Go past the present words, if they are these."""
        ahead = tuple(word for _, word in self.words[self.at : self.at + len(wanted)])
        self.at += len(wanted) if ahead == wanted else 0
        return ahead == wanted

    def _where(self) -> str:
        return f"after {quoted(self.words[self.at - 1][1])}" if self.at else "at the start"

    def _deeper(self, read: Callable[[], _Part]) -> _Part:
        self.depth += 1
        if self.depth > DEEPEST:
            raise _Unclear(f"it nests more than {DEEPEST} deep")
        part = read()
        self.depth -= 1
        return part

    def _or(self) -> _Part:
        return self._joined("or", self._and, any)

    def _and(self) -> _Part:
        return self._joined("and", self._not, all)

    def _joined(self, word: str, read: Callable[[], _Part], combined: Callable[[Any], bool]) -> _Part:
        parts = [read()]
        while self._take(word):
            parts.append(read())
        values = [part.value for part in parts]
        return parts[0] if len(parts) == 1 else _Part("flag", lambda step: combined(value(step) for value in values))

    def _not(self) -> _Part:
        if not self._take("not"):
            return self._compared()
        value = self._deeper(self._not).value
        return _Part("flag", lambda step: not value(step))

    def _compared(self) -> _Part:
        parts, signs = [self._operand()], []
        while sign := self._sign():
            signs.append(_COMPARISONS[sign])
            parts.append(self._operand())
            _check_kinds(sign, parts[-2].kind, parts[-1].kind)
        if not signs:
            return parts[0]
        pairs = list(zip(signs, [part.value for part in parts], [part.value for part in parts[1:]]))
        return _Part("flag", lambda step: all(compare(a(step), b(step)) for compare, a, b in pairs))

    def _sign(self) -> str:
        if self._take("not", "in"):
            return "not in"
        word = self.word
        return word if word in _COMPARISONS and self._take(word) else ""

    def _operand(self) -> _Part:
        sort, word = self.words[self.at] if self.at < len(self.words) else ("", "")
        if sort == "number" or sort == "text" or word in ("True", "False"):
            return self._literal()
        if word in ("(", "["):
            return self._brackets(")" if word == "(" else "]")
        if sort != "name" or word in ("and", "or", "not", "in"):
            found = f", not {quoted(word)}" if word else ""
            raise _Unclear(f"a field, number or text is missing {self._where()}{found}")
        self.at += 1
        return self._call(word) if word in _FUNCTIONS or self.word == "(" else _field(word)

    def _literal(self) -> _Part:
        sort, word = self.words[self.at]
        self.at += 1
        if sort == "text":
            return _Part("text", _always(word[1:-1]))
        if sort == "name":
            return _Part("flag", _always(word == "True"))
        return _Part("number", _always(_number(word)))

    def _brackets(self, end: str) -> _Part:
        """An expression in parentheses, or a list."""
        self.at += 1
        listed = end == "]" or self.word == ")"
        parts: list[_Part] = []
        while not self._take(end):
            if parts and not self._take(","):
                raise _Unclear(f"{end!r} or ',' is missing {self._where()}")
            listed = listed or bool(parts)
            if not (parts and self.word == end):
                parts.append(self._deeper(self._or))
        if not listed:
            return parts[0]
        kinds = {part.kind for part in parts}
        if len(kinds) > 1 or not kinds <= set(_MEMBERS.values()):
            raise _Unclear("a list holds either numbers or texts")
        values = [part.value for part in parts]
        kind = f"{kinds.pop()}s" if kinds else "nothing"
        return _Part(kind, lambda step: tuple(value(step) for value in values))

    def _call(self, name: str) -> _Part:
        if name not in _FUNCTIONS:
            raise _Unclear(f"there is no function {quoted(name)} here, only {', '.join(_FUNCTIONS)}")
        if not self._take("("):
            raise _Unclear(f"'(' is missing {self._where()}")
        inner = self._deeper(self._or)
        if not self._take(")"):
            raise _Unclear(f"')' is missing {self._where()}")
        kinds, function = _FUNCTIONS[name]
        if inner.kind not in kinds:
            raise _Unclear(f"{name}(…) takes {' or '.join(kinds)}, not a {inner.kind}")
        return _Part("number", lambda step: function(inner.value(step)))


def _words(text: str) -> list[tuple[str, str]]:
    """The words with their sorts."""
    words: list[tuple[str, str]] = []
    place, end = 0, len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            raise _Unclear(f"{quoted(text[place:].lstrip(), 20)} is not understood")
        words.append((match.lastgroup or "", match[match.lastgroup or 0]))
        place = match.end()
    return words


def _number(word: str) -> float:
    """An integer where it is one that a step may have, else a float, which no sum can overflow."""
    return int(word) if len(word) < 20 and word.lstrip("-").isdigit() else float(word)


def _always(value: Any) -> Value:
    return lambda step: value


def _field(name: str) -> _Part:
    plain = name.removeprefix("step.")
    if plain not in FIELDS:
        raise _Unclear(f"a step has no field {quoted(plain)}; it has {', '.join(FIELDS)}")
    return _Part(*FIELDS[plain])


def _check_kinds(sign: str, left: str, right: str) -> None:
    if sign in ("==", "!="):
        fine = left == right or ("nothing" in (left, right) and {left, right} <= {"nothing", "numbers", "texts"})
    elif sign.endswith("in"):
        fine = left == _MEMBERS.get(right, "text") or (right == "nothing" and left in ("text", "number"))
        fine = fine and right in ("text", "nothing", *_MEMBERS)
    else:
        fine = left == right == "number"
    if not fine:
        raise _Unclear(f"{quoted(sign)} does not go between {_spoken(left)} and {_spoken(right)}")


def _spoken(kind: str) -> str:
    return {"nothing": "an empty list", "numbers": "numbers", "texts": "texts"}.get(kind, f"a {kind}")
