"""The command line: ``kvviz demo``, ``about``, ``report``, ``html``, ``find``, ``compare``, ``smollm2`` and ``lab``.

What is wrong with the input is said in one line on stderr, and the exit status is 2.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kvviz.errors import KvvizError
from kvviz.version import VERSION

_INTERRUPTED = 130  # as a shell has it: 128 and the number of the signal


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    ``arguments``: without the program's name; those of the process by default.

    Returns exit status: 0; 1 where ``report --fail-on`` found its limit passed; 2 where the input was wrong; 130 where
      it was stopped from the keyboard.
    """
    _open_streams()
    try:
        return _status(arguments)
    finally:
        _settle_streams()


def _status(arguments: Sequence[str] | None) -> int:
    line, rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"], []
    if line[:1] == ["lab"] and line[1:] not in (["-h"], ["--help"]):
        # After the folder, everything is JupyterLab's own.
        cut = 1 + (len(line) > 1 and not line[1].startswith("-"))
        line, rest = line[:cut], line[cut:]
    try:
        if line in (["--version"], ["-V"]):
            print(f"kvviz {VERSION}", flush=True)
            return 0
        options = _read(line)
        options.rest = rest
        status = options.run(options)
        sys.stdout.flush()
        return int(status)
    except KvvizError as error:
        return _fail(str(error))
    except BrokenPipeError:
        # Whoever read the output has seen enough.
        return 0
    except OSError as error:
        return _fail(f"{error.filename or 'cannot write the output'}: {error.strerror or error}")
    except MemoryError as error:
        return _fail(f"this needs more memory than there is: {error}")
    except KeyboardInterrupt:
        print("kvviz: stopped from the keyboard", file=sys.stderr)
        return _INTERRUPTED


def _open_streams() -> None:
    """Somewhere to print to, if whoever started us has closed it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - it stays open


def _settle_streams() -> None:
    """Drop what a stream cannot write: the interpreter flushes again at exit and would end with status 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _read(line: list[str]) -> Any:
    """The options of a command line."""
    from kvviz.cli.options import parser  # it knows of all commands, which takes a second to import
    from kvviz.cli.results import check_outputs

    options = parser().parse_args(line)
    options.line, options.chosen = line, {}
    check_outputs(options)
    level = getattr(logging, os.environ.get("KVVIZ_LOG", "").upper(), None)
    if isinstance(level, int):
        logging.basicConfig(level=level, format="%(name)s: %(message)s")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A model may be named in letters that this terminal does not have.
        sys.stdout.reconfigure(errors="replace")
    return options


def _fail(message: str) -> int:
    # One line, with names as they are: they may hold several spaces.
    with suppress(OSError):
        print(f"kvviz: {' '.join(part.strip() for part in message.strip().splitlines())}", file=sys.stderr)
    return 2
