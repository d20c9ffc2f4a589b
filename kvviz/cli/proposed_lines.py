"""Options that the user did not give: chosen, or proposed in a command line that is quoted to be pasted."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from kvviz.errors import InputError, KvvizError


def proposed(message: str, line: Sequence[str]) -> str:
    """An error's message with the command line that would do."""
    return f"{message}, for example: kvviz {shlex.join(line)}"


def with_options(line: Sequence[str], *more: str) -> list[str]:
    """A command line with more options; what stands behind ``--`` is no option."""
    at = list(line).index("--") if "--" in line else len(line)
    return [*line[:at], *more, *line[at:]]


@contextmanager
def telling_lengths(chosen: Mapping[str, int]) -> Iterator[None]:
    """Tell which lengths were chosen for dimensions that nobody gave: after a run, or with its error."""
    line = shlex.join(["--dim", *(f"{name}={length}" for name, length in chosen.items())])
    try:
        yield
    except KvvizError as error:
        if not chosen:
            raise
        raise InputError(f"{error}; the lengths were chosen, give others in place of {line}") from None
    if chosen:
        print(f"lengths chosen: {line}", file=sys.stderr)


def without_text(line: Sequence[str]) -> list[str]:
    """A command line without the prompt that it gave as a text."""
    kept, skip = [], False
    for word in line:
        name = word.partition("=")[0]
        if not skip and name not in ("--text", "--chat"):
            kept.append(word)
        skip = not skip and word in ("--text", "--chat")
    return kept
