"""Diagnosis and fixes in the debugger, without a browser: what the page asks for, and what it is told."""

from pathlib import Path
from typing import Any

import pytest

import kvviz
from kvviz.report.explain import explain
from kvviz.view.page_data.payload import decode
from kvviz.widget import Debugger
from tests.decode.small import small
from tests.widget.asking import ask

PROMPT = [5, 7, 3]


@pytest.fixture(scope="module")
def story() -> kvviz.Trace:
    return kvviz.decode(kvviz.load(small("concat").proto), PROMPT, 3)


@pytest.fixture
def debugger(story: kvviz.Trace) -> Debugger:
    return Debugger(story)


def with_fix(trace: kvviz.Trace) -> tuple[Any, int]:
    """The first missed entry for which there is a fix, and the place of the blocker that has it."""
    return next((m, i) for m in explain(trace).missed for i, b in enumerate(m.blockers) if b.fix is not None)


def test_a_fix_that_the_page_asks_for_is_shown_as_a_lane_at_the_same_op(debugger: Debugger) -> None:
    before = debugger.trace
    missed, blocker = with_fix(before)
    answers = ask(debugger, do="fix", step=missed.step, blocker=blocker)
    assert answers == []
    after = debugger.fixed
    assert after is debugger.trace is not before and after.tokens == before.tokens
    step = after.steps[debugger.cursor]
    assert (step.node, step.run, step.frame) == (missed.node, before.steps[missed.step].run, missed.frame)
    assert step.decision.dispatch == "in_place"
    assert [lane["label"] for lane in debugger.lanes] == ["ideal", missed.blockers[blocker].fix.label]
    assert [told["steps"] for told in debugger.lanes[1]["figures"]] == [len(before.steps), len(after.steps)]
    debugger.close_lane()
    other = next(step for step in missed.steps if step != missed.step)
    debugger.fix(other, blocker)
    here = debugger.trace.steps[debugger.cursor]
    assert (here.node, here.run) == (before.steps[other].node, before.steps[other].run)
    debugger.close_lane()
    assert ask(debugger, do="fork", step=0, change={"fix": {"step": missed.step, "blocker": blocker}}) == []
    assert debugger.trace.label == missed.blockers[blocker].fix.label


def test_a_fix_of_a_run_that_goes_on_is_compared_over_the_runs_that_both_have_finished(story: kvviz.Trace) -> None:
    debugger = kvviz.debug(story.graph, prompt=PROMPT, max_new_tokens=4)
    debugger.goto(len(story.steps) + 20)
    fix = next(finding.fix for finding in explain(debugger.trace).caches if finding.fix is not None)
    first = debugger.trace
    after = debugger.apply(fix)
    # then what is told of it is what those three runs come to where they are all that ran
    told = debugger.lanes[1]
    before, fixed = told["figures"]
    assert len(story.runs) == 3 and len(after.runs) == 4
    assert before["copied"] == story.bytes_copied and before["steps"] == fixed["steps"] == len(story.steps)
    assert fixed["copied"] == sum(run.bytes_copied for run in after.runs[:3])
    assert fixed["copied"] < before["copied"] < first.bytes_copied
    assert told["note"] == "figures of the 3 runs that both have finished"
    debugger.resume()
    debugger.lane = 0
    debugger.resume()
    told = debugger.lanes[1]
    assert told["note"] == ""
    assert [figures["copied"] for figures in told["figures"]] == [first.bytes_copied, after.bytes_copied]


def test_the_cure_of_a_finding_is_applied_at_the_step_of_it_that_is_shown(debugger: Debugger) -> None:
    before = debugger.trace
    number, found = next((i, one) for i, one in enumerate(kvviz.findings(before)) if one.kind == "copied")
    for cursor, node in ((found.at[3], before.steps[found.at[3]].node), (0, before.steps[found.at[0]].node)):
        debugger.cursor = cursor
        ask(debugger, do="fix", finding=number)
        assert debugger.fixed is debugger.trace
        assert debugger.trace.bytes_copied < before.bytes_copied
        assert debugger.trace.steps[debugger.cursor].node == node
        debugger.close_lane()


def test_a_trace_from_a_file_tells_its_fixes_but_cannot_apply_them(story: kvviz.Trace, tmp_path: Path) -> None:
    story.save(tmp_path / "trace")
    debugger = Debugger(kvviz.Trace.load(tmp_path / "trace"))
    missed, blocker = with_fix(debugger.trace)
    (answer,) = ask(debugger, do="fix", step=missed.step, blocker=blocker)
    assert answer["error"].count("\n") == 0
    assert len(debugger.lanes) == 1 and debugger.fixed is None


def test_the_diagnosis_of_a_run_that_goes_on_is_sent_when_it_is_asked_for(story: kvviz.Trace) -> None:
    debugger = kvviz.debug(story.graph, prompt=PROMPT, max_new_tokens=3, recorded=1)
    assert decode(debugger.payload)[0]["report"] is None
    (early,) = ask(debugger, do="report", id=3, cures=False)
    (answer,) = ask(debugger, do="report", id=4)
    titles = [[one["title"] for one in sent["report"]["findings"]] for sent in (early, answer)]
    assert titles[0] == titles[1] == [one.title for one in kvviz.findings(debugger.trace)]
    assert early["report"]["cures"] is False and not any("cure" in one for one in early["report"]["findings"])
    assert any("cure" in one for one in answer["report"]["findings"])
    assert answer["report"]["steps"] == len(debugger.trace.steps)
    debugger.resume()
    assert debugger.trace.live is None
    report = decode(debugger.payload, debugger.edge, debugger.latest)[0]["report"]
    assert [one["title"] for one in report["findings"]] == [one.title for one in kvviz.findings(debugger.trace)]
