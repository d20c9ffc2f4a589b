"""Sends Ctrl-C at random moments into what kvviz does, and looks at how much still runs and what comes after.

``python -m tests.interrupts.stopping COUNT MODEL TOKENS`` prints a line of JSON for every kind of call.
"""

from __future__ import annotations

import gc
import hashlib
import io
import json
import math
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import kvviz
from tests.work import Lines

MODELS = Path(__file__).parents[2] / "assets" / "models"
PROMPT = [5, 17, 33, 4]


def calls(path: str, tokens: int) -> dict[str, Callable[[], Any]]:
    """What is stopped, by name; each gives something that two whole calls give alike."""
    graph = kvviz.load(path)
    feeds = kvviz.inputs(graph)
    trace = kvviz.decode(graph, PROMPT, tokens, progress=False)

    def decoded() -> Any:
        made = kvviz.decode(graph, PROMPT, tokens, progress=False)
        return None if made.interrupted else (made.tokens, made.peak_bytes, made.bytes_copied, len(made.steps))

    def ran() -> Any:
        made = kvviz.run(graph, feeds)
        return None if made.interrupted else hashed(*made.outputs.values())

    def fresh() -> Any:
        # Readers keep what they found with the trace: a copy of it has found nothing yet.
        return kvviz.Trace.load(io.BytesIO(saved))

    def save() -> bytes:
        file = io.BytesIO()
        trace.save(file)
        return file.getvalue()

    saved = save()
    return {
        "load": lambda: len(kvviz.load(path).nodes),
        "run": ran,
        "decode": decoded,
        "open": lambda: len(fresh().steps),
        "explain": lambda: repr(kvviz.explain(fresh())),
        "caches": lambda: [cache.runs for cache in fresh().caches] and repr(kvviz.cache_warnings(fresh())),
        "hazards": lambda: repr(kvviz.hazards(fresh())),
        "query": lambda: [step.index for step in fresh().find("copied>0 or name:*k* or /self.*k/")],
        "save": lambda: hashed(save()),
        "html": lambda: len(fresh().to_html()),
        "debug": lambda: debugged(graph),
    }


def debugged(graph: Any) -> Any:
    page = kvviz.debug(graph, prompt=PROMPT, max_new_tokens=2)
    page.resume()
    tokens = None if page.trace.interrupted else page.trace.tokens
    page.close()
    return tokens


def hashed(*data: Any) -> str:
    digest = hashlib.sha256()
    for one in data:
        digest.update(one if isinstance(one, bytes) else np.ascontiguousarray(one).tobytes())
    return digest.hexdigest()


class Sender:
    """Ctrl-C after some seconds, by a timer, which needs no other thread; ``lines`` counts what runs after it came.

    Python drops what is raised in a destructor: an interrupt that came in one is ``lost``.
    """

    def __init__(self) -> None:
        self.lines, self.lost = Lines(math.inf), False
        self._before = signal.signal(signal.SIGALRM, self._send)

    def _send(self, _: int, frame: FrameType | None) -> None:
        sys.settrace(self.lines)
        while frame is not None:
            frame.f_trace, frame = self.lines, frame.f_back
        signal.raise_signal(signal.SIGINT)

    def drop(self, what: sys.UnraisableHookArgs) -> None:
        """To be Python's hook for what a destructor raises."""
        self.lost |= what.exc_type is KeyboardInterrupt

    def after(self, seconds: float) -> None:
        self.lines.ran, self.lost = 0, False
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))

    def done(self) -> None:
        """Send nothing any more, and count no further."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.settrace(None)

    def close(self) -> None:
        """Give the timer back to whom it belonged to."""
        self.done()
        signal.signal(signal.SIGALRM, self._before)


def stop(call: Callable[[], Any], whole: Any, seconds: float, sender: Sender) -> tuple[str, int]:
    """One call, stopped: how it ended, and how many lines ran after the interrupt."""
    ended = "raised"
    gc.collect()  # what earlier calls left behind does not run its callbacks here
    try:
        try:
            sender.after(seconds)
            found = call()
            ended = "partial" if found is None else "whole" if found == whole else f"wrong: {found!r}"[:300]
        finally:
            sender.done()
    except KeyboardInterrupt:
        pass
    except Exception as error:
        ended = f"wrong: {type(error).__name__}: {error}"[:300]
    return (ended, sender.lines.ran) if ended != "whole" or not sender.lost else ("lost", 0)


def main(count: int, path: str, tokens: int) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    choose, sender = random.Random(count), Sender()
    sys.unraisablehook = sender.drop
    for name, call in calls(path, tokens).items():
        whole, begun = call(), time.perf_counter()
        call()
        took = time.perf_counter() - begun
        ends: dict[str, int] = {}
        most = 0
        for turn in range(count):
            ended, lines = stop(call, whole, choose.uniform(0, took), sender)
            ends[ended] = ends.get(ended, 0) + 1
            most = max(most, lines)
            if turn % 4 == 3 and call() != whole:
                ends["wrong: the next call gave something else"] = 1
        assert call() == whole, name
        print(json.dumps({"call": name, "lines": most, "ends": ends}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
