"""The policy `rten` on real models and small graphs: as rten itself ran them, in every recorded fact."""

import pytest

import kvviz
from kvviz.errors import LoadError
from kvviz.runtimes.rten.rten_planner import QUIRKS
from kvviz.verification.rten_recording import read_recording
from tests.engine.graphs import numbers, run
from tests.engine.rten.compare import BESIDES, CORE, compare
from tests.engine.rten.oracle import run_like
from tests.engine.rten.records import DATA, UNLOADED, all_recordings, models, named, names, recordings

# What a kernel takes from the pool for itself changes what the pool gives out later; there is no rule in that.
ASSERTED = {*CORE, *BESIDES} - {"pool*"}


@pytest.mark.parametrize("name", names())
def test_a_model_or_scenario_runs_as_it_ran_in_rten(name: str) -> None:
    recording = named(name)
    trace, feeds = run_like(recording)
    wrong = [str(fact) for fact in compare(trace, recording, feeds) if fact.kind in ASSERTED]
    assert not wrong, f"{len(wrong)} facts differ:\n" + "\n".join(wrong[:12])


def test_every_recording_has_a_test() -> None:
    assert names() == [recording.id for recording in all_recordings()]


def test_a_model_that_rten_cannot_load_has_no_runs() -> None:
    assert {name for name in models() if not recordings(name)} == UNLOADED
    for name in UNLOADED:
        with pytest.raises(LoadError, match="has no run of rten"):
            read_recording(DATA / f"{name}.jsonl.gz")


# Of a there are two readers that could overwrite it, and neither may go first for nothing; of b there is one.
TEXT = """g (float[8, 8] x) => (float[8, 24] y) {
    a = MatMul(x, x) b = MatMul(x, a)
    [first] p = Relu(a) [second] q = Neg(a) [lone] r = Sigmoid(b)
    y = Concat <axis = 1> (p, q, r) }"""


def order(policy: kvviz.Policy | str) -> list[str]:
    trace = run(TEXT, {"x": numbers(8, 8)}, policy=policy)
    return [step.node for step in trace.steps if step.node in ("first", "second", "lone")]


def test_the_greedy_order_takes_ops_as_they_became_ready() -> None:
    assert order("rten") == ["first", "second", "lone"]


def test_without_greed_the_last_reader_of_its_input_goes_first_and_then_the_oldest() -> None:
    kept = [name for name in QUIRKS if name != "greedy_order"]
    assert order(kvviz.policies.rten(quirks=kept)) == ["lone", "first", "second"]
    trace = run(TEXT, {"x": numbers(8, 8)}, policy=kvviz.policies.rten(quirks=kept))
    taken = {step.node: step.decision.taken for step in trace.steps}
    assert (taken["first"], taken["second"], taken["lone"]) == ((), ("a",), ("b",))


@pytest.mark.parametrize("policy", ["ideal", "never"])
def test_a_policy_of_other_rules_is_told_apart(policy: str) -> None:
    found = set()
    for name in ("add_tie_ba", "if_then_only", "two_consumers"):
        for recording in recordings(name):
            trace, feeds = run_like(recording, policy)
            found |= {fact.kind for fact in compare(trace, recording, feeds)}
    assert found >= {*CORE, "reasons"}
