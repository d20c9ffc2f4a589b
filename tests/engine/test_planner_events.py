"""Planning events: they tell the planner's own order, every decision of it has a reason, and nothing is left out."""

import pytest

import kvviz
from kvviz.engine.plan import needed
from kvviz.engine.policy import model_order
from kvviz.errors import GraphError, KvvizError
from kvviz.graph.model import Graph, Node, graphs_of
from kvviz.runtimes.frontier import PlanningEvent, takes_log
from kvviz.runtimes.named_policies import NAMES, find_policy, named, planning_events
from kvviz.runtimes.rten.rten_planner import dependencies, rten
from kvviz.runtimes.schedules import Before, Picks
from tests.engine.graphs import graph_of
from tests.engine.rten.records import DATA
from tests.graph.build import MODELS

FILES = [MODELS / name / "model.onnx" for name in ("o01_optimum_llama", "o08_silero_vad_sequence")]
FILES += [MODELS / "storyteller" / "merged_if" / "model.onnx"]


def two() -> Graph:
    return graph_of("""agraph (float[4] x) => (float[4] y, float[4] z) <float[4] w = {1, 2, 3, 4}> {
        [a] a = Relu (x)  [b] b = Transpose (a)  [c] y = Add (a, w)  [d] z = Sub (b, y) }""")


def picked(events: tuple[PlanningEvent, ...]) -> list[Node | None]:
    return [event.node for event in events if event.phase == "pick"]


def reasons(name: str) -> dict[str, str]:
    """Why each op of a recorded scenario is picked by rten's planner, by its operator."""
    graph = kvviz.load(DATA / "scenarios" / f"{name}.onnx")
    return {e.value: e.reason for e in planning_events(graph) if e.phase == "pick"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_the_picks_are_the_schedule_s_own_from_the_frontier_and_each_has_a_sentence(name: str, path: object) -> None:
    for graph in graphs_of(kvviz.load(path)):
        outputs = [value.name for value in graph.outputs]
        events = planning_events(graph, policy=name)
        assert picked(events) == list(named(name)(graph, needed(graph, outputs), outputs))
        frontier: list[Node] = []
        for number, event in enumerate(e for e in events if e.phase == "pick"):
            frontier = frontier or list(event.frontier)
            assert list(event.frontier) == frontier and event.node is not None and event.node in frontier
            assert event.planned == number + 1
            assert event.reason.startswith((event.node.op_type, "all", "nothing"))
            frontier.remove(event.node)
            frontier += event.ready
        assert frontier == []
        assert all(e.reason and "\n" not in e.reason and not e.reason.endswith(".") for e in events)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_the_walk_looks_at_every_output_and_at_every_dependency_once(path: object) -> None:
    for graph in graphs_of(kvviz.load(path)):
        events = [event for event in planning_events(graph) if event.phase == "walk"]
        looked = [e.value for e in events if e.action in ("visit", "skip")]
        nodes = needed(graph, [value.name for value in graph.outputs])
        wanted = [value.name for value in graph.outputs] + [name for node in nodes for name in dependencies(node)]
        assert sorted(looked) == sorted(wanted)
        for action in ("visit", "append"):
            assert sorted(e.node.index for e in events if e.node and e.action == action) == [n.index for n in nodes]


def test_the_walk_goes_from_each_output_to_what_it_needs_and_says_why_it_turns_back() -> None:
    graph = graph_of("""agraph (float[4] x, bool c) => (float[4] y, float[4] z, float[4] x)
        <float[4] w = {1, 2, 3, 4}> { [a] a = Relu (x)  [b] b = Transpose (a)  [c] y = Add (a, w)
        [d] z = If (c) <then_branch = yes () => (float[4] t) { t = Sub (b, y) },
                        else_branch = no () => (float[4] e) { e = Exp (x) }> }""")
    walked = [event for event in planning_events(graph) if event.phase == "walk"]
    told = [(e.action, e.node.name if e.node else "", e.value, e.depth) for e in walked]
    assert told[:3] == [("visit", "c", "y", 0), ("visit", "a", "a", 1), ("skip", "a", "x", 2)]
    assert told[3:6] == [("append", "a", "a", 1), ("skip", "c", "w", 1), ("append", "c", "y", 0)]
    assert {
        "x is an input of the graph",
        "w is a weight",
        "Relu makes a, and is in the list already",
        "nothing to do for the output: x is an input of the graph",
    } <= {event.reason for event in walked if event.action == "skip"}
    assert [event.planned for event in walked if event.action == "append"] == [1, 2, 3, 4]
    body = graph.nodes[3].subgraphs["then_branch"]
    skipped = [e.reason for e in planning_events(body) if e.action == "skip"]
    assert skipped == ["b comes from outside this graph", "y comes from outside this graph"]


def test_rten_s_picks_tell_which_rule_decided() -> None:
    cannot = "Transpose is the first op of the frontier that cannot run in place by kind"
    assert reasons("t0_relu_t1")["t"] == f"{cannot}; the one before it can, and waits"
    assert reasons("t0_relu_t1")["hh"] == "Transpose is the only op that can run"
    oldest = [why for why in reasons("greedy_relu_where").values() if "oldest" in why]
    assert oldest == ["all 2 ops of the frontier can run in place by kind: Relu is the oldest"]


def test_the_order_of_the_outputs_counts_for_rten() -> None:
    graph = kvviz.load(DATA / "scenarios" / "greedy_relu_where.onnx")
    outputs = [value.name for value in graph.outputs]
    assert picked(planning_events(graph, outputs)) != picked(planning_events(graph, outputs[::-1]))


def test_picks_and_changed_orders_tell_why_an_op_is_where_it_is() -> None:
    graph = two()
    index = {node.name: node.index for node in graph.nodes}
    picks = Picks((((), index["b"]),))
    assert [event.reason for event in planning_events(graph, policy=picks)] == [
        "Relu was not picked, but Transpose b needs it",
        "Transpose was picked",
        "Add was not picked: it follows in the model's order",
        "Sub was not picked: it follows in the model's order",
    ]
    graph = graph_of("agraph (float[4] x) => (float[4] z) { [a] a = Neg (x) [b] b = Abs (x) [c] z = Add (a, b) }")
    index = {node.name: node.index for node in graph.nodes}
    changed = Before(model_order, (((), index["b"], index["a"]),))
    assert [event.reason for event in planning_events(graph, policy=changed)] == [
        "Abs runs now so that a comes after it",
        "Neg is next in the order as it was",
        "Add is next in the order as it was",
    ]


def test_a_policy_a_name_and_a_schedule_are_all_understood() -> None:
    graph = two()
    assert picked(planning_events(graph, policy=kvviz.policies.ideal)) == list(graph.nodes)
    assert planning_events(graph, policy=Before(rten, ())) == planning_events(graph, policy=rten)
    assert planning_events(graph, policy="model") == planning_events(graph, policy="ideal")
    for name in ("rten", "onnxruntime"):
        assert find_policy(name).schedule is named(name)
        assert planning_events(graph, policy=named(name)) == planning_events(graph, policy=name)
    assert takes_log(rten) and not takes_log(model_order)
    with pytest.raises(KvvizError, match="there is no policy 'fastest'"):
        planning_events(graph, policy="fastest")
    with pytest.raises(KvvizError, match="no schedule 'fastest'; choose one of model, rten, onnxruntime"):
        named("fastest")
    with pytest.raises(GraphError, match="no value named 'nothing'"):
        planning_events(graph, ["nothing"])
