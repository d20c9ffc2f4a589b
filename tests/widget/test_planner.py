"""The planner without a browser: what the page is told of the planning is what the schedule did."""

from pathlib import Path

import numpy as np
import pytest

import kvviz
from kvviz.engine.plan import needed
from kvviz.errors import GraphError, KvvizError
from kvviz.graph.model import Graph
from kvviz.runtimes.named_policies import NAMED, named, planning_events
from kvviz.view.page_data.payload import decode
from kvviz.widget import Planner, plan
from tests.test_models import graph_of

POLICIES = ("rten", "onnxruntime", "depth_first", "least_live", "model", "ideal")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return graph_of("o01_optimum_llama")


def frontiers(header: dict, columns: dict[str, np.ndarray]) -> list[list[str]]:
    """Names in the frontier of every event, from the first frontier, the picks and what each of them lets run."""
    nodes = [node[0] for node in header["graphs"][0]["nodes"]]
    at, ready = columns["event.ready"], columns["ready.node"]
    now = columns["first.node"].tolist()
    found = []
    for i, action in enumerate(columns["event.action"]):
        picks = header["strings"][action] == "pick"
        found.append([nodes[node] for node in now] if picks else [])
        if picks:
            now.remove(columns["event.node"][i])
            now += ready[at[i] : at[i + 1]].tolist()
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_the_page_is_told_every_event_of_the_planning(graph: Graph, policy: str) -> None:
    events = planning_events(graph, None, policy)
    header, columns = decode(Planner(graph, policy=policy).payload)
    text, nodes, values = header["strings"], header["graphs"][0]["nodes"], header["graphs"][0]["values"]
    assert len(columns["event.node"]) == len(events)
    for i, event in enumerate(events):
        number = columns["event.node"][i]
        assert (nodes[number][0] if number >= 0 else None) == (event.node.name if event.node else None)
        words = [text[columns[f"event.{key}"][i]] for key in ("phase", "action", "reason")]
        assert words == [event.phase, event.action, event.reason]
        assert (values[columns["event.value"][i]] if columns["event.value"][i] >= 0 else "") == event.value
        assert (columns["event.planned"][i], columns["event.depth"][i]) == (event.planned, event.depth)
    assert frontiers(header, columns) == [[node.name for node in event.frontier] for event in events]
    ready, at = columns["ready.node"], columns["event.ready"]
    told = [[nodes[node][0] for node in ready[at[i] : at[i + 1]]] for i in range(len(events))]
    assert told == [[node.name for node in event.ready] for event in events]
    outputs = tuple(value.name for value in graph.outputs)
    schedule = NAMED[policy].schedule if policy == "ideal" else named(policy)
    wanted = schedule(graph, needed(graph, outputs), outputs)
    assert Planner(graph, policy=policy).order == tuple(node.name for node in wanted)


def test_only_what_the_outputs_need_is_planned_and_gone_to(graph: Graph) -> None:
    output = graph.nodes[40].outputs[0]
    planner = plan(graph, [output], "rten")
    assert set(planner.order) == {node.name for node in needed(graph, [output])}
    with pytest.raises(GraphError, match="no value named"):
        plan(graph, ["nowhere"])
    planner.goto(7)
    assert planner.cursor == 7 and "event 7 of" in repr(planner)
    with pytest.raises(KvvizError, match="does not exist"):
        planner.goto(len(planner.events))


def test_the_page_shows_whose_plan_it_is_and_readers_a_table(graph: Graph, tmp_path: Path) -> None:
    told = [decode(Planner(graph, policy=policy).payload)[0]["policy"] for policy in ("ideal", "depth_first")]
    assert told[0] == {"name": "ideal", "about": kvviz.policies.ideal.about}
    assert told[1]["name"] == "depth_first"
    assert Planner(graph, policy=named("depth_first")).policy["name"] == "depth-first order"
    planner = Planner(graph)
    bundle, _ = planner._repr_mimebundle_()
    rows = bundle["text/html"].split("<tr>")[2:]
    assert len(rows) == min(len(planner.order), 400)
    assert planner.order[0].split("/")[-1] in rows[0]
    page = planner.to_html(tmp_path / "plan.html")
    assert 'data-page="planner"' in page and (tmp_path / "plan.html").exists()
