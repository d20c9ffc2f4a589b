"""What is measured: the same decode by four contestants, in turns, so that what disturbs the machine hits all alike.

Times are processor times of this one process with one thread: a busy machine makes them longer by its caches only, not
by waiting. Each turn decodes all tokens; its figure is the median of the runs after the first, which is the
prompt's.
"""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kvviz.decode.token_loop import DecodeSession
from kvviz.graph.model import Graph
from kvviz.view.drawing.block_layout import forget
from kvviz.view.page_data.payload import payload

Feeds = dict[str, np.ndarray]
Turn = Callable[[], float]
ON, OFF, REFERENCE, ORT = "kvviz, trace on", "kvviz, trace off", "onnx.reference", "onnxruntime"
ALONE, READ = "kvviz.run alone", "its trace read"


def decode_feeds(
    graph: Graph, prompt: Sequence[int], tokens: int, inputs: Mapping[str, Any] | None = None
) -> list[Feeds]:
    """The inputs of every run of a greedy decode, as arrays of their own."""
    session = DecodeSession(graph, list(prompt), max_new_tokens=tokens, inputs=inputs, record=False)
    feeds = []
    while session.next_run():
        feeds.append({name: np.array(value) for name, value in session.feeds.items()})
        session.finish_run()
    return feeds


def kvviz_turn(graph: Graph, prompt: Sequence[int], tokens: int, record: bool) -> Turn:
    """A decode by kvviz, choosing tokens and carrying caches on included."""

    def turn() -> float:
        session = DecodeSession(graph, list(prompt), max_new_tokens=tokens, record=record)
        ends = [time.process_time()]
        while session.next_run():
            session.finish_run()
            ends.append(time.process_time())
        return typical(ends)

    return turn


def runtime_turn(run: Callable[[None, Feeds], Any], feeds: Sequence[Feeds]) -> Turn:
    """The same runs by another runtime, each on its recorded inputs."""

    def turn() -> float:
        ends = [time.process_time()]
        for feed in feeds:
            run(None, feed)
            ends.append(time.process_time())
        return typical(ends)

    return turn


def typical(ends: Sequence[float]) -> float:
    """Median time of the runs but the first."""
    return statistics.median(end - begin for begin, end in itertools.pairwise(ends[1:]))


def seconds(call: Callable[[], Any]) -> float:
    """Processor time of a call."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def in_turns(turns: Mapping[str, Turn], rounds: int) -> dict[str, list[float]]:
    """Milliseconds a step of each contestant, round by round; one round before the first is not counted."""
    times: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(rounds + 1):
        for name, turn in turns.items():
            # Nobody pays for what another one left behind.
            gc.collect()
            took = turn() * 1e3
            if number:
                times[name].append(took)
    return times


def ratio(times: Mapping[str, Sequence[float]], of: str, to: str) -> float:
    """Median over the rounds of one contestant's time divided by another's of the same round."""
    return statistics.median(a / b for a, b in zip(times[of], times[to]))


def page_figures(graph: Graph, prompt: Sequence[int], tokens: int) -> tuple[int, float, float]:
    """Of a decode's trace: bytes of the payload, milliseconds to make it, and to lay out its drawings, by the clock.

    Drawings are made in a child process, so that processor time of this one would not show them.
    """
    session = DecodeSession(graph, list(prompt), max_new_tokens=tokens)
    trace = session.run_to_end()
    forget()
    first, _ = _clocked(trace)
    warm = [_clocked(trace) for _ in range(3)]
    again = statistics.median(took for took, _ in warm)
    return len(warm[0][1]), again, max(first - again, 0.0)


def _clocked(trace: Any) -> tuple[float, bytes]:
    gc.collect()
    begin = time.perf_counter()
    made = payload(trace)
    return (time.perf_counter() - begin) * 1e3, made
