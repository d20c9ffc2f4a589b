"""The diagnosis as the page reads it: numbers and texts are the report's, nodes and steps are those of the payload."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import kvviz
from kvviz.trace.blockers import Blocker, BlockerCode
from kvviz.view.page_data import payload
from kvviz.view.page_data.payload import Payloads
from kvviz.view.page_data.payload_graphs import GraphTable, add_tables
from kvviz.view.page_data.payload_report import MOST, report_header


def tables_of(trace: kvviz.Trace) -> dict[int, GraphTable]:
    tables: dict[int, GraphTable] = {}
    add_tables(tables, trace.frames)
    return tables


def entry(trace: kvviz.Trace, step: int, *blockers: Blocker) -> SimpleNamespace:
    found = trace.steps[step]
    return SimpleNamespace(node=found.node, frame=found.frame, step=step, steps=(step,), bytes=64, blockers=blockers)


def report_of(trace: kvviz.Trace, *missed: SimpleNamespace) -> SimpleNamespace:
    """A report of one's own making, with one storage held too long and a peak of three parts."""
    parts = [
        SimpleNamespace(group="activations", name="h", bytes=300),
        SimpleNamespace(group="weights", name="w", bytes=500),
        SimpleNamespace(group="activations", name="g", bytes=400),
    ]
    held = SimpleNamespace(storage=3, name="h", bytes=300, last_use=2, freed=None, reason="A view keeps it.")
    peak = SimpleNamespace(bytes=1200, step=4, parts=parts)
    return SimpleNamespace(
        missed=missed,
        held_too_long=(held,),
        caches=(SimpleNamespace(sentence="B1 was thrown away", fix=None),),
        peak=peak,
        groups=(),
        verdict=(),
    )


def blocker(code: BlockerCode, input: str, fix: Any = None) -> Blocker:
    return Blocker(code, input, 0, "Add_1", f"{input} is still read", 64, fix)


def test_reasons_of_one_input_share_the_fix_that_removes_them_all(decoded: kvviz.Trace) -> None:
    # given two reasons against x with one fix, and one against y that nothing removes
    fix = SimpleNamespace(label="donate x", sentence="Then it may be overwritten.", code='run(donate=["x"])', saves=64)
    reasons = (
        blocker(BlockerCode.NOT_LAST_USE, "x", fix),
        blocker(BlockerCode.BORROWED_INPUT, "x", fix),
        blocker(BlockerCode.CONSTANT, "y"),
    )
    # when
    header = report_header(
        report_of(decoded, entry(decoded, 5, *reasons)), decoded, tables_of(decoded), range(len(decoded.steps))
    )
    # then
    (told,) = header["missed"]
    assert [(r["code"], r["value"], r["fix"]) for r in told["reasons"]] == [
        ("NOT_LAST_USE", "x", 0),
        ("BORROWED_INPUT", "x", 0),
        ("CONSTANT", "y", -1),
    ]
    assert told["fixes"] == [{"label": fix.label, "sentence": fix.sentence, "code": fix.code, "saves": 64}]
    assert (told["bytes"], told["step"]) == (64, 5)


def test_a_missed_node_has_the_numbers_that_the_payload_gives_it(branching: kvviz.Trace) -> None:
    # given steps in the body of an If, too
    missed = [entry(branching, step) for step in range(0, len(branching.steps), 7)]
    header = report_header(report_of(branching, *missed), branching, tables_of(branching), range(len(branching.steps)))
    head, _ = payload.decode(payload.payload(branching))
    # then
    names = [head["graphs"][told["graph"]]["nodes"][told["node"]][0] for told in header["missed"]]
    assert names == [m.node for m in missed]
    assert len({told["graph"] for told in header["missed"]}) > 1


def test_only_the_first_entries_are_told_and_the_next_on_demand(decoded: kvviz.Trace) -> None:
    missed = [entry(decoded, step) for step in range(MOST + 50)]
    report, tables, kept = report_of(decoded, *missed), tables_of(decoded), range(len(decoded.steps))
    first, more = (report_header(report, decoded, tables, kept, start) for start in (0, MOST))
    assert [told["step"] for told in first["missed"]] == list(range(MOST))
    assert [told["step"] for told in more["missed"]] == list(range(MOST, MOST + 50))
    assert first["total"] == more["total"] == MOST + 50


def test_parts_of_the_peak_are_told_by_group_and_sum_to_it(decoded: kvviz.Trace) -> None:
    header = report_header(report_of(decoded), decoded, tables_of(decoded), range(len(decoded.steps)))
    groups = header["peak"]["groups"]
    assert [(g["group"], g["bytes"], g["count"], g["names"]) for g in groups] == [
        ("activations", 700, 2, ["g", "h"]),
        ("weights", 500, 1, ["w"]),
    ]
    assert sum(g["bytes"] for g in groups) == header["peak"]["bytes"]
    assert header["held"][0]["freed"] == -1 and header["caches"] == [{"text": "B1 was thrown away", "fix": None}]


def test_steps_are_numbered_as_in_a_payload_that_leaves_runs_out(decoded: kvviz.Trace) -> None:
    # given a payload with the last run only
    last = decoded.runs[-1]
    kept = range(last.first, last.last)
    again = SimpleNamespace(**{**vars(entry(decoded, last.first + 3)), "steps": (3, last.first + 3)})
    # when
    header = report_header(report_of(decoded, again), decoded, tables_of(decoded), kept)
    # then
    assert header["missed"][0]["step"] == last.first + 3, "the number by which it is known"
    assert header["missed"][0]["steps"] == [3], "its place in the payload"
    assert header["missed"][0]["times"] == 2, "also where it is not told"
    assert header["steps"] == len(kept)


def test_a_trace_that_goes_on_is_diagnosed_only_when_it_is_asked_for(halfway: kvviz.Trace) -> None:
    payloads = Payloads(halfway)
    assert payload.decode(payloads.encode())[0]["report"] is None
    told = payloads.report()
    assert told["steps"] == len(halfway.steps)
    assert told["total"] == len(told["missed"]) > 0


def test_a_finished_trace_carries_its_diagnosis(copying: kvviz.Trace) -> None:
    report = payload.decode(payload.payload(copying))[0]["report"]
    payloads = Payloads(copying)
    sizes = [m.bytes for m in payloads.diagnosis().missed]
    assert [told["bytes"] for told in report["missed"]] == sizes[:MOST]
    assert sum(group["bytes"] for group in report["peak"]["groups"]) == copying.peak_bytes


def test_the_words_of_a_policys_planner_are_told_with_the_step(copying: kvviz.Trace) -> None:
    # given
    op = copying.log[10].op
    op.note = "kReuse of x (MayInplace)"
    # when
    head, columns = payload.decode(payload.payload(copying))
    op.note = ""
    # then
    told = [head["strings"][i] for i in columns["step.note"]]
    assert told[10] == "kReuse of x (MayInplace)"
    assert [note for i, note in enumerate(told) if copying.log[i].op is not op and note] == []
