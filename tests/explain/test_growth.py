"""Explaining a trace takes time close to linear in its steps: four times the ops, far less than 16 times the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import kvviz
from kvviz.view.report_text import report_text
from tests.bench.growth import made

SIZES = {"chain": 2_000, "wide": 700, "loop": 400}
TRIES = 4


def told(trace: kvviz.Trace) -> str:
    return report_text(kvviz.explain(trace))


def placed(trace: kvviz.Trace) -> list[Any]:
    return [(step.outs, step.decision) for step in trace.steps]


def seconds(name: str, size: int, policy: str, look: Callable[[Any], Any]) -> float:
    model, inputs = made(name, size)
    trace = kvviz.run(kvviz.load(model), inputs, donate=["x"], policy=policy)
    start = time.process_time()
    look(trace)
    return time.process_time() - start


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize(
    ("look", "policy"), [(told, "ideal"), (told, "onnxruntime"), (kvviz.hazards, "ideal"), (placed, "ideal")]
)
def test_four_times_the_ops_take_less_than_ten_times_the_time(
    name: str, look: Callable[[Any], Any], policy: str
) -> None:
    few, many = [], []
    for _ in range(TRIES):
        # Other work on the machine only ever makes it slower.
        few.append(seconds(name, SIZES[name], policy, look))
        many.append(seconds(name, 4 * SIZES[name], policy, look))
        if min(many) < 10 * min(few):
            return
    raise AssertionError(f"{min(many):.2f} s against {min(few):.2f} s")
