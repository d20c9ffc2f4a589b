"""Tokens of MLIR text, and layouts in TTNN's IR: where a tensor lies, whether in tiles, and how many bytes it takes.

Source: ``TTNNLayoutAttr`` of tt-mlir: the memref is what one core of the grid holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from kvviz.errors import KvvizError
from kvviz.trace.schema.element_types import nbytes

_TOKEN = re.compile(
    r'\s+|//[^\n]*|(?P<word>"(?:[^"\\\n]|\\.)*"|->|[%@#^!][\w$.\-]*\w(?:[:#]\d+)?|[%@#^!]|[\w$.?]+|[^\s\w"])|(?P<bad>")'
)
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}


class Token(NamedTuple):
    text: str
    line: int


def tokens(text: str, where: str) -> list[Token]:
    """The tokens of a text, without comments and blanks; raises `KvvizError` at a string that does not end on its
    line."""
    found, line, last = [], 1, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", last, match.start())
        last = match.start()
        if match["bad"]:
            raise KvvizError(f"{where}, line {line}: a string does not end")
        if match["word"]:
            found.append(Token(match["word"], line))
    return found


class Cursor:
    """A place in a list of tokens, and the errors that name its line."""

    def __init__(self, words: list[Token], where: str) -> None:
        self.words = words
        self.where = where
        self.at = 0

    @property
    def done(self) -> bool:
        return self.at >= len(self.words)

    @property
    def line(self) -> int:
        return self.words[min(self.at, len(self.words) - 1)].line if self.words else 1

    def peek(self, ahead: int = 0) -> str:
        """The next token; empty at the end."""
        place = self.at + ahead
        return self.words[place].text if place < len(self.words) else ""

    def take(self) -> str:
        """Return the next token and advance."""
        if self.done:
            raise self.error("the text ends here")
        self.at += 1
        return self.words[self.at - 1].text

    def accept(self, text: str) -> bool:
        """Advance if this is the next token."""
        if self.peek() == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Advance over a token that has to come next."""
        if not self.accept(text):
            raise self.error(f"{text!r} is expected, not {self.peek() or 'the end of the text'!r}")

    def group(self) -> list[Token]:
        """The tokens between a bracket, which is the next token, and the one that closes it."""
        if self.peek() not in _CLOSING:
            raise self.error(f"a bracket is expected, not {self.peek() or 'the end of the text'!r}")
        opened = [self.take()]
        start = self.at
        while opened:
            text = self.take()
            if text in _CLOSING:
                opened.append(text)
            elif text in _CLOSING.values() and _CLOSING[opened.pop()] != text:
                raise self.error(f"{text!r} closes a bracket that was not opened")
        return self.words[start : self.at - 1]

    def error(self, text: str) -> KvvizError:
        return KvvizError(f"{self.where}, line {self.line}: {text}")


def items(words: list[Token]) -> list[list[Token]]:
    """What stands between the commas that are in no bracket."""
    depth, found = 0, [list[Token]()]
    for word in words:
        if word.text == "," and not depth:
            found.append([])
            continue
        depth += (word.text in _CLOSING) - (word.text in _CLOSING.values())
        found[-1].append(word)
    return [item for item in found if item]


def pairs(words: list[Token]) -> dict[str, list[Token]]:
    """Entries ``name = value`` of a dictionary; names without a value have an empty one."""
    return {entry[0].text.strip('"'): entry[2:] for entry in items(words)}


_SPACES = {"dram": "dram", "l1": "l1", "l1_small": "l1", "system_memory": "host", "system": "host", "trace": "dram"}
_NUMPY = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f64": "float64",
    "i1": "bool",
    "u1": "bool",
    **{f"{sign}{bits}": f"int{bits}" for sign in ("si", "i") for bits in (8, 16, 32, 64)},
    **{f"{sign}{bits}": f"uint{bits}" for sign in ("ui", "u") for bits in (8, 16, 32, 64)},
}
# Block floats: sixteen shared exponents of a byte for each of the four faces, and the mantissas.
_TILES = {"bfp_bf8": 1088, "bfp_f8": 1088, "bfp_bf4": 576, "bfp_f4": 576, "bfp_bf2": 320, "bfp_f2": 320}
_SHAPE = re.compile(r"(?:(?:\d+|\?)x)*")


class TensorType(NamedTuple):
    """A ``tensor<…>`` of the text. ``space``: ``"host"``, ``"dram"`` or ``"l1"``. ``nbytes``: its size there, padding
    of tiles included. ``dtype``: NumPy's name; for block floats that of their mantissas' width."""

    shape: tuple[int, ...]
    dtype: str
    space: str
    tiled: bool
    nbytes: int
    memory: str

    @property
    def place(self) -> str:
        return " ".join(part for part in (self.space, "tile" if self.tiled else "row_major", self.memory) if part)


def tensor_type(words: list[Token], aliases: Mapping[str, list[Token]], where: str) -> TensorType | None:
    """The type that tokens describe; None for a device and anything else but a tensor."""
    cursor = Cursor(words, where)
    if cursor.peek() != "tensor":
        return None
    cursor.take()
    inner = Cursor(cursor.group(), where)
    shape, element = _shaped(inner)
    dtype = _dtype(element, inner)
    packed = nbytes(shape, dtype)
    if not inner.accept(","):
        return TensorType(shape, dtype, "host", False, packed, "")
    attribute = _resolved(inner.words[inner.at :], aliases)
    text = [word.text for word in attribute]
    if "memref" not in text:
        return TensorType(shape, dtype, "host", False, packed, "")
    grid = prod(int(n) for n in _grid(text))
    memref = Cursor(attribute, where)
    memref.at = text.index("memref") + 1
    held = Cursor(memref.group(), where)
    counts, element = _shaped(held)
    tiled = element.endswith(".tile")
    size = _tile(Cursor(held.group(), where)) if tiled else nbytes((1,), _dtype(element, held))
    space = "host"
    for word in _resolved(held.words[held.at :], aliases):
        space = _SPACES.get(word.text.lstrip("#"), space)
    rest = [word for word in text[memref.at :] if word.isidentifier()]
    # Layouts that were written by hand for tests may hold less than the tensor.
    taken = max(prod(counts) * size * grid, packed)
    return TensorType(shape, dtype, space, tiled, taken, rest[0] if rest else "")


def _resolved(words: list[Token], aliases: Mapping[str, list[Token]]) -> list[Token]:
    """Tokens with their aliases replaced, one level deep: an alias of a layout names one of a memory."""
    found = []
    for word in words:
        found += aliases.get(word.text, [word])
    return found


def _shaped(cursor: Cursor) -> tuple[tuple[int, ...], str]:
    """Sizes and the element type after them: ``64x128xbf16`` or ``2x4x!ttcore.tile``."""
    word = cursor.take()
    start = _SHAPE.match(word)
    text = start[0] if start else ""
    element = word[len(text) :] or cursor.take()
    if "?" in text:
        raise cursor.error(f"a tensor of unknown size {word!r}: only static shapes can be drawn")
    sizes = [n for n in text.split("x") if n]
    if any(len(n) > 15 for n in sizes):
        raise cursor.error(f"a tensor of {word[:40]} elements is too large")
    return tuple(map(int, sizes)), element.lstrip("!")


def _grid(text: list[str]) -> list[str]:
    """The grid of cores, which precedes the memref as ``<8x8>`` or ``<8x8, (d0) -> …>``."""
    for place, word in enumerate(text[: text.index("memref")]):
        if word == "<" and re.fullmatch(r"\d{1,9}(x\d{1,9})+", text[place + 1]):
            return text[place + 1].split("x")
    return ["1"]


def _tile(cursor: Cursor) -> int:
    """Bytes of ``tile<32x32, bf16>``."""
    sizes = cursor.take()
    cursor.expect(",")
    element = cursor.take()
    if element in _TILES:
        return _TILES[element]
    if not re.fullmatch(r"\d{1,9}x\d{1,9}", sizes):
        raise cursor.error(f"a tile of {sizes[:40]!r}: 32x32 is expected")
    return nbytes(tuple(map(int, sizes.split("x"))), _dtype(element, cursor))


def _dtype(element: str, cursor: Cursor) -> str:
    if "!quant" in element or element.startswith("quant"):
        return "int8"
    if element in _TILES:
        return "uint8"
    if element == "ttcore.tile" or element == "tt.tile":
        inner = [word.text for word in cursor.group()]
        return _dtype(inner[-1], cursor)
    if element not in _NUMPY:
        raise cursor.error(f"element type {element!r} is not known")
    return _NUMPY[element]
