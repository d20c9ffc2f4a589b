"""A trace that went through a file says the same as the live one, whoever reads it, fixes and all."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz import Policy, Trace
from kvviz.decode.token_loop import DecodeSession
from kvviz.engine.policy import Schedule
from kvviz.graph.model import Graph, Node
from kvviz.runtimes.named_policies import NAMED, facts_of, policy_of
from kvviz.runtimes.rten.rten_planner import QUIRKS
from kvviz.runtimes.schedules import Before, LeastLive, Picks, depth_first, least_live
from tests.decode.small import DECODERS as SMALL
from tests.decode.small import small
from tests.engine.graphs import graph_of, numbers
from tests.explain.test_fixes import decoded
from tests.graph.build import MODELS, model, node
from tests.outside.checks import POLICIES
from tests.outside.generator import case
from tests.outside.told import differences, loaded
from tests.test_models import EXPORTED, VAD, single_runs
from tests.test_models import graph_of as model_of

# b is read twice and y is asked for, so that an order, a donation and a dropped output are each offered by some policy.
FORKED = """g (float[4, 16] x, float[4, 16] w) => (float[4, 16] y, float[4, 16] z, float[2, 16] s, float[4, 16] t)
    <int64[1] begin = {0}, int64[1] end = {2}, int64[1] axis = {0}, int64[1] step = {1}> {
    a = Relu (x) b = Add (a, w) y = Exp (b) r = Neg (b) z = Mul (r, a)
    s = Slice (r, begin, end, axis, step) t = Tanh (y) }"""
SLICE = """g (float[4, 16] x) => (float[ROWS, 16] s) <int64[1] zero = {0}, int64[1] end = {4}, int64[1] step = {STEP}> {
    s = Slice (x, zero, end, zero, step) }"""


def backwards(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str]) -> Sequence[Node]:
    """An order of the caller's own."""
    return depth_first(graph, nodes, outputs)


def own_rule(frame: Any, planned: Any, args: list[Any]) -> Any:
    return kvviz.policies.never.in_place(frame, planned, args)


ORDERS: list[Schedule] = [
    depth_first,
    least_live(),
    LeastLive((((), (("a", "a", 256), ("b", "b", 256))),)),
    Picks((((), 0), ((), 1), ((), 3))),
    Before(depth_first, (((), 3, 2),)),
    backwards,
    Before(backwards, (((), 3, 2),)),
]
RULES = [
    *NAMED.values(),
    kvviz.policies.rten(quirks=False),
    kvviz.policies.onnxruntime(mem_reuse=False),
    kvviz.policies.onnxruntime(parallel=True),
    kvviz.policies.onnxruntime(mem_reuse=False, parallel=True),
    replace(kvviz.policies.ideal, name="mine", captures=kvviz.policies.never.captures),
    replace(kvviz.policies.rten, captures=kvviz.policies.ideal.captures, growth="start"),
    *(replace(kvviz.policies.ideal, schedule=order) for order in ORDERS),
]
KNOWN = [
    *RULES,
    *(kvviz.policies.rten(quirks=[name]) for name in QUIRKS),
    *(kvviz.policies.rten(quirks=QUIRKS.keys() - {name}) for name in QUIRKS),
]


def forked(policy: Policy | str, **options: Any) -> Trace:
    return kvviz.run(graph_of(FORKED), {"x": numbers(4, 32)[:, ::2], "w": numbers(4, 16)}, policy=policy, **options)


def fixes(trace: Trace) -> list[Any]:
    return [b.fix for step in trace.steps for b in step.decision.blockers if b.fix is not None]


@pytest.mark.parametrize("policy", KNOWN, ids=str)
def test_a_policy_is_found_again_from_its_facts(policy: Policy) -> None:
    facts = facts_of(policy)
    found = policy_of(loaded(forked(policy)))
    assert found is not None and facts_of(found) == facts
    for name in ("name", "in_place", "captures", "prepare", "homes", "rewrite", "rules", "growth", "copies_state"):
        assert getattr(found, name) == getattr(policy, name)
    if facts.schedule[0] != "own" and facts.schedule[1:2] != (("own", "backwards"),):
        assert found.schedule == policy.schedule


@pytest.mark.parametrize("policy", RULES, ids=str)
def test_every_reader_says_the_same_under_every_policy(policy: Policy) -> None:
    trace = forked(policy, donate=["w"])
    assert differences(trace, loaded(trace), pictures=False) == []


def test_what_fixes_made_is_told_too_and_can_be_fixed_further() -> None:
    kinds = Counter[str]()
    for policy in POLICIES:
        for fix in fixes(forked(policy)):
            kinds.update(type(change).__name__ for change in fix.changes)
            after = fix.apply()
            assert differences(after, loaded(after), pictures=False) == []
    assert kinds.keys() >= {"Donate", "Drop", "RunFirst", "UsePolicy"}


def test_the_fix_of_a_loaded_trace_is_applied_without_numbers() -> None:
    trace = forked("rten")
    for fix, other in zip(fixes(trace), fixes(loaded(trace)), strict=True):
        real, dry = fix.apply(), other.apply()
        assert dry.dry and [s.decision for s in dry.steps] == [s.decision for s in real.steps]
        assert (dry.peak_bytes, dry.bytes_copied) == (real.peak_bytes, real.bytes_copied)


def test_rules_of_the_callers_own_are_asked_where_they_are_and_not_known_to_a_file() -> None:
    trace = forked(replace(kvviz.policies.ideal, name="mine", in_place=own_rule))
    assert policy_of(trace) is policy_of(loaded(trace)) is None
    # they run nothing in place, so that other rules are a part of each fix
    found = [(s, b.fix) for s in trace.steps for b in s.decision.blockers if b.fix is not None]
    assert {fix.label for _, fix in found} == {
        'policy="ideal"',
        'run Neg first and policy="ideal"',
        'drop output y and policy="ideal"',
        'donate w and policy="ideal"',
    }
    for step, fix in found:
        (after,) = (s for s in fix.apply().steps if s.node == step.node)
        assert after.decision.dispatch == "in_place"
    assert fixes(loaded(trace)) == []


def test_the_step_of_a_slice_is_told_because_rten_cannot_shorten_by_it() -> None:
    for step, labels in ((2, []), (1, ["donate x"])):
        graph = graph_of(SLICE.replace("STEP", str(step)).replace("ROWS", str(4 // step)))
        trace = kvviz.run(graph, {"x": numbers(4, 16)}, policy="rten")
        assert [fix.label for fix in fixes(trace)] == [fix.label for fix in fixes(loaded(trace))] == labels


@pytest.mark.parametrize("shared", [False, True])
def test_inputs_that_share_memory_are_told(shared: bool) -> None:
    block = numbers(2, 4, 16)
    given = {"x": block[0], "w": block[1] if shared else numbers(4, 16), "idle": block[1]}
    graph = graph_of(FORKED.replace("float[4, 16] w)", "float[4, 16] w, float[4, 16] idle)"))
    for policy in POLICIES:
        trace = kvviz.run(graph, given, policy=policy)
        assert differences(trace, loaded(trace), pictures=False) == []
        assert not any("donate x" in fix.label for fix in fixes(trace))


@pytest.mark.parametrize(
    ("policy", "donate", "label"),
    [
        ("ideal", ["idle"], "donate x"),
        ("never", ["x", "idle"], 'policy="ideal"'),
        ("ideal", ["x"], None),
        ("never", [], None),
    ],
)
def test_an_input_that_no_op_reads_holds_the_memory_that_it_shares(
    policy: str, donate: list[str], label: str | None
) -> None:
    zeros = np.zeros((4, 16), np.float32)
    proto = model([node("Neg", "x", "y")], ["x float 4 16", "idle float 4 16"], ["y float 4 16"], idle=zeros)
    graph = kvviz.load(proto)
    block = numbers(100)
    # the last rows of the one, which is given in the place of a weight, are the first of the other
    given = {"x": block[36:].reshape(4, 16), "idle": block[:64].reshape(4, 16)}
    trace = kvviz.run(graph, given, policy=policy, donate=donate)
    assert [fix.label for fix in fixes(trace)] == ([] if label is None else [label])
    assert differences(trace, loaded(trace), pictures=False) == []


def test_a_branch_is_not_taken_for_a_node_of_its_name_in_another_graph() -> None:
    graph = graph_of("""g (bool flag, float[4, 4] x) => (float[4, 4] y, float[4, 4] z) {
        [same] y = If (flag) <then_branch = t () => (float[4, 4] b) { a = Neg(x) [same] b = LeakyRelu(a) },
                              else_branch = e () => (float[4, 4] c) { c = Abs(x) }> z = Relu(x) }""")
    trace = kvviz.run(graph, {"flag": np.array(True), "x": numbers(4, 4)})
    assert "donate x" in {fix.label for fix in fixes(trace)}
    assert differences(trace, loaded(trace), pictures=False) == []


@pytest.mark.parametrize("policy", ["ideal", "never"])
def test_a_decode_of_which_some_runs_were_kept_says_the_same(policy: str) -> None:
    trace = kvviz.decode(model_of("storyteller/concat"), [1, 5, 9], 4, policy=policy, detail=[2], progress=False)
    assert [run.index for run in trace.runs if run.last > run.first] == [0, 2]
    assert differences(trace, loaded(trace), pictures=False) == []


# Models of exporters, and one of the forms of a story; small decoders have the others.
LARGE = [*EXPORTED, "storyteller/concat"]


# Policies in turn: each has several models. What one writes of its own is told of the small graphs above.
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_decodes_say_the_same_however_the_cache_is_kept(name: str) -> None:
    policy = POLICIES[[*SMALL, *LARGE].index(name) % len(POLICIES)]
    if name in SMALL:
        one = small(name)
        trace = kvviz.decode(kvviz.load(one.proto), [3, 7, 1], 3, policy=policy, progress=False, **one.options)
    else:
        trace = decoded(MODELS / name / "model.onnx", 2, policy=policy)
    assert differences(trace, loaded(trace), pictures=name in SMALL) == []


@pytest.mark.parametrize("name", [*LARGE, VAD])
def test_models_say_and_draw_the_same(name: str) -> None:
    # Under another policy than above.
    policy = POLICIES[([*LARGE, VAD].index(name) + 1) % len(POLICIES)]
    (inputs, _), *_ = single_runs(name)
    trace = kvviz.run(model_of(name), inputs, policy=policy)
    assert differences(trace, loaded(trace)) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_a_stream_says_the_same(policy: str) -> None:
    graph = graph_of(
        """g (float[2, 4] x, float[2, 4] state) => (float[2, 4] y, float[2, 4] stateN)
        { h = Add(x, state) y = Relu(h) stateN = Neg(h) }"""
    )
    trace = kvviz.stream(graph, [{"x": numbers(2, 4)} for _ in range(3)], {"state": numbers(2, 4)}, policy=policy)
    assert differences(trace, loaded(trace)) == []


@pytest.mark.parametrize("number", range(8_000_000, 8_000_024))
def test_a_loaded_model_at_random_was_loaded_before_and_says_the_same(number: int) -> None:
    """What a file holds is enough to write it once more."""
    one = case(number)
    graph = kvviz.load(one.model)
    for policy in POLICIES[number % 2 :: 2]:
        trace = kvviz.run(graph, one.feeds()[0], outputs=one.outputs, policy=policy)
        again = loaded(loaded(trace))
        assert differences(trace, again, pictures=False) == []


def test_an_interrupted_trace_says_the_same() -> None:
    session = DecodeSession(model_of(LARGE[0]), [3, 7], max_new_tokens=2, policy="rten")
    for _ in range(40):
        session.advance()
    session.trace.interrupted = True
    assert differences(session.trace, loaded(session.trace)) == []
