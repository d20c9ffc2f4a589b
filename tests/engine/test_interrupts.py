"""A step is done whole or not at all, whenever and however somebody stops it."""

import gc
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.decode.run_sessions import SingleRun
from kvviz.decode.token_loop import DecodeSession
from kvviz.engine.sessions.session import Session
from kvviz.report.explain import explain
from kvviz.report.faces.steps_table import steps_table
from tests.decode.small import small
from tests.engine.graphs import graph_of

PROMPT, TOKENS = [3, 1, 4, 1, 5], 4
PACKAGE = str(Path(kvviz.__file__).parent)
# A signal is held back until the step is done; what a debugger or a tracing function raises arrives at once.
BY_SIGNAL, RAISED = "by signal", "raised"


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """What is raised into the very line that would switch the collector on again leaves it off."""
    yield
    gc.enable()


class Lines:
    """Counts the lines of kvviz that run, and interrupts at one of them."""

    def __init__(self, at: int = -1, way: str = BY_SIGNAL) -> None:
        self.at, self.way, self.seen = at, way, 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        # What puts back handlers and the collector cannot itself be stopped half-way.
        restores = name.endswith(("interrupts.py", "collector.py")) or frame.f_code.co_name == "_put_with_the_old"
        if not name.startswith(PACKAGE) or restores:
            return None
        self.seen += event == "line"
        if event == "line" and self.seen == self.at + 1:
            if self.way == RAISED:
                raise KeyboardInterrupt
            signal.raise_signal(signal.SIGINT)
        return self

    @contextmanager
    def counted(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            yield
        except KeyboardInterrupt:
            assert self.way == RAISED or self.at >= 0
        finally:
            sys.settrace(before)


def lines_of(action: Callable[[], Any]) -> int:
    lines = Lines()
    with lines.counted():
        action()
    return lines.seen


def look_at(trace: Trace) -> None:
    """Every reader works on what ran."""
    assert len(steps_table(trace, None).rows) == len(trace.steps)
    assert {where.storage for step in trace.steps for where in step.outs} <= {s.id for s in trace.storages}
    assert all(frame.run < len(trace.runs) for frame in trace.frames)
    assert all(len(cache.runs) <= len(trace.runs) for cache in trace.caches)
    repr(explain(trace))
    kvviz.hazards(trace)


def told(trace: Trace) -> list[Any]:
    """All that must be as if nobody had interrupted."""
    rows = [(s.node, s.frame, s.decision.dispatch, s.outs, s.freed, s.live_bytes) for s in trace.steps]
    runs = [(run.first, run.last, run.token, run.peak_bytes, run.bytes_copied) for run in trace.runs]
    return [trace.tokens, rows, runs, trace.storages, [cache.runs for cache in trace.caches], trace.peak_bytes]


cached_graph = cache(graph_of)
decoder = cache(lambda form: kvviz.load(small(form).proto))


def adding_twice() -> Session:
    graph = "g (float[4] x, float[4] o) => (float[4] b) { a = Add(x, o)  b = Add(a, o) }"
    return SingleRun(cached_graph(graph), {"x": np.ones(4, np.float32), "o": np.ones(4, np.float32)}, donate=["x"])


LOOP = """g (float[4] x) => (float[4] y, float[3, 4] all) {
    n = Constant <value = int64 {3}> ()
    y, all = Loop (n, , x) <body = b (int64 i, bool c, float[4] s) => (bool d, float[4] t, float[4] u) {
        d = Identity(c)  h = Neg(s)  t = Relu(h)  u = Add(t, s) }>
}"""


def looping() -> Session:
    return SingleRun(cached_graph(LOOP), {"x": np.arange(4, dtype=np.float32)}, donate=["x"])


def decoding(form: str = "concat", tokens: int = TOKENS) -> Session:
    options = {"max_new_tokens": tokens, "kv_capacity": 16, **small(form).options}
    return DecodeSession(decoder(form), PROMPT, **options)


@pytest.mark.parametrize("way", [BY_SIGNAL, RAISED])
@pytest.mark.parametrize("begin", [adding_twice, looping], ids=["two ops in place", "a loop"])
def test_a_run_that_is_interrupted_at_any_line_and_run_on_gives_what_it_gives_at_once(
    begin: Callable[[], Session], way: str
) -> None:
    for _ in range(8):
        whole = begin().run_to_end()  # the first runs are watched, and take more lines
    expected = told(whole)
    count = lines_of(begin().run_to_end)
    interrupted, every = 0, 1 + count // 400
    for at in range(0, count, every):
        session = begin()
        with Lines(at, way).counted():
            session.run_to_end()
        interrupted += session.trace.interrupted
        if at % 7 == 0 and at < 700:
            look_at(session.trace)
        trace = session.run_to_end()
        assert not trace.interrupted and told(trace) == expected
        for name, value in whole.outputs.items():
            np.testing.assert_array_equal(trace.outputs[name], value)
    assert interrupted > count // every // 2


@pytest.mark.parametrize("way", [BY_SIGNAL, RAISED])
def test_one_op_stepped_over_is_done_whole_or_not_at_all_at_any_line(way: str) -> None:
    whole = decoding(tokens=3).run_to_end()
    append = next(s.index for s in whole.steps if s.run == 2 and s.outs and s.outs[0].how == "append")

    def before_it() -> Session:
        session = decoding(tokens=3)
        while len(session.trace.steps) < append:
            session.advance()
        return session

    for at in range(lines_of(before_it().advance)):
        session, handler = before_it(), signal.getsignal(signal.SIGINT)
        with Lines(at, way).counted():
            session.advance()
        assert len(session.trace.steps) in (append, append + 1)
        assert way == RAISED or signal.getsignal(signal.SIGINT) is handler
        if at % 9 == 0:
            look_at(session.trace)
        assert told(session.run_to_end()) == told(whole)


@pytest.mark.parametrize("form", ["concat", "merged", "scatter_nd", "grouped_shared"])
def test_interrupted_at_random_lines_a_decode_goes_on_with_the_same_tokens(form: str) -> None:
    expected = told(decoding(form).run_to_end())
    lines, choose = lines_of(decoding(form).run_to_end), random.Random(form)
    for turn in range(30):
        session = decoding(form)
        for _ in range(turn % 3 + 1):
            with Lines(choose.randrange(lines), (BY_SIGNAL, RAISED)[turn % 2]).counted():
                session.run_to_end()
            if turn % 3 == 0:
                look_at(session.trace)
        assert told(session.run_to_end()) == expected


def test_a_step_on_another_thread_leaves_the_handlers_alone() -> None:
    session, handler = adding_twice(), signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=session.run_to_end)
    thread.start()
    thread.join()
    assert session.trace.outputs["b"].tolist() == [3] * 4 and signal.getsignal(signal.SIGINT) is handler


def test_where_inputs_were_not_kept_a_torn_run_says_that_it_has_to_be_started_anew(monkeypatch: Any) -> None:
    monkeypatch.setattr("kvviz.engine.sessions.replay.BUDGET", 0)
    session = adding_twice()
    lines = lines_of(adding_twice().run_to_end)
    with Lines(lines // 2, RAISED).counted():
        session.run_to_end()
    with pytest.raises(kvviz.KvvizError, match="start it again"):
        session.run_to_end()
