"""What commands say of their results: a file that was written, a page that opens, the text that was decoded."""

from __future__ import annotations

import os
import sys
import webbrowser
from contextlib import suppress
from pathlib import Path

from kvviz.trace.recording import Trace
from kvviz.trace.units import size


def say(text: str) -> None:
    """Tell something beside the result, which counts also where nobody reads this."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def say_written(path: str) -> None:
    say(f"wrote {path} ({size(os.path.getsize(path))})")


def open_page(path: str) -> None:
    """Open a page in the browser, or ask for it where there is none."""
    if not webbrowser.open(Path(path).resolve().as_uri()):
        say(f"open {path} in a browser")


def answer_of(trace: Trace) -> str:
    """What was decoded, as text by the tokenizer beside the model; empty without one."""
    beside = trace.graph.companions
    if beside is None or beside.tokenizer is None or not trace.known("tokens"):
        return ""
    return str(beside.tokenizer.decode([token for token in trace.tokens if token not in beside.stop_tokens])).strip()
