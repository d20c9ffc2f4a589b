"""Forks: the same inputs, the same steps up to one of them, then a change; and the same results."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvviz
from kvviz.debugger.state import frame_id_after, frontier_after
from kvviz.errors import KvvizError
from kvviz.explain.difference import places
from kvviz.explain.figures import unlike
from kvviz.fixes.forking import Departure, fork_session, offers, what_holds
from kvviz.trace.recording import Trace
from tests.debugger.cursors import recording, session
from tests.decode.small import small
from tests.engine.graphs import graph_of, numbers
from tests.engine.random_graphs import Example, examples
from tests.graph.build import MODELS
from tests.outside.told import differences, loaded

CHAIN = "g (float[4] x) => (float[4] y) { a = Neg(x) y = Exp(a) }"


@cache
def story() -> Trace:
    return kvviz.decode(kvviz.load(MODELS / "storyteller" / "merged_if" / "model.onnx"), [1, 2, 3], 4)


def check_fork(trace: Trace, step: int, other: Trace) -> None:
    assert places(other)[:step] == places(trace)[:step]
    assert sorted(places(other)) == sorted(places(trace))
    assert list(other.outputs) == list(trace.outputs)
    for name, value in trace.outputs.items():
        assert np.asarray(other.outputs[name]).tobytes() == np.asarray(value).tobytes(), name
    assert other.tokens == trace.tokens


@settings(max_examples=40, deadline=None)
@given(examples())
def test_every_ready_op_can_run_at_every_step_and_the_results_are_the_same_bits(example: Example) -> None:
    graph = kvviz.load(example.model)
    inputs = {name: value.copy() for name, value in example.inputs.items()}
    trace = kvviz.run(graph, inputs, donate=example.donate, poison=True)
    for step in range(len(trace.steps)):
        for node in frontier_after(trace, step - 1):
            other = kvviz.fork(trace, step, run=node)
            assert other.steps[step].graph_node is node or other.log[step].op.control or node.subgraphs
            check_fork(trace, step, other)


@pytest.mark.parametrize("name", ["bodies", "flat"])
def test_every_ready_op_can_run_at_every_step_of_bodies_too(name: str) -> None:
    trace = recording(name)
    for step in range(len(trace.steps)):
        frame = frame_id_after(trace, step - 1)
        for node in frontier_after(trace, step - 1):
            other = kvviz.fork(trace, step, run=node.name)
            check_fork(trace, step, other)
            if not node.subgraphs and node.function is None:
                assert (other.log[step].frame, other.log[step].op.node) == (frame, node)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_fork_of_a_fork_keeps_the_steps_of_both(data: st.DataObject) -> None:
    trace = story()
    first = data.draw(st.integers(0, len(trace.steps) - 1))
    ready = frontier_after(trace, first - 1)
    if not ready:
        return
    other = kvviz.fork(trace, first, run=data.draw(st.sampled_from(ready)))
    check_fork(trace, first, other)
    second = data.draw(st.integers(first, len(other.steps) - 1))
    ready = frontier_after(other, second - 1)
    if ready:
        third = kvviz.fork(other, second, run=data.draw(st.sampled_from(ready)))
        check_fork(other, second, third)
        assert places(third)[:first] == places(trace)[:first]


@pytest.mark.parametrize("policy", ["rten", "onnxruntime", "never"])
@pytest.mark.parametrize("at", ["start", "middle"])
def test_another_policy_gives_the_same_tokens_and_its_name(policy: str, at: str) -> None:
    trace = story()
    step = 0 if at == "start" else trace.runs[1].first + 100
    other = kvviz.fork(trace, step, policy=policy)
    assert other.tokens == trace.tokens and unlike(other, trace)[0]
    assert other.branch == (policy, step) and other.label == policy
    assert places(other)[:step] == places(trace)[:step]
    if not step:  # then it is what a decode under that policy is
        alone = kvviz.decode(trace.graph, [1, 2, 3], 4, policy=policy)
        assert places(alone) == places(other)
        assert (alone.peak_bytes, alone.bytes_copied) == (other.peak_bytes, other.bytes_copied)


def test_rows_reserved_for_a_decode_are_as_if_it_had_asked_for_them_or_a_fix_had() -> None:
    graph = kvviz.load(MODELS / "storyteller" / "concat" / "model.onnx")
    trace = kvviz.decode(graph, [1, 2, 3], 4)
    rows = offers(trace)["kv_capacity"]
    other = kvviz.fork(trace, kv_capacity=rows)
    alone = kvviz.decode(graph, [1, 2, 3], 4, kv_capacity=rows)
    assert rows == 6 and other.label == "kv_capacity=6" and other.tokens == trace.tokens
    assert other.bytes_copied == alone.bytes_copied < trace.bytes_copied
    assert offers(other)["kv_capacity"] is None
    fix = next(b.fix for m in kvviz.explain(trace).missed for b in m.blockers if b.fix is not None)
    other, alone = kvviz.fork(trace, 10, fix=fix), fix.apply()
    assert other.label == fix.label and other.tokens == trace.tokens
    assert (other.peak_bytes, other.bytes_copied) == (alone.peak_bytes, alone.bytes_copied)


def test_a_donated_input_is_overwritten_or_appended_to_and_the_callers_array_is_not() -> None:
    x = numbers(4)
    given_bytes = x.tobytes()
    trace = kvviz.run(graph_of(CHAIN), {"x": x})
    other = kvviz.fork(trace, donate="x")
    assert not trace.steps[0].decision.taken and other.steps[0].decision.taken
    assert other.label == "donate x" and x.tobytes() == given_bytes
    assert other.outputs["y"].tobytes() == trace.outputs["y"].tobytes()
    grown = "g (float[2,3] past, float[1,3] row) => (float[3,3] present) { present = Concat<axis=0>(past, row) }"
    trace = kvviz.run(graph_of(grown), {"past": numbers(2, 3), "row": numbers(1, 3)})
    other = kvviz.fork(trace, reserve={"past": (0, 4)}, donate="past")
    assert (trace.bytes_copied, other.bytes_copied) == (2 * 3 * 4, 0)
    assert other.label == "reserve 4 rows for past and donate it"


def test_a_run_that_goes_on_is_forked_where_it_is() -> None:
    live = session("bodies")
    for _ in range(3):
        live.advance()
    other = fork_session(live.trace, 1, Departure(run="b"))
    assert [step.node for step in other.trace.steps] == ["a", "b"]
    assert kvviz.fork(live.trace, 1, run="b").outputs.keys() == live.run_to_end().outputs.keys()


REFUSED = [
    ({"step": 0}, "no change is given"),
    ({"step": 99, "run": "y"}, "nothing is left to run at step 99"),
    ({"step": 0, "run": "y"}, "'y' cannot run at step 0: it waits for 'a'; ready are 'a'"),
    ({"step": 1, "run": "a"}, "'a' cannot run at step 1: it ran as step 0"),
    ({"donate": "z"}, "has no input 'z'; it has x"),
    ({"kv_capacity": 4}, "kv_capacity is for a decode"),
    ({"reserve": {"x": 8}}, "'x' is not a cache, so give its axis too"),
    ({"policy": "fast"}, "there is no policy 'fast'"),
]


@pytest.mark.parametrize(("asked", "said"), REFUSED)
def test_what_cannot_be_is_refused_with_one_sentence(asked: dict, said: str) -> None:
    graph = graph_of(CHAIN)
    nodes = tuple(replace(node, name=node.outputs[0]) for node in graph.nodes)
    trace = kvviz.run(replace(graph, nodes=nodes), {"x": numbers(4)})
    with pytest.raises(KvvizError) as error:
        kvviz.fork(trace, **asked)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_where_a_fork_left_the_other_trace_is_in_its_file_too() -> None:
    trace = kvviz.decode(kvviz.load(small("merged").proto), [1, 2, 3], 3)
    other = kvviz.fork(trace, trace.runs[1].first, policy="never")
    assert loaded(other).branch == other.branch == ("never", trace.runs[1].first)
    assert loaded(other).label == "never" and loaded(trace).branch is None
    assert differences(other, loaded(other), pictures=False) == []
    with pytest.raises(KvvizError, match=r"record it again with kvviz.run, kvviz.decode or kvviz.ggml.run, and fork"):
        kvviz.fork(loaded(trace), 5, policy="rten")


def test_a_fork_says_what_of_its_change_holds_from_where() -> None:
    trace = story()
    step = trace.runs[1].first
    rten = kvviz.fork(trace, step, policy="rten")
    assert what_holds(rten, trace) == (
        f"The rules of rten hold for the whole run; before step {step:,} only the order is as it was."
    )
    # so it is: some step before it was decided in another way, in the same place
    decided = [[(s.node, s.decision.dispatch, s.outs) for s in one.steps[:step]] for one in (trace, rten)]
    assert decided[0] != decided[1] and [s[0] for s in decided[0]] == [s[0] for s in decided[1]]
    other = next(node for node in frontier_after(trace, step) if node.name != trace.steps[step + 1].node)
    chosen = kvviz.fork(trace, step + 1, run=other)
    assert what_holds(chosen, trace) == f"Everything before step {step + 1:,} is as it was."
    assert [s.outs for s in chosen.steps[: step + 1]] == [s.outs for s in trace.steps[: step + 1]]
    assert what_holds(kvviz.fork(trace, policy="rten"), trace) == what_holds(trace, trace) == ""
