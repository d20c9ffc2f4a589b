"""Command lines that an error proposes: the user's own with what was missing, quoted to be pasted."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence


def proposed(message: str, line: Sequence[str]) -> str:
    """An error's message with the command line that would do."""
    return f"{message}, for example: kvviz {shlex.join(line)}"


def with_options(line: Sequence[str], *more: str) -> list[str]:
    """A command line with more options; what stands behind ``--`` is no option."""
    at = list(line).index("--") if "--" in line else len(line)
    return [*line[:at], *more, *line[at:]]


def with_lengths(line: Sequence[str], lengths: Mapping[str, int]) -> list[str]:
    return (
        with_options(line, "--dim", *(f"{name}={length}" for name, length in lengths.items())) if lengths else [*line]
    )


def without_text(line: Sequence[str]) -> list[str]:
    """A command line without the prompt that it gave as a text."""
    kept, skip = [], False
    for word in line:
        name = word.partition("=")[0]
        if not skip and name not in ("--text", "--chat"):
            kept.append(word)
        skip = not skip and word in ("--text", "--chat")
    return kept
