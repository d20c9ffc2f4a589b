"""Schedules: every one gives an order that can run, rten's is the one that rten was recorded with."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvviz
from kvviz.debugger.cursor import Cursor
from kvviz.decode.single import SingleRun
from kvviz.engine.plan import needed
from kvviz.engine.planning import plan_for
from kvviz.engine.policy import Policy
from kvviz.engine.schedules import (
    NAMES,
    Before,
    Picks,
    depth_first,
    key_of,
    label,
    least_live,
    model_order,
    named,
    rten,
)
from kvviz.engine.schedules.keys import graphs_of
from kvviz.engine.schedules.rten import walk
from kvviz.errors import KvvizError
from kvviz.graph.model import Graph, Node
from tests.engine.graphs import graph_of, numbers
from tests.engine.random_graphs import Example, examples
from tests.engine.rten.records import Recording, models, recordings, scenarios, sources
from tests.engine.test_invariants import assert_same_bits, feeds
from tests.graph.build import MODELS

many = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
FAN = """agraph (float[4] x) => (float[4] y) {
  [a] a = Neg (x)  [b] b = Sin (x)  [c] c = Abs (a)  [d] d = Tanh (b)  [e] y = Add (c, d)
}"""


def with_schedule(schedule: Callable, policy: Policy = kvviz.policies.ideal) -> Policy:
    return replace(policy, schedule=schedule)


def order_of(graph: Graph, schedule: Callable, outputs: Sequence[str] | None = None) -> list[Node]:
    names = [value.name for value in graph.outputs] if outputs is None else list(outputs)
    return list(schedule(graph, needed(graph, names), names))


def names_of(nodes: Sequence[Node]) -> str:
    return " ".join(node.name for node in nodes)


def assert_can_run(order: Sequence[Node], nodes: Sequence[Node]) -> None:
    """Every needed node is there once, after the makers of all that it reads."""
    assert sorted(node.index for node in order) == sorted(node.index for node in nodes)
    place = {name: i for i, node in enumerate(order) for name in node.outputs if name}
    for i, node in enumerate(order):
        assert all(place.get(name, -1) < i for name in (*node.inputs, *node.captures))


# -- rten's order -------------------------------------------------------------------------------------------------------


def planned_by_rten(recording: Recording) -> list[tuple[Graph, list[str], list[str]]]:
    """Graph, wanted outputs and plan of every graph that a recording ran."""
    main = kvviz.load(recording.model)
    found = []
    for record in recording.of("graph"):
        if record["plan"]:
            graph = main
            for part in re.findall(r"/(.*?)\[(\w+)(?::\d+)?\](?=/|$)", record["path"]):
                node = next(n for n in graph.nodes if part[0] in (n.name, n.outputs[0]))
                graph = node.subgraphs[part[1]]
            found.append((graph, record["outputs"], record["plan"]))
    return found


def firsts(order: Sequence[Node]) -> list[str]:
    return [next(filter(None, node.outputs)) for node in order]


@pytest.mark.parametrize("source", sources())
def test_the_order_is_the_one_that_rten_was_recorded_with(source: str) -> None:
    for recording in recordings(source):
        # A session keeps its plan while the same outputs are wanted, in whatever order.
        kept = recording.before is not None and set(recording.before.outputs) == set(recording.outputs)
        for graph, outputs, plan in planned_by_rten(recording):
            wanted = recording.before.outputs if recording.before and kept else outputs
            assert firsts(order_of(graph, rten, wanted)) == plan


def test_the_recordings_tell_rten_s_order_from_the_model_s_and_from_its_walk() -> None:
    everything = [recordings(source)[0] for source in (*models(), *scenarios()) if recordings(source)]
    plans = [plan for recording in everything for plan in planned_by_rten(recording)]
    as_listed = [firsts(order_of(graph, model_order, outputs)) == plan for graph, outputs, plan in plans]
    as_walked = [firsts(walk(graph, needed(graph, outputs), outputs)) == plan for graph, outputs, plan in plans]
    assert as_listed.count(False) > 5
    assert as_walked.count(False) > 5


def test_bodies_are_walked_in_the_order_in_which_rten_meets_their_captures() -> None:
    # given an If whose file lists else_branch first, and whose then_branch reads q before p
    graph = graph_of(
        """agraph (float[4] x, bool c) => (float[4] y) {
          [p] p = Neg (x)  [q] q = Sin (x)  [r] r = Abs (x)
          [if] y = If (c) <else_branch = no () => (float[4] n) { n = Neg (r) },
                           then_branch = yes () => (float[4] t) { t = Add (q, p) }>
        }"""
    )
    assert names_of(order_of(graph, rten)) == "q p r if"


# -- every schedule -----------------------------------------------------------------------------------------------------


@many
@given(example=examples(), name=st.sampled_from(NAMES))
def test_any_schedule_gives_an_order_that_can_run_and_the_same_bits(example: Example, name: str) -> None:
    graph = kvviz.load(example.model)
    plain = kvviz.run(graph, feeds(example), donate=example.donate)
    schedule = named(name) if name != "least_live" else least_live(plain)
    for _, inner in graphs_of(graph):
        assert_can_run(order_of(inner, schedule), needed(inner, [value.name for value in inner.outputs]))
    other = kvviz.run(graph, feeds(example), donate=example.donate, policy=with_schedule(schedule), poison=True)
    assert_same_bits(plain, other)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("model", ["o02_optimum1_merged_gpt2", "o05_dynamo_llama_op23"])
def test_a_decode_gives_the_same_tokens_in_every_order(name: str, model: str) -> None:
    graph = kvviz.load(MODELS / model / "model.onnx")
    plain, other = (
        kvviz.decode(graph, [5, 17, 33], 3, policy=policy, kv_capacity=8, progress=False)
        for policy in ("ideal", with_schedule(named(name)))
    )
    assert plain.tokens == other.tokens
    assert_same_bits(plain, other)


@pytest.mark.parametrize("name", NAMES)
def test_a_chain_of_5000_nodes_and_a_fan_of_2000_are_planned(name: str) -> None:
    chain = "\n".join(f"v{i + 1} = Neg (v{i})" for i in range(5000))
    long = graph_of(f"agraph (float[4] v0) => (float[4] v5000) {{ {chain} }}")
    assert [node.index for node in order_of(long, named(name))] == list(range(5000))
    fan = "\n".join(f"v{i} = Neg (x)" for i in range(2000))
    sum_of = ", ".join(f"v{i}" for i in range(2000))
    wide = graph_of(f"agraph (float[4] x) => (float[4] y) {{ {fan} y = Sum ({sum_of}) }}")
    assert_can_run(order_of(wide, named(name)), wide.nodes)


@pytest.mark.parametrize("name", NAMES)
def test_equal_schedules_share_a_plan(name: str) -> None:
    graph = graph_of(FAN)
    first, second = (plan_for(graph, ("y",), with_schedule(named(name))) for _ in range(2))
    assert first is second


def test_only_what_the_outputs_need_is_planned() -> None:
    graph = graph_of(FAN)
    for name in NAMES:
        assert sorted(names_of(order_of(graph, named(name), ["c"])).split()) == ["a", "c"]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(KvvizError, match="no schedule 'fastest'; choose one of model, rten, onnxruntime"):
        named("fastest")


def test_schedules_have_labels_for_people() -> None:
    assert [label(named(name)) for name in NAMES] == [
        "the model's order",
        "rten's order",
        "onnxruntime's order",
        "depth-first order",
        "least-live order",
    ]


# -- depth first and least live -----------------------------------------------------------------------------------------


def test_depth_first_follows_what_was_made_last_and_then_goes_back() -> None:
    graph = graph_of(FAN)
    assert names_of(order_of(graph, model_order)) == "a b c d e"
    assert names_of(order_of(graph, depth_first)) == "a c b d e"


def alive_after(graph: Graph, example: Example, path: Sequence[Node]) -> int:
    """Bytes that the engine finds alive once these nodes have run, in this order."""
    given = {name: array.copy() for name, array in example.inputs.items()}
    cursor = Cursor(SingleRun(graph, given, donate=example.donate, policy="never"))
    for node in path:
        cursor.choose(node)
    step = cursor.trace.steps[len(path) - 1]
    return step.live_bytes - sum(cursor.trace.storages[storage].capacity for storage in step.freed)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(example=examples())
def test_least_live_always_picks_an_op_after_which_the_engine_finds_the_fewest_bytes_alive(example: Example) -> None:
    graph = kvviz.load(example.model)
    if any(node.subgraphs for node in graph.nodes):
        return
    given = {name: array.copy() for name, array in example.inputs.items()}
    schedule = least_live(kvviz.run(graph, given, donate=example.donate, policy="never"))
    order = order_of(graph, schedule)
    for i, node in enumerate(order):
        made = {name for before in order[:i] for name in before.outputs}
        waiting = {name for after in order[i:] for name in after.outputs}
        ready = [n for n in order[i:] if not (set(n.inputs) & waiting) - made]
        here = alive_after(graph, example, [*order[:i], node])
        assert here == min(alive_after(graph, example, [*order[:i], other]) for other in ready)


def test_without_sizes_every_value_counts_the_same() -> None:
    # given: tiny is one number, but two values are made to get it; wide is one value of many numbers
    graph = graph_of(
        """agraph (float[64] x) => (float[64] y) {
          [wide] w = Neg (x)  [parts] p, q = Split <num_outputs = 2> (x)  [joined] j = Concat <axis = 0> (p, q)
          [end] y = Add (w, j)
        }"""
    )
    assert names_of(order_of(graph, least_live())).startswith("wide")
    measured = least_live(kvviz.run(graph, {"x": numbers(64)}))
    # then: the halves are views of the input, so they cost nothing
    assert names_of(order_of(graph, measured)).startswith("parts")


# -- picks --------------------------------------------------------------------------------------------------------------


def shuffled(graph: Graph, example: Example, seed: int) -> kvviz.Trace:
    """A run in which a person picked ops at random."""
    cursor = Cursor(SingleRun(graph, feeds(example), donate=example.donate))
    draw = random.Random(seed)
    while True:
        if frontier := cursor.frontier():
            cursor.choose(draw.choice(frontier))
        elif cursor.next().reason == "end":
            return cursor.trace


@many
@given(example=examples(), seed=st.integers(0, 10**6))
def test_picks_replay_the_order_in_which_a_person_ran_a_graph(example: Example, seed: int) -> None:
    # given
    graph = kvviz.load(example.model)
    played = shuffled(graph, example, seed)
    picks = Picks.of(played)
    # when
    again = kvviz.run(graph, feeds(example), donate=example.donate, policy=with_schedule(picks))
    # then: every graph runs as in its first frame; later iterations of a loop may have been picked otherwise
    assert_same_bits(played, again)
    for first in {frame.graph: frame for frame in reversed(played.frames)}.values():
        ran = [step.node_index for step in played.steps if step.frame_id == first.id]
        assert [node.index for node in order_of(first.graph, picks)] == ran
    assert Picks.of(again) == picks


def test_picks_go_through_a_file_and_fit_a_model_that_was_loaded_again(tmp_path: Path) -> None:
    path = MODELS / "o02_optimum1_merged_gpt2" / "model.onnx"
    trace = kvviz.decode(kvviz.load(path), [5, 17], 2, policy=with_schedule(rten), progress=False)
    picks = Picks.of(trace)
    picks.save(tmp_path / "picks.json")
    loaded = Picks.load(tmp_path / "picks.json")
    assert loaded == picks and hash(loaded) == hash(picks)
    again = kvviz.decode(kvviz.load(path), [5, 17], 2, policy=with_schedule(loaded), progress=False)
    assert [step.node for step in again.steps] == [step.node for step in trace.steps]


def test_picks_of_a_saved_trace_are_those_of_the_trace(tmp_path: Path) -> None:
    graph = kvviz.load(MODELS / "storyteller" / "merged_if" / "model.onnx")
    trace = kvviz.decode(graph, [1, 5, 9], 2, progress=False)
    trace.save(tmp_path / "trace")
    assert Picks.of(kvviz.Trace.load(tmp_path / "trace")) == Picks.of(trace)


def test_what_was_not_picked_follows_in_the_model_s_order() -> None:
    graph = graph_of(FAN)
    indices = {node.name: node.index for node in graph.nodes}
    assert names_of(order_of(graph, Picks((((), indices["d"]),)))) == "b d a c e"
    assert names_of(order_of(graph, Picks(()))) == "a b c d e"


@pytest.mark.parametrize(
    ("picks", "message"),
    [
        (((((), 4), ((), 0))), "the picks run 'e' before 'a' in the main graph, but it needs that one"),
        ((((), 99),), "the picks name node 99 in the main graph of agraph, where there is none"),
        ((((), 0), ((), 1), ((), 0)), "the picks name node 0 in the main graph twice"),
    ],
)
def test_picks_that_do_not_fit_are_refused_in_one_sentence(picks: tuple, message: str) -> None:
    with pytest.raises(KvvizError, match=f"^{re.escape(message)}$"):
        kvviz.run(graph_of(FAN), {"x": numbers(4)}, policy=with_schedule(Picks(picks)))


def test_picks_of_another_model_are_refused() -> None:
    picks = Picks.of(kvviz.run(graph_of(FAN), {"x": numbers(4)}))
    with pytest.raises(KvvizError, match="these picks were made on another model"):
        kvviz.run(graph_of(FAN.replace("Sin", "Cos")), {"x": numbers(4)}, policy=with_schedule(picks))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1, "model": "", "picks": [[0, 1]]}', '{"format": 9}'])
def test_a_file_that_holds_no_picks_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "picks.json").write_text(text)
    with pytest.raises(KvvizError, match=r"picks\.json (holds no picks|is in picks format 9)"):
        Picks.load(tmp_path / "picks.json")


# -- changed orders -----------------------------------------------------------------------------------------------------


@many
@given(example=examples(), name=st.sampled_from(NAMES), data=st.data())
def test_before_puts_the_reader_first_and_stays_valid_or_refuses_because_it_depends(
    example: Example, name: str, data: st.DataObject
) -> None:
    graph = kvviz.load(example.model)
    key, inner = data.draw(st.sampled_from([(k, g) for k, g in graphs_of(graph) if g.nodes]))
    nodes = needed(inner, [value.name for value in inner.outputs])
    reader, node = (data.draw(st.sampled_from(nodes)) for _ in range(2))
    changed = Before(named(name), ((key, reader.index, node.index),))
    key_of(graph)
    if node in needed(inner, [n for n in reader.outputs if n]):
        with pytest.raises(KvvizError, match="cannot run before .*: it needs what that one makes"):
            order_of(inner, changed)
        return
    order = order_of(inner, changed)
    assert_can_run(order, nodes)
    assert order.index(reader) < order.index(node)
    base = order_of(inner, named(name))
    if base.index(reader) < base.index(node):
        assert order == base
    plain = kvviz.run(graph, example.inputs)
    assert_same_bits(plain, kvviz.run(graph, feeds(example), donate=example.donate, policy=with_schedule(changed)))


def test_before_moves_the_reader_and_what_it_needs_and_nothing_else() -> None:
    graph = graph_of(FAN)
    index = {node.name: node.index for node in graph.nodes}
    assert names_of(order_of(graph, Before(model_order, (((), index["d"], index["a"]),)))) == "b d a c e"


def test_running_the_later_reader_first_lets_an_op_run_in_place() -> None:
    # given: Relu cannot overwrite m, since Transpose reads it later
    graph = graph_of(
        "agraph (float[2,2] x) => (float[2,2] y) {"
        "[m] m = Neg (x) [relu] r = Relu (m) [t] t = Transpose <perm = [1, 0]> (m) [s] s = Exp (t) [y] y = Add (r, s) }"
    )
    inputs = {"x": np.ones((2, 2), np.float32)}
    index = {node.name: node.index for node in graph.nodes}
    plain = kvviz.run(graph, inputs)
    changed = Before(model_order, (((), index["s"], index["relu"]),))
    # when
    other = kvviz.run(graph, inputs, policy=with_schedule(changed))
    # then
    taken = [next(s for s in trace.steps if s.node == "relu").decision.taken for trace in (plain, other)]
    assert taken == [(), ("m",)]
    assert_same_bits(plain, other)


def test_changes_that_contradict_each_other_are_refused() -> None:
    graph = graph_of(FAN)
    index = {node.name: node.index for node in graph.nodes}
    pairs = (((), index["a"], index["b"]), ((), index["b"], index["a"]))
    with pytest.raises(KvvizError, match=r"contradict each other: each of 'a', 'b' must run first"):
        order_of(graph, Before(model_order, pairs))


def test_a_change_that_names_a_missing_node_is_refused() -> None:
    with pytest.raises(KvvizError, match="there is no node 77 in the main graph of agraph"):
        order_of(graph_of(FAN), Before(model_order, (((), 77, 0),)))


def test_a_change_of_which_only_one_node_is_needed_changes_nothing() -> None:
    graph = graph_of(FAN)
    index = {node.name: node.index for node in graph.nodes}
    assert names_of(order_of(graph, Before(model_order, (((), index["d"], index["a"]),)), ["c"])) == "a c"
