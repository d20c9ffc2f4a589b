"""Diagnosis and fixes in the debugger, without a browser: what the page asks for, and what it is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kvviz
from kvviz.explain.diagnose import explain
from kvviz.view.payload import decode
from kvviz.widget import Debugger

MODELS = Path(__file__).parents[2] / "assets" / "models"


@pytest.fixture(scope="module")
def story() -> kvviz.Trace:
    graph = kvviz.load(MODELS / "o01_optimum_llama" / "model.onnx")
    return kvviz.decode(graph, [5, 17, 33], 3)


@pytest.fixture
def debugger(story: kvviz.Trace) -> Debugger:
    return Debugger(story)


def ask(debugger: Debugger, **message: Any) -> list[dict[str, Any]]:
    """What the debugger sends to the page when the page sends a message."""
    sent: list[dict[str, Any]] = []
    debugger.send = lambda content, buffers=None: sent.append(content)
    debugger._handle_custom_msg(message, [])
    return sent


def with_fix(trace: kvviz.Trace) -> tuple[Any, int]:
    """The first missed entry for which there is a fix, and the place of the blocker that has it."""
    return next((m, i) for m in explain(trace).missed for i, b in enumerate(m.blockers) if b.fix is not None)


def test_a_fix_that_the_page_asks_for_is_shown_beside_what_was_before(debugger: Debugger) -> None:
    # given
    missed, blocker = with_fix(debugger.trace)
    # when
    answers = ask(debugger, do="fix", step=missed.step, blocker=blocker)
    # then
    assert answers == []
    after = debugger.fixed
    assert after is not None and after.tokens == debugger.trace.tokens
    assert debugger.mode == "pair" and debugger.cursor == missed.step
    step = after.steps[debugger.partner]
    assert (step.node, step.run, step.frame) == (missed.node, debugger.trace.steps[missed.step].run, missed.frame)
    assert step.decision.dispatch == "in_place"
    header, _ = decode(debugger.match)
    assert header["back"] and header["labels"] == ["before", f"after: {missed.blockers[blocker].fix.label}"]
    assert [told["steps"] for told in header["totals"]] == [len(debugger.trace.steps), len(after.steps)]
    assert len(decode(debugger.other)[1]["step.node"]) == len(after.steps)


def test_a_fix_of_a_run_that_goes_on_is_compared_over_the_runs_that_both_have_finished(story: kvviz.Trace) -> None:
    # given a debugger that leaves the last token to be run live, some ops into it
    debugger = kvviz.debug(story.graph, prompt=[5, 17, 33], max_new_tokens=4)
    debugger.goto(len(story.steps) + 20)
    fix = next(finding.fix for finding in explain(debugger.trace).caches if finding.fix is not None)
    # when
    after = debugger.apply(fix)
    # then what is told of it is what those three runs come to where they are all that ran
    header, _ = decode(debugger.match)
    before, fixed = header["totals"]
    assert len(story.runs) == 3 and len(after.runs) == 4
    assert [before["copied"], before["allocated"]] == [story.bytes_copied, story.bytes_allocated]
    assert before["peak"] == story.peak_bytes
    assert before["steps"] == fixed["steps"] == len(story.steps)
    assert fixed["copied"] == sum(run.bytes_copied for run in after.runs[:3])
    assert fixed["copied"] < before["copied"] < debugger.trace.bytes_copied
    assert header["note"] == "figures of the 3 runs that both have finished"
    # and once the debugger has run to its end, all is counted
    debugger.mode = "debugger"
    debugger.resume()
    debugger.apply(fix)
    header, _ = decode(debugger.match)
    assert header["note"] == ""
    assert [told["copied"] for told in header["totals"]] == [debugger.trace.bytes_copied, after.bytes_copied]


def test_any_step_at_which_the_op_was_missed_may_be_named(debugger: Debugger) -> None:
    missed, blocker = with_fix(debugger.trace)
    other = next(step for step in missed.steps if step != missed.step)
    debugger.fix(other, blocker)
    assert debugger.cursor == other


def test_the_fix_of_a_cache_finding_is_applied_where_one_stands(debugger: Debugger) -> None:
    # given
    debugger.cursor = 700
    number = next(i for i, finding in enumerate(explain(debugger.trace).caches) if finding.fix is not None)
    # when
    ask(debugger, do="fix", cache=number)
    # then
    assert debugger.fixed is not None
    assert debugger.fixed.bytes_copied < debugger.trace.bytes_copied
    assert debugger.cursor == 700


def test_both_sides_move_together_while_before_and_after_are_shown(debugger: Debugger) -> None:
    # given
    missed, blocker = with_fix(debugger.trace)
    after = debugger.fix(missed.step, blocker)
    # when
    debugger.cursor = 900
    # then
    assert after.steps[debugger.partner].node == debugger.trace.steps[900].node
    # and when the page has gone back, the debugger is alone again
    debugger.set_state({"mode": "debugger"})
    partner = debugger.partner
    debugger.cursor = 3
    assert debugger.partner == partner


@pytest.mark.parametrize(("step", "blocker"), [(0, 0), (10**6, 0), (-1, 0)])
def test_a_step_without_a_fix_is_refused_with_one_sentence(debugger: Debugger, step: int, blocker: int) -> None:
    (answer,) = ask(debugger, do="fix", step=step, blocker=blocker)
    assert "there is no fix" in answer["error"]
    assert debugger.mode == "debugger"


def test_a_trace_from_a_file_tells_its_fixes_but_cannot_apply_them(story: kvviz.Trace, tmp_path: Path) -> None:
    # given
    story.save(tmp_path / "trace")
    debugger = Debugger(kvviz.Trace.load(tmp_path / "trace"))
    missed, blocker = with_fix(debugger.trace)
    # when
    (answer,) = ask(debugger, do="fix", step=missed.step, blocker=blocker)
    # then
    assert answer["error"].count("\n") == 0
    assert debugger.mode == "debugger" and debugger.fixed is None


def test_the_diagnosis_of_a_run_that_goes_on_is_sent_when_it_is_asked_for(story: kvviz.Trace) -> None:
    # given
    debugger = kvviz.debug(story.graph, prompt=[5, 17, 33], max_new_tokens=3, recorded=1)
    assert decode(debugger.payload)[0]["report"] is None
    # when
    (answer,) = ask(debugger, do="report", id=4)
    # then
    found = explain(debugger.trace)
    assert answer["report"]["steps"] == len(debugger.trace.steps)
    assert [told["bytes"] for told in answer["report"]["missed"]] == [m.bytes for m in found.missed]
    # and once it has run to its end, it is part of what the page has
    debugger.resume()
    assert debugger.trace.live is None
    assert decode(debugger.payload, debugger.edge, debugger.latest)[0]["report"]["total"] == len(
        explain(debugger.trace).missed
    )
