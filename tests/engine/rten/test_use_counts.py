"""What rten's buffers tell: uses counted in a byte, and outputs with more room than they need."""

from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import policies
from kvviz.graph.model import Graph
from tests.engine.graphs import graph_of
from tests.engine.rten.records import all_recordings

X = np.array([1, -2], np.float32)


def fan(readers: int, op: str = "Relu(a)", more: str = "", end: str = "", outputs: int = 1000) -> Graph:
    """One value that so many ops read, each of which makes an output, and more ops with an output after them."""
    names = [f"y{i}" for i in range(min(readers, outputs))] + [end] * bool(end)
    made = ", ".join(f"float[2] {name}" for name in names)
    nodes = " ".join(f"y{i} = {op}" for i in range(readers))
    return graph_of(f"g (float[2] x) => ({made}) <bool c = {{1}}> {{ a = Neg(x) {nodes} {more} }}")


def ran(graph: Graph, outputs: list[str] | None = None, policy: str | kvviz.Policy = "rten") -> kvviz.Trace:
    return kvviz.run(graph, {"x": X}, outputs, policy=policy, poison=True)


def readers_in_place(trace: kvviz.Trace) -> list[str]:
    return [step.outputs[0] for step in trace.steps if "a" in step.decision.taken]


@pytest.mark.parametrize(("readers", "taken"), [(253, ["y252"]), (254, ["y253"]), (255, []), (256, []), (700, [])])
def test_from_255_readers_on_none_takes_the_value_and_all_run(readers: int, taken: list[str]) -> None:
    trace = ran(fan(readers))
    assert len(trace.steps) == readers + 1
    assert readers_in_place(trace) == taken
    assert all(np.array_equal(out, [0, 2]) for out in trace.outputs.values())
    if not taken:
        (blocker,) = trace.steps[-1].decision.blockers
        assert blocker.code == "POLICY" and "255 is never counted down" in blocker.message
        assert {str(reason.code) for reason in trace.steps[-2].decision.blockers} == {"POLICY", "NOT_LAST_USE"}
    # With the quirk put right the last of them takes it.
    assert readers_in_place(ran(fan(readers), policy=policies.rten(quirks=()))) == [f"y{readers - 1}"]


def test_a_value_of_255_uses_lives_to_the_end_of_the_run() -> None:
    # given: all readers done, then two more ops
    trace = ran(fan(256, more="z = Exp(y255) end = Neg(z)", end="end", outputs=255))
    home = trace.steps[0].outs[0].storage
    assert [step.index for step in trace.steps if home in step.freed] == [len(trace.steps) - 1]


def test_an_op_that_reads_it_twice_counts_twice_and_a_requested_output_once_more() -> None:
    trace = ran(fan(130, "Mul(a, a)"))
    assert readers_in_place(trace) == []
    assert all(np.array_equal(out, [1, 4]) for out in trace.outputs.values())
    trace = ran(fan(254), ["a", *(f"y{i}" for i in range(254))])
    assert {str(blocker.code) for blocker in trace.steps[-1].decision.blockers} == {"REQUESTED_OUTPUT", "POLICY"}


@pytest.mark.parametrize(("readers", "taken"), [(254, 1), (255, 0), (256, 0)])
def test_a_body_counts_what_it_captures_in_a_byte_too(readers: int, taken: int) -> None:
    # given: a body that owns what it captures, as nobody else needs it
    names = [f"y{i}" for i in range(readers)]
    typed = ", ".join(f"float[2] {name}" for name in names)
    yes, no = (" ".join(f"{name} = {op}" for name in names) for op in ("Relu(a)", "Neg(x)"))
    trace = ran(graph_of(f"""g (float[2] x) => ({typed}) <bool c = {{1}}> {{ a = Neg(x) {", ".join(names)} = If (c) <
        then_branch = t () => ({typed}) {{ {yes} }}, else_branch = e () => ({typed}) {{ {no} }}> }}"""))  # fmt: skip
    assert len(readers_in_place(trace)) == taken
    assert all(np.array_equal(out, [0, 2]) for out in trace.outputs.values())


def test_a_value_of_255_uses_is_lent_to_a_body() -> None:
    # given: 254 readers, and an If whose branch captures the value last
    branch = """z = If (c) <then_branch = yes () => (float[2] t) { t = Neg(a) },
                            else_branch = no () => (float[2] e) { e = Neg(x) }>"""
    trace = ran(fan(254, more=branch, end="z"))
    (frame,) = [frame for frame in trace.frames if frame.path]
    assert {bound.name: bound.how for bound in frame.bindings}["a"] == "captured by reference"
    assert readers_in_place(trace) == []


# Recorded in tests/data/rten: a Range pushes its elements one by one, to a vector that begins with room for four and
# doubles; a Shape of some of the dimensions takes room for all of them.
def appended(maker: str, rows: int, **feeds: Any) -> kvviz.Trace:
    """Run some nodes that make ``r``, and a Concat that appends so many rows to it."""
    given = {name: np.array(value) for name, value in {**feeds, "t": np.arange(100, 100 + rows)}.items()}
    inputs = ", ".join(f"int64{list(array.shape) if array.ndim else ''} {name}" for name, array in given.items())
    graph = graph_of(f"g ({inputs}) => (int64[n] y) {{ {maker} y = Concat <axis = 0> (r, t) }}")
    trace = kvviz.run(graph, given, policy="rten", poison=True)
    assert np.array_equal(trace.outputs["y"][-rows:], given["t"])
    return trace


def counted(length: int, rows: int) -> kvviz.Trace:
    trace = appended("r = Range(s, l, d)", rows, s=0, l=length, d=1)
    assert np.array_equal(trace.outputs["y"][:-rows], np.arange(length))
    return trace


@pytest.mark.parametrize(("length", "room"), [(0, 0), (1, 4), (2, 4), (4, 4), (5, 8), (16, 16), (19, 32)])
def test_a_concat_fits_behind_a_range_up_to_the_next_power_of_two(length: int, room: int) -> None:
    for rows in {1, 2, 3, room - length, room - length + 1} - {0}:
        range_step, concat = counted(length, rows).steps
        assert range_step.allocated == 8 * room
        if length + rows <= room:
            assert concat.decision.dispatch == "in_place" and concat.decision.shares == {"y": "r"}
            assert (concat.allocated, concat.copied, concat.written) == (0, 0, 8 * rows)
        else:
            assert concat.decision.shares == {}
            assert not length or [str(blocker.code) for blocker in concat.decision.blockers] == ["NO_CAPACITY"]


@pytest.mark.parametrize(("rows", "fits"), [(1, True), (3, True), (4, False)])
def test_a_concat_fits_behind_a_part_of_a_shape_up_to_the_rank(rows: int, fits: bool) -> None:
    trace = appended("r = Shape <start = 1, end = 2> (x)", rows, x=np.ones((2, 5, 1, 1), np.int64))
    assert trace.outputs["y"][0] == 5
    assert trace.steps[0].allocated == 4 * 8
    assert trace.steps[1].decision.shares == ({"y": "r"} if fits else {})


def test_views_between_keep_the_room() -> None:
    views = "a = Range(s, l, d) b = Unsqueeze(a, axis) r = Reshape(b, flat)"
    concat = appended(views, 3, s=3, l=4, d=1, axis=[0], flat=[-1]).steps[-1]
    assert concat.decision.shares == {"y": "r"} and concat.allocated == 0


def test_the_recorded_outputs_of_range_and_shape_have_the_room_that_we_give_them() -> None:
    seen = 0
    for recording in all_recordings():
        for op in recording.ops:
            if op["op"] in ("Range", "Shape") and op["out"][0]["cap"]:
                (length,), rank = op["out"][0]["shape"], len(op["in"][0]["shape"])
                shape = f"r = Shape <start = 0, end = {length}> (x)"
                is_range = op["op"] == "Range"
                mine = counted(length, 1) if is_range else appended(shape, 1, x=np.ones((1,) * rank, np.int64))
                assert op["out"][0]["cap"] == mine.steps[0].allocated // 8, op["name"]
                seen += 1
    assert seen > 500
