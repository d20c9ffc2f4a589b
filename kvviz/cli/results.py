"""What commands report beside their result: files written, and command lines to try."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from kvviz.atomic_write import check_writable, is_device
from kvviz.errors import InputError, LimitError, OpError
from kvviz.graph.loading.load import holds_trace
from kvviz.trace.recording import Trace
from kvviz.trace.units import size


def say(text: str) -> None:
    """Print a message beside the result. It must not fail if nothing reads it."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def say_written(path: str) -> None:
    say(f"wrote {path} ({size(os.path.getsize(path))})")


def open_page(path: str) -> None:
    if not webbrowser.open(Path(path).resolve().as_uri()):
        say(f"open {path} in a browser")


def answer_of(trace: Trace) -> str:
    """The decoded text, by the tokenizer beside the model; empty without one."""
    beside = trace.graph.companions
    if beside is None or beside.tokenizer is None or not trace.known("tokens"):
        return ""
    return str(beside.tokenizer.decode([token for token in trace.tokens if token not in beside.stop_tokens])).strip()


# The files that a command writes. A path that cannot be written, or would destroy a file, is refused before a run.


_OUTPUTS = ("save", "sarif", "perfetto", "figure", "html", "out")
_INPUTS = ("model", "inputs", "words")


def check_outputs(options: argparse.Namespace) -> None:
    """Refuse paths that cannot be written, or that would replace another file that is read or written."""
    read = {os.path.realpath(path) for name in _INPUTS if (path := getattr(options, name, None))}
    written: dict[str, str] = {}
    for name in _OUTPUTS:
        path = getattr(options, name, None)
        if path is None:
            continue
        if path in ("", "-"):
            raise InputError(f"--{name} {path or 'is empty'}: name a file to write")
        check_writable(path)
        place = os.path.realpath(path)
        if written.setdefault(place, name) != name and not is_device(place):
            raise InputError(f"--{written[place]} and --{name} name the same file; give each its own")
        # A saved trace is read whole before it is written.
        if place in read and not (name == "save" and holds_trace(options.model)):
            raise InputError(f"--{name} {path} would replace what is read; name another file")


def figure_file(path: str) -> str:
    """The file of a figure. Its suffix gives the format; PNG by default."""
    from matplotlib.backend_bases import FigureCanvasBase  # slow to import, and asked for by this option only

    if not path:
        return path
    path = path if Path(path).suffix else f"{path}.png"
    known = FigureCanvasBase.get_supported_filetypes()
    if Path(path).suffix[1:].lower() not in known:
        raise InputError(f"cannot draw {path}: the formats of figures are {', '.join(sorted(known))}")
    return path


def proposed(message: str, line: Sequence[str]) -> str:
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
    kept, skip = [], False
    for word in line:
        name = word.partition("=")[0]
        if not skip and name not in ("--text", "--chat"):
            kept.append(word)
        skip = not skip and word in ("--text", "--chat")
    return kept
