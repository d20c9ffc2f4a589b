"""Ctrl-C at random moments: what runs stops, and the next call gives what it gives without."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import kvviz
from kvviz import ext
from tests.engine.graphs import graph_of
from tests.interrupts.stopping import MODELS, Sender
from tests.work import Lines

# Loaded before a clock runs, which would interrupt the import.
run, debug = kvviz.run, kvviz.debug
# Lines of Python that may still run after an interrupt.
SOON = 50_000


def test_whatever_is_stopped_at_a_random_moment_stops_soon_and_leaves_the_next_call_right() -> None:
    model = str(MODELS / "o01_optimum_llama" / "model.onnx")
    line = [sys.executable, "-m", "tests.interrupts.stopping", "6", model, "2"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=500, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr[-2000:]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) > 8
    for call in told:
        assert not [end for end in call["ends"] if end.startswith("wrong")], call
        # A page is drawn once more, as far as the run came.
        assert call["lines"] < (20 * SOON if call["call"] == "debug" else SOON), call


ENDLESS = """g (float[2] x) => (float[2] y) {{
    n = Constant <value = int64 {{1000000000000}}> ()
    y = Loop (n, , x) <body = b (int64 i, bool c, float[2] s) => (bool {0}, float[2] s) {{ {1} }}>
}}"""


@pytest.mark.parametrize(
    "body", [("c", ""), ("d", "d = Constant <value = bool {1}> ()")], ids=["no op", "one constant"]
)
@pytest.mark.parametrize("driven", ["run", "debug"])
def test_a_loop_whose_body_has_nothing_to_run_is_stopped(body: tuple[str, str], driven: str) -> None:
    graph = graph_of(ENDLESS.format(*body))
    feeds = {"x": np.ones(2, np.float32)}
    with interrupted_after(0.5) as lines:
        if driven == "run":
            assert run(graph, feeds).interrupted
        else:
            with pytest.raises(KeyboardInterrupt):
                debug(graph, feeds)
    assert 0 < lines.ran < SOON


REGEX = r"""g (string[1] s) => (bool[1] y) { t = Identity(s)  y = RegexFullMatch <pattern = "(a*)*b"> (t) }"""


def test_a_regular_expression_that_takes_for_ever_is_stopped_and_what_ran_before_it_is_kept() -> None:
    graph = graph_of(REGEX)
    with interrupted_after(0.5) as lines:
        trace = run(graph, {"s": np.array(["a" * 40], object)})
    assert 0 < lines.ran < SOON
    assert trace.interrupted and [step.op_type for step in trace.steps] == ["Identity"]
    assert kvviz.run(graph, {"s": np.array(["aab"], object)}).outputs["y"].tolist() == [True]


LOOK = '<ir_version: 10, opset_import: ["my.domain": 1]> g (float[2] x) => (float[2] y) { y = my.domain.Look(x) }'


def test_signals_other_than_ctrl_c_stay_the_callers_while_a_graph_runs() -> None:
    def mine(*_: Any) -> None:
        pass

    others = [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM]
    before = [signal.signal(number, mine) for number in others]
    seen: list[Any] = []

    @ext.op("Look", domain="my.domain")
    def look(x: Any) -> Any:
        seen.extend(map(signal.getsignal, others))
        return x + 1

    try:
        kvviz.run(kvviz.load(onnx.parser.parse_model(LOOK)), {"x": np.ones(2, np.float32)})
    finally:
        for number, handler in zip(others, before):
            signal.signal(number, handler)
    assert seen == [mine] * 4


@contextmanager
def interrupted_after(seconds: float) -> Iterator[Lines]:
    """Ctrl-C after some seconds; gives the lines that run after it."""
    sender = Sender()
    try:
        sender.after(seconds)
        yield sender.lines
    finally:
        sender.close()
