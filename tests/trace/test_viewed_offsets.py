"""Offsets that follow from what a step viewed are the same looked up for all steps at once and for one."""

import numpy as np
import pytest

import kvviz
from kvviz.trace.index.lifetimes import FrameSteps, LogValues, offsets
from kvviz.trace.reasons import offset_of
from kvviz.trace.schema.log import distinct
from tests.engine.test_trace import make
from tests.graph.build import MODELS


def test_views_of_views_begin_where_one_look_after_the_other_finds_them() -> None:
    # given
    graph = kvviz.load(MODELS / "o02_optimum1_merged_gpt2" / "model.onnx")
    decodes = [kvviz.decode(graph, [5, 17, 33], 3, policy=name, progress=False) for name in ("ideal", "rten")]
    moved = 0
    for trace in (*decodes, make("loop"), make("nested"), make("functions")):
        # when
        values = LogValues(trace.log)
        _, outs = trace.log.tables()
        chained = np.flatnonzero((outs[:, 0] >= 0) & (outs[:, 3] < 0))
        found = offsets(FrameSteps(values))[chained].tolist()
        # then
        assert found == [offset_of(trace, step) for step in values.step[chained].tolist()]
        moved += sum(offset > 0 for offset in found)
    assert moved > 50


@pytest.mark.parametrize("limit", [7, 1 << 40])
def test_numbers_are_told_apart_with_a_table_and_without(limit: int) -> None:
    found, places = distinct(np.array([5, 3, 3, 0, 5, 6]), limit)
    assert found.tolist() == [0, 3, 5, 6] and places.tolist() == [2, 1, 1, 0, 2, 3]
