"""Comparisons: every row is a run of its own from the same inputs, and what differs is found where it differs first."""

import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvviz
from kvviz import Policy, Trace
from kvviz.engine.placement import Home
from kvviz.errors import InputError, KvvizError
from kvviz.explain.difference import align, first_difference
from kvviz.runtimes.named_policies import NAMES, find_policy, named
from kvviz.runtimes.schedules import depth_first
from kvviz.trace.schema.events import VIEW
from kvviz.view.compare import Comparison, compare
from tests.engine.graphs import graph_of, numbers, run
from tests.engine.random_graphs import Example, examples, feeds
from tests.explain.test_fixes import POLICIES, calm, of_example
from tests.graph.build import MODELS

many = settings(max_examples=50, suppress_health_check=calm)
TWO = "agraph (float[4] x) => (float[4] z) { [a] a = Neg (x) [b] b = Abs (x) [c] c = Exp (a) [z] z = Add (c, b) }"
GROWS = """agraph (float[1,n,2] past, float[1,1,2] new) => (float[1,m,2] present) {
  [more] more = Tanh (new)  [append] present = Concat <axis = 1> (past, more)
}"""


def decided(trace: Trace) -> list[Any]:
    return [
        (s.run, s.frame, s.node_index, s.decision.dispatch, s.decision.taken, s.decision.shares) for s in trace.steps
    ]


def test_there_is_a_row_for_every_policy_with_every_schedule_and_one_for_every_fix() -> None:
    graph, inputs = graph_of(TWO), {"x": numbers(4)}
    fix: Any = SimpleNamespace(label="run b first", apply=lambda: kvviz.run(graph, inputs))
    found = compare(graph, inputs, ["ideal", "never"], [None, "rten", depth_first, "least_live"], [fix, fix])
    orders = ("", " (rten's order)", " (depth-first order)", " (least-live order)")
    assert [row.name for row in found] == [
        *(f"{policy}{order}" for policy in ("ideal", "never") for order in orders),
        "fix: run b first",
        "fix: run b first (2)",
    ]
    assert [row.name for row in found] == list(found.traces)
    assert len(found) == 10 and found.equal
    assert found[2] is found["ideal (depth-first order)"]
    assert (found.rows[5].policy, found.rows[5].schedule) == ("never", "rten's order")


def test_a_row_has_the_numbers_of_its_trace() -> None:
    graph = kvviz.load(MODELS / "o05_dynamo_llama_op23" / "model.onnx")
    found = compare(graph, policies=POLICIES, prompt=[5, 17, 33], max_new_tokens=3, kv_capacity=8)
    weights = sum(s.capacity for s in found[0].storages if s.origin == "weights")
    for row in found:
        trace = found[row.name]
        assert (row.peak, row.allocated, row.written, row.copied, row.steps) == (
            max(step.live_bytes for step in trace.steps),
            sum(step.allocated for step in trace.steps),
            sum(step.written for step in trace.steps),
            sum(step.copied for step in trace.steps),
            len(trace.steps),
        )
        assert row.above_weights == row.peak - weights
        kept = [s for s in trace.steps if set(s.decision.taken) & set((s.decision.shares or {}).values())]
        assert row.in_place == len(kept)
    assert found["ideal"].tokens == found["never"].tokens
    assert found.rows[1].in_place == 0 < found.rows[0].in_place


def test_without_a_word_the_runtimes_are_compared_with_what_memory_safety_allows() -> None:
    found = compare(graph_of(TWO), {"x": numbers(4)})
    assert [row.policy for row in found] == ["ideal", "rten", "onnxruntime"]
    assert [row.schedule for row in found] == ["the model's order", "rten's order", "onnxruntime's order"]


def test_other_schedules_are_really_run_and_named_by_a_mapping() -> None:
    found = compare(graph_of(TWO), {"x": numbers(4)}, "ideal", ["model", "depth_first"])
    ran = [" ".join(step.node for step in trace.steps) for trace in found.traces.values()]
    assert ran == ["a b c z", "a c b z"]
    found = compare(graph_of(TWO), {"x": numbers(4)}, "ideal", {"deep": depth_first})
    assert [row.name for row in found] == ["ideal (deep)"]
    # least live plans with sizes that were measured
    found = compare(graph_of(TWO), {"x": numbers(4)}, "ideal", "least_live")
    assert len(found) == 1 and found[0].policy.schedule[1]


def test_reserved_room_is_there_in_every_row_and_the_caller_s_block_is_not_written() -> None:
    past = kvviz.reserve(numbers(1, 3, 2), 1, 8)
    assert past.base is not None
    past.base[:, 3:] = 7.0
    found = compare(
        graph_of(GROWS), {"past": past, "new": numbers(1, 1, 2)}, "ideal", ["model", "rten"], donate=["past"]
    )
    for trace in found.traces.values():
        assert [out.how for out in trace.steps[-1].outs] == ["append"]
    assert (past.base[:, 3:] == 7.0).all()
    assert past.shape == (1, 3, 2)


@many
@given(example=examples())
def test_no_comparison_changes_an_array_of_the_caller_or_a_result(example: Example) -> None:
    given = feeds(example)
    before = {name: array.tobytes() for name, array in given.items()}
    schedules = [None, "rten", "least_live"]
    found = compare(kvviz.load(example.model), given, ["ideal", "never"], schedules, donate=example.donate)
    assert {name: array.tobytes() for name, array in given.items()} == before
    assert found.equal and not any(row.difference for row in found)
    # and every row could overwrite what is donated
    assert decided(found["ideal"]) == decided(of_example(example))


def test_caches_to_start_a_decode_from_are_the_same_afterwards() -> None:
    graph = kvviz.load(MODELS / "storyteller" / "concat" / "model.onnx")
    first = kvviz.decode(graph, [1, 5, 9], 2, progress=False)
    given = {cache.input: first.outputs[cache.output] for cache in first.caches}
    before = {name: array.tobytes() for name, array in given.items()}
    found = compare(graph, given, ["ideal", "never"], prompt=[7], max_new_tokens=3)
    assert {name: array.tobytes() for name, array in given.items()} == before
    assert found.equal and len(found[0].runs) == 3


def test_an_unknown_policy_or_schedule_is_refused_and_to_donate_to_a_decode() -> None:
    unknown: list[dict[str, Any]] = [{"policies": ["fastest"]}, {"schedules": ["fastest"]}]
    for wrong in unknown:
        with pytest.raises(KvvizError, match="'fastest'; choose one of"):
            compare(graph_of(TWO), {"x": numbers(4)}, **wrong)
    with pytest.raises(InputError, match="a decode always donates its caches"):
        compare(graph_of(TWO), prompt=[1], donate=["x"])


SAME = [np.array([np.nan, np.inf]), np.array([1 + 2j]), [np.ones(2)], None, np.array(["a"], object), np.ones(0)]


def of_results(*outputs: dict[str, Any]) -> Any:
    traces = {}
    for i, results in enumerate(outputs):
        traces[str(i)] = run(TWO, {"x": numbers(4)})
        traces[str(i)].outputs = results
    return Comparison.of(traces)


def test_results_that_differ_are_named_and_an_output_that_one_row_lacks_is_said() -> None:
    good, far = np.ones(4, np.float32), np.array([1, 1, 1.5, 1], np.float32)
    found = of_results({"y": good, "z": good}, {"y": good, "z": far}, {"y": good, "z": good})
    assert not found.equal
    assert [(row.equal, row.difference) for row in found] == [(True, ""), (False, "z: off by 0.5"), (True, "")]
    row = of_results({"y": good, "z": good}, {"y": good}).rows[1]
    assert (row.equal, row.difference) == (True, "only one of them computed z")


def test_every_kind_of_difference_is_found_and_only_what_is_within_the_tolerance_is_equal() -> None:
    cases: list[tuple[Any, Any, str]] = [
        (np.ones(4, np.float32) + np.float32(1e-6), np.ones(4, np.float32), "y: off by 9.5e-07"),
        (np.arange(4), np.array([0, 1, 2, 4]), "y: off by 1"),
        (np.ones(4, np.float32), np.ones((2, 2), np.float32), "y is float32[4], not float32[2, 2]"),
        (np.ones(2, np.float32), np.ones(2), "y is float32[2], not float64[2]"),
        (np.array([True]), np.array([False]), "y has other elements"),
        (np.array(["a"], object), np.array(["b"], object), "y has other elements"),
        ([np.ones(2)], [np.ones(2), np.ones(2)], "y has 1 elements, not 2"),
        ([np.ones(2)], [np.zeros(2)], "y: off by 1"),
        (None, np.ones(2), "y is of another kind"),
        (np.array([1.0]), np.array([np.inf]), "y: off by inf"),
        (np.array([np.nan, 1.0]), np.array([1.0, np.nan]), "y has NaN at other places"),
        *((value, copy.deepcopy(value), "") for value in SAME),
    ]
    for have, want, text in cases:
        row = of_results({"y": want}, {"y": have}).rows[1]
        assert (row.equal, row.difference) == (text.endswith("e-07") or not text, text)


def test_other_tokens_of_a_decode_are_a_difference() -> None:
    graph = kvviz.load(MODELS / "storyteller" / "concat" / "model.onnx")
    first, other = (kvviz.decode(graph, prompt, 3, progress=False) for prompt in ([1, 5, 9], [1, 5, 2]))
    row = Comparison.of({"one": first, "other": other}).rows[1]
    assert not row.equal
    assert row.difference.startswith(("tokens", "the logits of run"))


def parting(nodes: str, other: str) -> Any:
    graph = graph_of(f"agraph (float[2,2] x) => (float[2,2] y) {{ {nodes} }}")
    return compare(graph, {"x": numbers(2, 2)}, ["ideal", other]).first_difference()


def test_where_two_policies_part_is_found() -> None:
    # an input that was taken over instead, and an output that lives elsewhere
    taken = parting("[a] a = Neg (x) [b] b = Exp (x) [c] y = Add (a, b)", "rten")
    lives = parting("[t] t = Transpose <perm = [1, 0]> (x) [b] y = MatMul (t, t)", "rten")
    assert [(found.kind, found.node) for found in (taken, lives)] == [("taken", "c"), ("identity", "t")]
    # an op that ran in place with one policy only
    found = parting("[a] a = Neg (x) [b] y = Exp (a)", "never")
    assert (found.kind, found.step, found.other, found.node, found.op_type) == ("dispatch", 1, 1, "b", "Exp")
    assert found.sentence == (
        "step 1: Exp b: with ideal, Exp overwrote a in place: B1 is now B1.1; nothing was allocated. "
        "With never, Exp wrote 16 B to a new buffer B2; the policy 'never' runs nothing in place."
    )


def test_an_output_that_lives_in_another_input_is_found() -> None:
    # given two runtimes that differ in nothing but the input in which they let the sum live
    def living_in(position: int) -> Policy:
        return replace(kvviz.policies.never, name=f"in {position}", homes=lambda *_: (Home(VIEW, position),))

    graph = graph_of("agraph (float[4] x, float[4] w) => (float[4] y) { y = Add (x, w) }")
    found = compare(graph, {"x": numbers(4), "w": numbers(4)}, [living_in(0), living_in(1)]).first_difference()
    assert found is not None
    assert (found.kind, found.step) == ("identity", 0)


def test_another_order_is_found() -> None:
    found = compare(graph_of(TWO), {"x": numbers(4)}, "ideal", ["model", "depth_first"]).first_difference()
    assert found is not None
    assert (found.kind, found.step, found.node) == ("order", 1, "b")
    assert found.sentence == ("step 1: ideal (the model's order) runs Abs b here, ideal (depth-first order) runs Exp c")


def test_a_shorter_trace_is_found_and_a_longer_one_is_no_difference() -> None:
    graph = kvviz.load(MODELS / "storyteller" / "concat" / "model.onnx")
    short, long = (kvviz.decode(graph, [1, 5], n, progress=False) for n in (1, 2))
    found = first_difference(long, short)
    assert found is not None
    assert (found.kind, found.step, found.other, found.run) == ("end", len(short.steps), -1, 1)
    assert "decode 1" in found.sentence
    assert first_difference(short, long) is None
    # and what the other trace does not have is aligned with none
    there, back = align(short, long)
    assert there.tolist() == list(range(len(short.steps)))
    assert back.tolist() == [*there.tolist(), *[-1] * (len(long.steps) - len(short.steps))]


@many
@given(example=examples(), first=st.sampled_from(POLICIES), second=st.sampled_from(POLICIES), data=st.data())
def test_the_first_difference_is_the_first_step_whose_record_differs(
    example: Example, first: str, second: str, data: st.DataObject
) -> None:
    orders = [named(data.draw(st.sampled_from(NAMES))) for _ in range(2)]
    policies = [replace(find_policy(name), schedule=order) for name, order in zip((first, second), orders)]
    traces = [of_example(example, policy) for policy in policies]
    records = [decided(trace) for trace in traces]
    differing = [i for i, pair in enumerate(zip(*records, strict=True)) if pair[0] != pair[1]]
    found = first_difference(traces[0], traces[1])
    assert (found and found.step) == (differing[0] if differing else None)


@many
@given(example=examples(), name=st.sampled_from(NAMES))
def test_aligned_steps_are_the_same_op_of_the_same_frame_both_ways(example: Example, name: str) -> None:
    a = of_example(example)
    b = of_example(example, replace(kvviz.policies.never, schedule=named(name)))
    there, back = align(a, b)
    assert len(there) == len(a.steps) and len(back) == len(b.steps)
    assert back[there].tolist() == list(range(len(a.steps)))
    for step in a.steps:
        other = b.steps[int(there[step.index])]
        assert (step.run, step.frame, step.node) == (other.run, other.frame, other.node)
