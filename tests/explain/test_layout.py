"""What is said to be row-major for certain really is, value by value, as NumPy has it while the model runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kvviz
from kvviz import Trace
from kvviz.engine.execution import Execution
from kvviz.engine.frame import Frame
from kvviz.engine.plan import PlannedNode
from kvviz.explain.row_major import is_row_major
from kvviz.trace.value_index import index_of
from tests.engine.graphs import graph_of, numbers
from tests.explain.test_fixes import DECODERS, POLICIES, decoded, of_seed
from tests.graph.build import file_id

Flags = dict[tuple[int, str], bool]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Flags:
    """Of every value that an op makes: whether it is row-major."""
    flags: Flags = {}
    log = Execution.note

    def spying(execution: Execution, frame: Frame, planned: PlannedNode, *rest: object) -> None:
        for name, slot in zip(planned.node.outputs, planned.outputs):
            if slot and isinstance(frame.vals[slot], np.ndarray):
                flags[frame.id, name] = bool(frame.vals[slot].flags.c_contiguous)
        log(execution, frame, planned, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Execution, "note", spying)
    return flags


def sure(trace: Trace, seen: Flags) -> tuple[int, list[tuple[int, str]]]:
    """How many values are certain, and those that are certain and wrong."""
    index = index_of(trace)
    certain = [key for key in seen if is_row_major(index, *key)]
    return len(certain), [key for key in certain if not seen[key]]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("path", DECODERS, ids=file_id)
def test_what_is_certain_of_a_decode_is_true(path: Path, policy: str, seen: Flags) -> None:
    number, wrong = sure(decoded(path, 2, policy=policy, kv_capacity=40), seen)
    assert wrong == [] and number > len(seen) / 4


def test_what_is_certain_of_bodies_inside_bodies_is_true(seen: Flags) -> None:
    for seed in range(60):
        seen.clear()
        number, wrong = sure(of_seed(seed, "never"), seen)
        assert wrong == [] and number > 0


def test_an_input_that_is_not_row_major_is_told_from_one_that_is() -> None:
    text = "g (float[2, 3] x, float[2, 3] y) => (float[2, 3] t, float[2, 3] u) { t = Relu(x) u = Relu(y) }"
    trace = kvviz.run(graph_of(text), {"x": numbers(2, 3), "y": np.asfortranarray(numbers(2, 3))})
    index = index_of(trace)
    assert [is_row_major(index, 0, name) for name in "xytu"] == [True, False, True, False]
