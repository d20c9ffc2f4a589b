"""Options that the user did not give: chosen by kvviz, or proposed in a command line, quoted for pasting."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from kvviz.cli.results import say
from kvviz.errors import InputError, LimitError, OpError


def proposed(message: str, line: Sequence[str]) -> str:
    """An error's message with a command line that would work."""
    return f"{message}, for example: kvviz {shlex.join(line)}"


def with_options(line: Sequence[str], *more: str) -> list[str]:
    """A command line with more options, inserted before ``--``."""
    at = list(line).index("--") if "--" in line else len(line)
    return [*line[:at], *more, *line[at:]]


@contextmanager
def reporting_lengths(chosen: Mapping[str, int]) -> Iterator[None]:
    """Report the lengths that were chosen for dimensions: after a run, or with the error of a failed op."""
    try:
        yield
    except (OpError, LimitError) as error:
        raise InputError(f"{error}{blame(chosen)}") from None
    if chosen:
        say(f"lengths chosen: {shlex.join(_as_options(chosen))}")


def blame(chosen: Mapping[str, int]) -> str:
    """A suffix for an error that may be due to chosen lengths."""
    return f"; the lengths were chosen, give others in place of {shlex.join(_as_options(chosen))}" if chosen else ""


def _as_options(lengths: Mapping[str, int]) -> list[str]:
    pairs = [f"{name}={length}" for name, length in lengths.items()]
    if any(one.startswith("-") for one in pairs):
        return [f"--dim={one}" for one in pairs]
    return ["--dim", *pairs]


def without_text(line: Sequence[str]) -> list[str]:
    """A command line without its text prompt."""
    kept, skip = [], False
    for word in line:
        name = word.partition("=")[0]
        if not skip and name not in ("--text", "--chat"):
            kept.append(word)
        skip = not skip and word in ("--text", "--chat")
    return kept
