"""The command line: ``kvviz demo``, ``about``, ``report``, ``html``, ``find``, ``compare``, ``smollm2`` and ``lab``.

Errors in the input are reported in one line on stderr, and the exit status is 2.
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

_INTERRUPTED = 130  # as in shells: 128 plus the number of the signal


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, by default with the arguments of the process. Returns the exit status: 0; 1 if a limit of
    ``report --fail-on`` was exceeded; 2 if the input was wrong; 130 if it was interrupted from the keyboard."""
    _open_streams()
    try:
        return _status(arguments)
    finally:
        _settle_streams()


def _status(arguments: Sequence[str] | None) -> int:
    line, rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"], []
    if line[:1] == ["lab"] and line[1:] not in (["-h"], ["--help"]):
        # Everything after the folder is JupyterLab's own.
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
        # The reader of the output has closed the pipe.
        return 0
    except OSError as error:
        return _fail(f"{error.filename or 'cannot write the output'}: {error.strerror or error}")
    except MemoryError as error:
        return _fail(f"this needs more memory than there is: {error}")
    except KeyboardInterrupt:
        print("kvviz: stopped from the keyboard", file=sys.stderr)
        return _INTERRUPTED


def _open_streams() -> None:
    """Open standard streams that the parent process has closed."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - it stays open


def _settle_streams() -> None:
    """Discard what a stream cannot write: the interpreter flushes again at exit and would exit with status 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _read(line: list[str]) -> Any:
    from kvviz.cli.options import parser  # it imports all commands, which takes a second
    from kvviz.cli.results import check_outputs

    options = parser().parse_args(line)
    options.line, options.chosen = line, {}
    check_outputs(options)
    level = getattr(logging, os.environ.get("KVVIZ_LOG", "").upper(), None)
    if isinstance(level, int):
        logging.basicConfig(level=level, format="%(name)s: %(message)s")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A model's name may have letters that this terminal cannot print.
        sys.stdout.reconfigure(errors="replace")
    return options


def _fail(message: str) -> int:
    # One line, with names unchanged: they may contain several spaces.
    with suppress(OSError):
        print(f"kvviz: {' '.join(part.strip() for part in message.strip().splitlines())}", file=sys.stderr)
    return 2
