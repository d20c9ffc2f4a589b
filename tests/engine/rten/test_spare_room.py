"""Outputs that rten makes with more room than they need, in which a later Concat finds place for what it appends.

Recorded in ``tests/data/rten``: a Range pushes its elements one by one, to a vector that begins with room for four and
doubles; a Shape of some of the dimensions takes room for all of them.
"""

import numpy as np
import onnx
import pytest

import kvviz
from tests.engine.rten.records import Record, all_recordings
from tests.graph.build import model, node


def appended(maker: list[onnx.NodeProto], rows: int, *values: str, **feeds: np.ndarray) -> kvviz.Trace:
    """Run some nodes that make ``r``, and a Concat that appends so many rows to it."""
    proto = model([*maker, node("Concat", "r t", "y", axis=0)], [*values, "t int64 ?"], ["y"])
    tail = np.arange(100, 100 + rows)
    trace = kvviz.run(kvviz.load(proto), {**feeds, "t": tail}, policy="rten", poison=True)
    assert np.array_equal(trace.outputs["y"][-rows:], tail)
    return trace


def counted(length: int, rows: int) -> kvviz.Trace:
    scalars = {"s": np.array(0), "l": np.array(length), "d": np.array(1)}
    trace = appended([node("Range", "s l d", "r")], rows, "s int64 -", "l int64 -", "d int64 -", **scalars)
    assert np.array_equal(trace.outputs["y"][:-rows], np.arange(length))
    return trace


@pytest.mark.parametrize(("length", "room"), [(1, 4), (2, 4), (4, 4), (5, 8), (16, 16), (19, 32)])
def test_a_concat_fits_behind_a_range_up_to_the_next_power_of_two(length: int, room: int) -> None:
    for rows in (1, 2, 3, room - length, room - length + 1):
        if rows:
            range_step, concat = counted(length, rows).steps
            assert range_step.allocated == 8 * room and concat.decision.dispatch == "in_place"
            if length + rows <= room:
                assert concat.decision.shares == {"y": "r"}
                assert (concat.allocated, concat.copied, concat.written) == (0, 0, 8 * rows)
            else:
                assert concat.decision.shares == {}
                assert [str(blocker.code) for blocker in concat.decision.blockers] == ["NO_CAPACITY"]


def test_a_range_of_nothing_has_no_room() -> None:
    range_step, concat = counted(0, 1).steps
    assert range_step.allocated == 0 and concat.decision.shares == {}


@pytest.mark.parametrize(("rows", "fits"), [(1, True), (3, True), (4, False)])
def test_a_concat_fits_behind_a_part_of_a_shape_up_to_the_rank(rows: int, fits: bool) -> None:
    shape = [node("Shape", "x", "r", start=1, end=2)]
    trace = appended(shape, rows, "x float 2 5 1 1", x=np.ones((2, 5, 1, 1), np.float32))
    assert trace.outputs["y"][0] == 5
    assert trace.steps[0].allocated == 4 * 8
    assert trace.steps[1].decision.shares == ({"y": "r"} if fits else {})


def test_views_between_keep_the_room() -> None:
    views = [node("Range", "s l d", "a"), node("Unsqueeze", "a axis", "b"), node("Reshape", "b flat", "r")]
    ends = {name: np.array(value) for name, value in (("s", 3), ("l", 4), ("d", 1))}
    inputs = [*(f"{name} int64 -" for name in ends), "axis int64 1", "flat int64 1"]
    trace = appended(views, 3, *inputs, **ends, axis=np.array([0]), flat=np.array([-1]))
    assert trace.steps[-1].decision.shares == {"y": "r"} and trace.steps[-1].allocated == 0


def test_the_recorded_outputs_of_range_and_shape_have_the_room_that_we_give_them() -> None:
    # given: every recorded Range and Shape
    seen = 0
    for recording in all_recordings():
        for op in recording.ops:
            if op["op"] in ("Range", "Shape") and op["out"][0]["cap"]:
                assert op["out"][0]["cap"] == _room(op), op["name"]
                seen += 1
    assert seen > 500


def _room(op: Record) -> int:
    """Elements of a new buffer, as our own run of the same op has it."""
    length: int = op["out"][0]["shape"][0]
    if op["op"] == "Range":
        return counted(length, 1).steps[0].allocated // 8
    rank = len(op["in"][0]["shape"])
    shape = [node("Shape", "x", "r", start=0, end=length)]
    inputs = "x float" + " 1" * rank
    return appended(shape, 1, inputs, x=np.ones((1,) * rank, np.float32)).steps[0].allocated // 8
