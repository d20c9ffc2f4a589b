"""Names as protobuf gives them, and as messages show them."""

from __future__ import annotations


def text(name: str | bytes) -> str:
    """A name as protobuf gives it: bytes, where it is not UTF-8 and so an error."""
    return name if isinstance(name, str) else name.decode()


def quoted(name: str, longest: int = 120) -> str:
    """A name in quotes for messages: on one line, and without its middle where it is longer than ``longest``."""
    if len(name) > longest:
        name = f"{name[: longest // 2]}…{name[-longest // 2 :]}"
    line = "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in name)
    return f"'{line}'"
