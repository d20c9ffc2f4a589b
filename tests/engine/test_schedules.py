"""Orders: every schedule's can run, an op of the frontier does what was told of it, and a person's are kept."""

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
from kvviz.decode.run_sessions import SingleRun
from kvviz.decode.token_loop import DecodeSession
from kvviz.engine.plan import needed
from kvviz.engine.planning import plan_for
from kvviz.engine.policy import Policy, model_order
from kvviz.engine.sessions.session import Session
from kvviz.errors import KvvizError
from kvviz.graph.model import Graph, Node, graphs_of
from kvviz.runtimes.named_policies import NAMES, find_policy, named, planning_events
from kvviz.runtimes.rten.rten_planner import rten
from kvviz.runtimes.schedules import Before, Picks, depth_first, least_live
from tests.engine.graphs import graph_of, numbers
from tests.engine.random_graphs import Example, assert_same_bits, examples, feeds
from tests.engine.test_safe_in_any_schedule import by_hand
from tests.graph.build import MODELS

many = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
RULES = ["ideal", "never", "rten", "onnxruntime"]
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


def test_bodies_are_walked_in_the_order_in_which_rten_meets_their_captures() -> None:
    # given an If whose file lists else_branch first, and whose then_branch reads q before p
    graph = graph_of("""agraph (float[4] x, bool c) => (float[4] y) { [p] p = Neg (x) [q] q = Sin (x) [r] r = Abs (x)
        [if] y = If (c) <else_branch = no () => (float[4] n) { n = Neg (r) },
                         then_branch = yes () => (float[4] t) { t = Add (q, p) }> }""")
    assert names_of(order_of(graph, rten)) == "q p r if"


@many
@given(example=examples(), name=st.sampled_from(NAMES), rules=st.sampled_from(RULES))
def test_any_schedule_gives_an_order_that_can_run_and_the_same_bits(example: Example, name: str, rules: str) -> None:
    graph = kvviz.load(example.model)
    plain = kvviz.run(graph, feeds(example), donate=example.donate)
    schedule = named(name) if name != "least_live" else least_live(plain)
    for inner in graphs_of(graph):
        assert_can_run(order_of(inner, schedule), needed(inner, [value.name for value in inner.outputs]))
    policy = with_schedule(schedule, find_policy(rules))
    assert_same_bits(plain, kvviz.run(graph, feeds(example), donate=example.donate, policy=policy, poison=True))


@pytest.mark.parametrize("name", NAMES)
def test_large_graphs_are_planned_by_equal_schedules_once_and_only_what_is_needed(name: str) -> None:
    chain = "\n".join(f"v{i + 1} = Neg (v{i})" for i in range(5000))
    long = graph_of(f"agraph (float[4] v0) => (float[4] v5000) {{ {chain} }}")
    assert [node.index for node in order_of(long, named(name))] == list(range(5000))
    fan = "\n".join(f"v{i} = Neg (x)" for i in range(2000))
    sum_of = ", ".join(f"v{i}" for i in range(2000))
    wide = graph_of(f"agraph (float[4] x) => (float[4] y) {{ {fan} y = Sum ({sum_of}) }}")
    assert_can_run(order_of(wide, named(name)), wide.nodes)
    graph = graph_of(FAN)
    first, second = (plan_for(graph, ("y",), with_schedule(named(name))) for _ in range(2))
    assert first is second
    assert sorted(names_of(order_of(graph, named(name), ["c"])).split()) == ["a", "c"]


def test_depth_first_follows_what_was_made_last_and_then_goes_back_and_says_so() -> None:
    graph = graph_of(FAN)
    assert names_of(order_of(graph, model_order)) == "a b c d e"
    events = [event for event in planning_events(graph, policy=depth_first) if event.action == "pick"]
    assert [(event.node.name, event.reason) for event in events if event.node is not None] == [
        ("a", "nothing can go on from what was made just now: Neg became ready last"),
        ("c", "Abs reads what was made just now"),
        ("b", "Sin is the only op that can run"),
        ("d", "Tanh is the only op that can run"),
        ("e", "Add is the only op that can run"),
    ]


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
    # given: wide makes one value, parts makes two
    graph = graph_of("""agraph (float[64] x) => (float[64] y) { [wide] w = Neg (x)
        [parts] p, q = Split <num_outputs = 2> (x) [joined] j = Concat <axis = 0> (p, q) [end] y = Add (w, j) }""")
    assert names_of(order_of(graph, least_live())).startswith("wide")
    measured = least_live(kvviz.run(graph, {"x": numbers(64)}))
    # then: the halves are views of the input, so they cost nothing
    assert names_of(order_of(graph, measured)).startswith("parts")


def foretold(session: Session, rng: np.random.Generator | None = None) -> int:
    """Run on, each time the op that comes next or one at random, and compare with what was told of it; gives how many
    were compared."""
    session.previews, compared = True, 0
    while (live := session.look_ahead()) is not None:
        at = 0 if rng is None or not live.frontier else int(rng.integers(len(live.frontier)))
        told = live.costs[at] if live.frontier else (None, 0)
        session.advance(live.frontier[at] if live.frontier else None)
        step = session.trace.steps[-1]
        if told[0] is None:
            continue
        freed = sum(session.trace.storages[storage].capacity for storage in step.freed)
        assert (step.node, *told) == (step.node, step.allocated, freed)
        compared += 1
    return compared


@pytest.mark.parametrize("policy", RULES)
def test_an_op_does_what_was_foretold(policy: str) -> None:
    text = """g (float[2, 4] x, float[2, 4] o) => (float[8] y, float[2, 3] z) <int64[2] k = {1, 3}, int64[1] m = {-1}> {
        a = Add(x, o) b, z = Split <axis = 1> (a, k) c = Neg(o) d = Relu(c) t = Transpose <perm = [1, 0]> (d)
        e = Reshape(d, m) u = Exp(t) r = ReduceSum(u, m) y = Mul(e, e) }"""
    feeds = {"x": numbers(2, 4), "o": numbers(2, 4, seed=1)}
    assert foretold(SingleRun(graph_of(text), feeds, donate=["x"], policy=policy)) >= 6


@pytest.mark.parametrize("policy", RULES)
def test_every_op_of_a_decode_does_what_was_foretold(policy: str) -> None:
    graph = kvviz.load(MODELS / "o01_optimum_llama" / "model.onnx")
    session = DecodeSession(graph, [1, 2, 3], max_new_tokens=2, policy=policy, kv_capacity=8)
    assert foretold(session) > 400
    assert np.isfinite(session.trace.logits[-1]).all()


@many
@given(example=examples(), seed=st.integers(0, 10**6))
def test_picks_replay_the_order_in_which_a_person_ran_a_graph(example: Example, seed: int) -> None:
    graph = kvviz.load(example.model)
    # given: a run in which a person picked ops at random
    played = by_hand(SingleRun(graph, feeds(example), donate=example.donate), random.Random(seed))
    picks = Picks.of(played)
    again = kvviz.run(graph, feeds(example), donate=example.donate, policy=with_schedule(picks))
    # then: every graph runs as in its first frame; later iterations of a loop may have been picked otherwise
    assert_same_bits(played, again)
    assert_same_bits(played, kvviz.run(graph, example.inputs, policy="never"))
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


def test_what_was_not_picked_follows_in_the_model_s_order() -> None:
    graph = graph_of(FAN)
    indices = {node.name: node.index for node in graph.nodes}
    assert names_of(order_of(graph, Picks((((), indices["d"]),)))) == "b d a c e"
    assert names_of(order_of(graph, Picks(()))) == "a b c d e"


REFUSED = [
    ((((), 4), ((), 0)), "the picks run 'e' before 'a' in the main graph, but it needs that one"),
    ((((), 99),), "the picks name node 99 in the main graph of agraph, where there is none"),
    ((((), 0), ((), 1), ((), 0)), "the picks name node 0 in the main graph twice"),
]


def test_picks_that_do_not_fit_are_refused_in_one_sentence(tmp_path: Path) -> None:
    graph, x = graph_of(FAN), {"x": numbers(4)}
    for picks, message in REFUSED:
        with pytest.raises(KvvizError, match=f"^{re.escape(message)}$"):
            kvviz.run(graph, x, policy=with_schedule(Picks(picks)))
    other = graph_of(FAN.replace("Sin", "Cos"))
    with pytest.raises(KvvizError, match="these picks were made for another model"):
        kvviz.run(other, x, policy=with_schedule(Picks.of(kvviz.run(graph, x))))
    for text in ("", "[]", "{}", '{"format": 1, "model": "", "picks": [[0, 1]]}', '{"format": 9}'):
        (tmp_path / "picks.json").write_text(text)
        with pytest.raises(KvvizError, match=r"picks\.json (holds no picks|is in picks format 9)"):
            Picks.load(tmp_path / "picks.json")


@many
@given(example=examples(), name=st.sampled_from(NAMES), data=st.data())
def test_before_puts_the_reader_first_and_stays_valid_or_refuses_because_it_depends(
    example: Example, name: str, data: st.DataObject
) -> None:
    graph = kvviz.load(example.model)
    inner = data.draw(st.sampled_from([g for g in graphs_of(graph) if g.nodes]))
    nodes = needed(inner, [value.name for value in inner.outputs])
    reader, node = (data.draw(st.sampled_from(nodes)) for _ in range(2))
    changed = Before(named(name), ((inner.path, reader.index, node.index),))
    if node in needed(inner, [n for n in reader.outputs if n]):
        with pytest.raises(KvvizError, match=r"cannot run before .*: it needs what that one makes"):
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


def test_a_reader_is_moved_with_what_it_needs_in_the_order_in_which_it_was() -> None:
    graph = graph_of("""agraph (float[4] x) => (float[4] y) { [a] a = Neg (x) [b] b = Sin (x) [c] c = Abs (x)
        [r] r = Add (c, b) [y] y = Add (a, r) }""")
    index = {node.name: node.index for node in graph.nodes}

    def before(*pairs: tuple[int, int]) -> Before:
        return Before(model_order, tuple(((), *pair) for pair in pairs))

    assert names_of(order_of(graph, before((index["r"], index["a"])))) == "b c r a y"
    # where only one of the two is needed nothing changes
    assert names_of(order_of(graph, before((index["b"], index["a"])), ["a"])) == "a"
    with pytest.raises(KvvizError, match=r"contradict each other: each of 'a', 'b' must run first"):
        order_of(graph, before((index["a"], index["b"]), (index["b"], index["a"])))
    with pytest.raises(KvvizError, match="there is no node 77 in the main graph of agraph"):
        order_of(graph, before((77, 0)))
