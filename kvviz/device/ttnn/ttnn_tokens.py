"""The tokens of MLIR text: strings, names, brackets and arrows, each with its line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kvviz.errors import KvvizError

_TOKEN = re.compile(
    r'\s+|//[^\n]*|(?P<word>"(?:[^"\\\n]|\\.)*"|->|[%@#^!][\w$.\-]*\w(?:[:#]\d+)?|[%@#^!]|[\w$.?]+|[^\s\w"])|(?P<bad>")'
)
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}


class Token(NamedTuple):
    """A piece of text and the line that it stands on, from 1."""

    text: str
    line: int


def tokens(text: str, where: str) -> list[Token]:
    """Cut a text up; comments and blanks are left out.

    Raises
    ------
    KvvizError
        At a string that does not end on its line.
    """
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
        """Whether no token is left."""
        return self.at >= len(self.words)

    @property
    def line(self) -> int:
        """The line of the next token, or of the last one."""
        return self.words[min(self.at, len(self.words) - 1)].line if self.words else 1

    def peek(self, ahead: int = 0) -> str:
        """The next token; empty at the end."""
        place = self.at + ahead
        return self.words[place].text if place < len(self.words) else ""

    def take(self) -> str:
        """The next token, and go behind it."""
        if self.done:
            raise self.error("the text ends here")
        self.at += 1
        return self.words[self.at - 1].text

    def accept(self, text: str) -> bool:
        """Go behind a token if it is the next one."""
        if self.peek() == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Go behind a token that has to be the next one."""
        if not self.accept(text):
            raise self.error(f"{text!r} is expected, not {self.peek() or 'the end of the text'!r}")

    def group(self) -> list[Token]:
        """All between a bracket, which is the next token, and the one that closes it."""
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

    def comma_separated(self, close: str, item: Callable[[], None]) -> None:
        """Items up to a closing bracket, whose opening one is behind."""
        while not self.accept(close):
            item()
            if self.peek() != close:
                self.expect(",")

    def error(self, text: str) -> KvvizError:
        """An error that names the text and the line."""
        return KvvizError(f"{self.where}, line {self.line}: {text}")


def pairs(words: list[Token]) -> Iterator[tuple[str, list[Token]]]:
    """Entries ``name = value`` of a dictionary's tokens; names without a value have an empty one."""
    depth, entry = 0, list[Token]()
    for word in [*words, Token(",", 0)]:
        if word.text == "," and not depth:
            if entry:
                yield entry[0].text.strip('"'), entry[2:]
            entry = []
            continue
        depth += (word.text in _CLOSING) - (word.text in _CLOSING.values())
        entry.append(word)
