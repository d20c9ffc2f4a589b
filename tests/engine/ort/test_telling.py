"""onnxruntime's planning told step by step: complete, in the order of the schedule, in sentences."""

from typing import Any

import numpy as np

import kvviz
from kvviz.graph.model import Graph
from kvviz.runtimes.frontier import PlanningEvent
from kvviz.runtimes.named_policies import planning_events
from kvviz.runtimes.ort.ort_policy import onnxruntime as policy
from tests.graph.build import model, node


def events(graph: Graph) -> tuple[PlanningEvent, ...]:
    """What onnxruntime's planner does, step by step."""
    return planning_events(graph, policy="onnxruntime")


def small() -> Graph:
    nodes = [
        node("Neg", "x", "n", name="neg"),
        node("Relu", "n", "r", name="relu"),
        node("Exp", "r", "e", name="exp"),
        node("Reshape", "e s", "v", name="reshape"),
        node("Softmax", "v", "w", name="softmax"),
        node("Reshape", "w t", "y", name="end"),
        node("Exp", "v", "z", name="other"),
    ]
    weights: dict[str, Any] = {"s": np.array([-1]), "t": np.array([2, 3])}
    return kvviz.load(model(nodes, ["x float 2 3"], ["y", "z"], opset=18, **weights))


def test_every_output_of_every_planned_node_is_told_once_with_its_kind() -> None:
    main = small()
    buffers = [event for event in events(main) if event.phase == "buffer"]
    assert sorted(event.value for event in buffers) == sorted(name for n in main.nodes for name in n.outputs)
    kinds = {event.value: event.action for event in buffers}
    assert kinds == {
        "n": "kAllocate", "r": "kReuse", "e": "kAllocate", "v": "kReuse", "w": "kReuse",
        "y": "kAllocateOutput", "z": "kAllocateOutput",
    }  # fmt: skip


def test_the_reasons_name_what_decided() -> None:
    reasons = {event.value: event.reason for event in events(small()) if event.phase == "buffer"}
    assert "may run in place" in reasons["r"] and "the buffer of n" in reasons["r"]
    assert "does not run in place" in reasons["e"]
    assert "another name or shape" in reasons["v"]
    assert "memory of its own" in reasons["y"]


def test_a_refusal_is_told_with_its_reasons() -> None:
    nodes = [node("Neg", "x", "n"), node("Relu", "n", "r"), node("Exp", "r", "y")]
    main = kvviz.load(model(nodes, ["x float ? 3"], ["y"], opset=18))
    reasons = {event.value: event.reason for event in events(main) if event.phase == "buffer"}
    assert reasons["r"] == (
        "Relu may not overwrite n (a dimension has neither a number nor a name); "
        "and no dead buffer of that size is free: new memory"
    )


def test_the_walk_begins_at_the_last_end_and_says_what_led_to_each_node() -> None:
    walk = [event for event in events(small()) if event.phase == "walk"]
    assert walk[0].node is not None and walk[0].node.name == "other" and walk[0].depth == 0
    assert (walk[1].node is not None and walk[1].node.name, walk[1].value, walk[1].depth) == ("reshape", "v", 1)
    counts = [event.planned for event in walk if event.action == "append"]
    assert counts == list(range(1, 8))


def test_a_node_that_was_met_already_is_skipped() -> None:
    nodes = [node("Neg", "x", "n"), node("Exp", "n", "a"), node("Add", "n a", "y")]
    main = kvviz.load(model(nodes, ["x float 2"], ["y"], opset=18))
    skipped = [event for event in events(main) if event.action == "skip"]
    assert [event.node.op_type for event in skipped if event.node] == ["Neg"]


def test_without_mem_reuse_no_dead_buffer_is_told_to_be_taken_over() -> None:
    nodes = [node("Neg", "x", "a"), node("Exp", "a", "b"), node("Neg", "b", "c"), node("Exp", "c", "y")]
    main = kvviz.load(model(nodes, ["x float 2 3"], ["y"], opset=18))
    kinds = [
        e.action
        for e in planning_events(main, policy=policy(mem_reuse=False))
        if e.value == "c" and e.phase == "buffer"
    ]
    assert kinds == ["kAllocate"]
    assert [e.action for e in events(main) if e.value == "c" and e.phase == "buffer"] == ["kReuse"]
