"""Explaining a trace takes work close to linear in its steps: four times the ops, less than five times the lines."""

from collections.abc import Callable
from typing import Any

import pytest

import kvviz
from kvviz.report.faces.report_text import report_text
from tests.bench.growth import made
from tests.work import lines_of

SIZES = {"chain": 500, "wide": 200, "loop": 120}


def told(trace: kvviz.Trace) -> str:
    return report_text(kvviz.explain(trace))


def placed(trace: kvviz.Trace) -> list[Any]:
    return [(step.outs, step.decision) for step in trace.steps]


def work(name: str, size: int, policy: str, look: Callable[[Any], Any]) -> int:
    model, inputs = made(name, size)
    trace = kvviz.run(kvviz.load(model), inputs, donate=["x"], policy=policy)
    return lines_of(lambda: look(trace))


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize(
    ("look", "policy"), [(told, "ideal"), (told, "onnxruntime"), (kvviz.hazards, "ideal"), (placed, "ideal")]
)
def test_four_times_the_ops_take_less_than_five_times_the_work(
    name: str, look: Callable[[Any], Any], policy: str
) -> None:
    few, many = (work(name, size, policy, look) for size in (SIZES[name], 4 * SIZES[name]))
    assert many < 5 * few
