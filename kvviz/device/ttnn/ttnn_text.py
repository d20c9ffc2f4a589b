"""Functions and ops of TTNN's IR as text: the parts of MLIR's generic form that ``ttmlir-opt`` prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kvviz.device.ttnn.ttnn_layouts import Cursor, TensorType, Token, items, pairs, tensor_type, tokens


class TtnnOp(NamedTuple):
    """An op: ``operands`` and ``results`` are names with their ``%``; ``types`` are those of the results."""

    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    types: tuple[TensorType | None, ...]
    attributes: dict[str, str]
    callee: str
    line: int


class TtnnArgument(NamedTuple):
    """An argument of a function: ``kind`` is ``"input"``, ``"parameter"``, ``"constant"`` or ``"kv_cache"``."""

    name: str
    type: TensorType | None
    kind: str


@dataclass(frozen=True, slots=True)
class TtnnFunction:
    name: str
    arguments: tuple[TtnnArgument, ...]
    ops: tuple[TtnnOp, ...]
    returned: tuple[str, ...]
    kind: str
    line: int


def parse(text: str, where: str = "TTNN text") -> tuple[TtnnFunction, ...]:
    """The functions of a module, in order, without those that have no body; raises `KvvizError` with the line for other
    text."""
    cursor = Cursor(tokens(text, where), where)
    aliases = _aliases(cursor)
    cursor.at = 0
    found = []
    while not cursor.done:
        if cursor.take() == "func.func":
            function = _Function(cursor, aliases).read()
            if function is not None:
                found.append(function)
    if not found:
        raise cursor.error("there is no function in it (func.func @name(…) { … })")
    return tuple(found)


def _aliases(cursor: Cursor) -> dict[str, list[Token]]:
    """``#name = …`` of the whole text, also after their uses."""
    found: dict[str, list[Token]] = {}
    while not cursor.done:
        name = cursor.take()
        if name.startswith("#") and cursor.peek() == "=" and cursor.peek(1).startswith(("#", "!")):
            cursor.take()
            start = cursor.at
            cursor.take()
            if cursor.peek() == "<":
                cursor.group()
            found[name] = cursor.words[start : cursor.at]
    return found


class _Function:
    def __init__(self, cursor: Cursor, aliases: dict[str, list[Token]]) -> None:
        self.cursor = cursor
        self.aliases = aliases
        self.ops: list[TtnnOp] = []
        self.returned: tuple[str, ...] = ()

    def read(self) -> TtnnFunction | None:
        cursor = self.cursor
        line = cursor.line
        while not cursor.peek().startswith("@"):
            cursor.take()
        name = cursor.take()[1:]
        arguments = tuple(map(self._argument, items(cursor.group())))
        if cursor.accept("->"):
            self._types()
        kind = ""
        if cursor.accept("attributes"):
            kind = _inner(pairs(cursor.group()).get("tt.function_type", []))
        self._location()
        if not cursor.accept("{"):
            return None
        while not cursor.accept("}"):
            self._statement()
        return TtnnFunction(name, arguments, tuple(self.ops), self.returned, kind, line)

    def _argument(self, words: list[Token]) -> TtnnArgument:
        cursor = Cursor(words, self.cursor.where)
        name = cursor.take()
        if not name.startswith("%"):
            raise cursor.error(f"an argument %name is expected, not {name!r}")
        cursor.expect(":")
        type_, kind = self._type(cursor), "input"
        if cursor.peek() == "{":
            attributes = pairs(cursor.group())
            for key in ("ttcore.argument_type", "tt.argument_type"):
                kind = _inner(attributes.get(key, [])) or kind
            kind = "kv_cache" if "ttcore.kv_cache" in attributes else kind
        return TtnnArgument(name, type_, kind)

    def _statement(self) -> None:
        cursor = self.cursor
        line, results = cursor.line, list[str]()
        while cursor.peek().startswith("%"):
            base, _, count = cursor.take().partition(":")
            if len(count) > 3:
                raise cursor.error(f"{base} has {count[:20]} results")
            results += [f"{base}#{i}" for i in range(int(count))] if count else [base]
            cursor.accept(",")
        if results:
            cursor.expect("=")
        name = cursor.take().strip('"')
        if name in ("return", "func.return"):
            texts = []
            while cursor.peek() not in (":", "}", "loc"):
                texts.append(cursor.take())
            self.returned = tuple(text for text in texts if text.startswith("%"))
            if cursor.accept(":"):
                self._signature()
            self._location()
            return
        callee, operands, attributes = "", tuple[str, ...](), dict[str, str]()
        if cursor.peek().startswith("@"):
            callee = cursor.take()[1:]
        if cursor.peek() == "(":
            words = cursor.group()
            callee = next((word.text[1:] for word in words if word.text.startswith("@")), callee)
            operands = tuple(word.text for word in words if word.text.startswith("%"))
        while cursor.peek() in ("<", "{", "("):
            region = cursor.peek() == "("
            words = cursor.group()
            if not region:
                inner = words[1:-1] if words and words[0].text == "{" else words
                attributes |= {key: "".join(word.text for word in value) for key, value in pairs(inner).items()}
        types: tuple[TensorType | None, ...] = ()
        if cursor.accept(":"):
            types = self._signature()
        self._location()
        if len(types) not in (len(results), 0):
            raise cursor.error(f"{name} gives {len(results)} results, and {len(types)} types are said")
        found = tuple(types) if types else (None,) * len(results)
        self.ops.append(TtnnOp(name, operands, tuple(results), found, attributes, callee, line))

    def _signature(self) -> tuple[TensorType | None, ...]:
        """``(types) -> types``, or the types of an op with its own way of printing."""
        if self.cursor.peek() == "(":
            self.cursor.group()
            self.cursor.expect("->")
            return self._types()
        found = [self._type(self.cursor)]
        while self.cursor.accept(","):
            found.append(self._type(self.cursor))
        return tuple(found)

    def _types(self) -> tuple[TensorType | None, ...]:
        cursor = self.cursor
        if cursor.peek() != "(":
            return (self._type(cursor),)
        return tuple(self._type(Cursor(words, cursor.where)) for words in items(cursor.group()))

    def _type(self, cursor: Cursor) -> TensorType | None:
        start = cursor.at
        cursor.take()
        if cursor.peek() == "<":
            cursor.group()
        return tensor_type(cursor.words[start : cursor.at], self.aliases, f"{cursor.where}, line {cursor.line}")

    def _location(self) -> None:
        if self.cursor.accept("loc"):
            self.cursor.group()


def _inner(words: list[Token]) -> str:
    """The text in the brackets of ``#ttcore.argument_type<parameter>``, or in quotes."""
    names = [word.text.strip('"') for word in words if word.text not in "<>"]
    return names[-1] if names else ""
