"""rten counts the uses of a value in a byte: 255 is never counted down, so such a value stays and is left alone."""

import numpy as np
import pytest

import kvviz
from kvviz import policies
from kvviz.graph.model import Graph
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
