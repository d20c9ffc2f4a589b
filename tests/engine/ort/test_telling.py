"""onnxruntime's planning told step by step: complete, in the order of the schedule, in sentences."""

import kvviz
from kvviz.graph.model import Graph
from kvviz.runtimes.frontier import PlanningEvent
from kvviz.runtimes.named_policies import planning_events
from tests.engine.graphs import graph_of
from tests.graph.build import model, node


def events(graph: Graph) -> tuple[PlanningEvent, ...]:
    """What onnxruntime's planner does, step by step."""
    return planning_events(graph, policy="onnxruntime")


def small() -> Graph:
    text = """g (float[2, 3] x) => (float[2, 3] y, float[6] z) <int64[1] s = {-1}, int64[2] t = {2, 3}> {
        n = Neg(x) r = Relu(n) e = Exp(r) v = Reshape(e, s) w = Softmax(v) y = Reshape(w, t) z = Exp(v) }"""
    return graph_of(text, 18)


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
    main = kvviz.load(
        model([node("Neg", "x", "n"), node("Relu", "n", "r"), node("Exp", "r", "y")], ["x float ? 3"], ["y"])
    )
    reasons = {event.value: event.reason for event in events(main) if event.phase == "buffer"}
    assert reasons["r"] == (
        "Relu may not overwrite n (a dimension has neither a number nor a name); "
        "and no dead buffer of that size is free: new memory"
    )
