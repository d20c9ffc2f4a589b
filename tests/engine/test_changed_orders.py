"""Orders that a person made: picks that are replayed, and readers that are moved before other nodes."""

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvviz
from kvviz.decode.run_sessions import SingleRun
from kvviz.engine.plan import needed
from kvviz.engine.policy import model_order
from kvviz.errors import KvvizError
from kvviz.graph.model import Graph, graphs_of
from kvviz.runtimes.named_policies import NAMES, named
from kvviz.runtimes.rten.rten_planner import rten
from kvviz.runtimes.schedules import Before, Picks
from tests.engine.graphs import graph_of, numbers
from tests.engine.random_graphs import Example, assert_same_bits, examples, feeds
from tests.engine.test_safe_in_any_schedule import by_hand
from tests.engine.test_schedules import FAN, assert_can_run, many, names_of, order_of, with_schedule
from tests.graph.build import MODELS


def shuffled(graph: Graph, example: Example, seed: int) -> kvviz.Trace:
    """A run in which a person picked ops at random."""
    return by_hand(SingleRun(graph, feeds(example), donate=example.donate), random.Random(seed))


@many
@given(example=examples(), seed=st.integers(0, 10**6))
def test_picks_replay_the_order_in_which_a_person_ran_a_graph(example: Example, seed: int) -> None:
    graph = kvviz.load(example.model)
    played = shuffled(graph, example, seed)
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
    graph = graph_of(
        """agraph (float[4] x) => (float[4] y) {
          [a] a = Neg (x)  [b] b = Sin (x)  [c] c = Abs (x)  [r] r = Add (c, b)  [y] y = Add (a, r)
        }"""
    )
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
