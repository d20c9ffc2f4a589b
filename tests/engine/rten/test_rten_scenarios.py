"""The policy `rten` on small graphs, each made for one rule."""

from __future__ import annotations

import pytest

from tests.engine.rten.check import assert_like_rten
from tests.engine.rten.compare import compare
from tests.engine.rten.fact import CORE
from tests.engine.rten.oracle import run_like
from tests.engine.rten.records import Recording, recordings, scenarios

RUNS = [recording for name in scenarios() for recording in recordings(name)]


@pytest.mark.parametrize("recording", RUNS, ids=lambda recording: recording.id)
def test_a_scenario_runs_as_it_ran_in_rten(recording: Recording) -> None:
    assert_like_rten(recording)


@pytest.mark.parametrize("policy", ["ideal", "never"])
def test_a_policy_of_other_rules_is_told_apart(policy: str) -> None:
    found = set()
    for name in ("add_tie_ba", "if_then_only", "two_consumers"):
        for recording in recordings(name):
            trace, feeds = run_like(recording, policy)
            found |= {fact.kind for fact in compare(trace, recording, feeds)}
    assert found >= {*CORE, "reasons"}
