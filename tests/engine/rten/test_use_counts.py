"""What rten's buffers tell: uses counted in a byte, and outputs with more room than they need."""

import numpy as np
import onnx
import pytest

import kvviz
from kvviz import policies
from kvviz.graph.model import Graph
from tests.engine.rten.records import Record, all_recordings
from tests.graph.build import graph, model, node

X = np.array([1, -2], np.float32)


def fan(readers: int, op: str = "Relu") -> Graph:
    """One value that so many ops read, each of which makes an output."""
    names = [f"y{i}" for i in range(readers)]
    inputs = "a a" if op == "Mul" else "a"
    nodes = [node("Neg", "x", "a"), *(node(op, inputs, name) for name in names)]
    return kvviz.load(model(nodes, ["x float 2"], names))


def readers_in_place(trace: kvviz.Trace) -> list[str]:
    return [step.outputs[0] for step in trace.steps if "a" in step.decision.taken]


@pytest.mark.parametrize(("readers", "taken"), [(253, ["y252"]), (254, ["y253"]), (255, []), (256, []), (700, [])])
def test_from_255_readers_on_none_takes_the_value_and_all_run(readers: int, taken: list[str]) -> None:
    trace = kvviz.run(fan(readers), {"x": X}, policy="rten", poison=True)
    assert len(trace.steps) == readers + 1
    assert readers_in_place(trace) == taken
    assert all(np.array_equal(out, [0, 2]) for out in trace.outputs.values())


def test_the_last_reader_of_a_value_of_255_uses_is_told_why_it_copies() -> None:
    trace = kvviz.run(fan(256), {"x": X}, policy="rten")
    (blocker,) = trace.steps[-1].decision.blockers
    assert blocker.code == "POLICY" and "255 is never counted down" in blocker.message
    assert {str(reason.code) for reason in trace.steps[-2].decision.blockers} == {"POLICY", "NOT_LAST_USE"}


def test_a_value_of_255_uses_lives_to_the_end_of_the_run() -> None:
    # given: all readers done, then two more ops
    names = [f"y{i}" for i in range(256)]
    nodes = [node("Neg", "x", "a"), *(node("Relu", "a", name) for name in names)]
    nodes += [node("Exp", "y255", "z"), node("Neg", "z", "end")]
    proto = model(nodes, ["x float 2"], [*names[:255], "end"])
    trace = kvviz.run(kvviz.load(proto), {"x": X}, policy="rten")
    home = trace.steps[0].outs[0].storage
    assert [step.index for step in trace.steps if home in step.freed] == [len(trace.steps) - 1]


def test_a_value_that_one_op_reads_twice_counts_twice() -> None:
    trace = kvviz.run(fan(130, "Mul"), {"x": X}, policy="rten")
    assert readers_in_place(trace) == []
    assert all(np.array_equal(out, [1, 4]) for out in trace.outputs.values())


def test_a_requested_output_counts_as_one_use_more() -> None:
    names = [f"y{i}" for i in range(254)]
    trace = kvviz.run(fan(254), {"x": X}, ["a", *names], policy="rten")
    assert {str(blocker.code) for blocker in trace.steps[-1].decision.blockers} == {"REQUESTED_OUTPUT", "POLICY"}


def test_with_the_quirk_put_right_the_last_of_many_readers_takes_the_value() -> None:
    trace = kvviz.run(fan(300), {"x": X}, policy=policies.rten(quirks=()), poison=True)
    assert readers_in_place(trace) == ["y299"]


@pytest.mark.parametrize(("readers", "taken"), [(254, 1), (255, 0), (256, 0)])
def test_a_body_counts_what_it_captures_in_a_byte_too(readers: int, taken: int) -> None:
    # given: a body that owns what it captures, as nobody else needs it
    names = [f"y{i}" for i in range(readers)]
    then = graph([node("Relu", "a", name) for name in names], [], [f"{name} float 2" for name in names])
    other = graph([node("Neg", "x", name) for name in names], [], [f"{name} float 2" for name in names])
    branch = node("If", "c", " ".join(names), then_branch=then, else_branch=other)
    proto = model([node("Neg", "x", "a"), branch], ["x float 2", "c bool"], names)
    trace = kvviz.run(kvviz.load(proto), {"x": X, "c": np.array(True)}, policy="rten", poison=True)
    assert len(readers_in_place(trace)) == taken
    assert all(np.array_equal(out, [0, 2]) for out in trace.outputs.values())


def test_a_value_of_255_uses_is_lent_to_a_body() -> None:
    # given: 254 readers, and an If whose branch captures the value last
    names = [f"y{i}" for i in range(254)]
    readers = [node("Relu", "a", name) for name in names]
    then = graph([node("Neg", "a", "t")], [], ["t float 2"])
    other = graph([node("Neg", "x", "e")], [], ["e float 2"])
    branch = node("If", "c", "z", then_branch=then, else_branch=other)
    proto = model([node("Neg", "x", "a"), *readers, branch], ["x float 2", "c bool"], [*names, "z"])
    trace = kvviz.run(kvviz.load(proto), {"x": X, "c": np.array(True)}, policy="rten", poison=True)
    (frame,) = [frame for frame in trace.frames if frame.path]
    assert {bound.name: bound.how for bound in frame.bindings}["a"] == "captured by reference"
    assert readers_in_place(trace) == []


# Recorded in tests/data/rten: a Range pushes its elements one by one, to a vector that begins with room for four and
# doubles; a Shape of some of the dimensions takes room for all of them.
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
