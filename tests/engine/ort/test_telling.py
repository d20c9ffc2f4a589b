"""onnxruntime's planning told step by step: complete, in the order of the schedule, in sentences."""

from typing import Any

import numpy as np

import kvviz
from kvviz.graph.model import Graph
from kvviz.runtimes.frontier import PlanningEvent
from kvviz.runtimes.named_policies import planning_events
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
