"""The findings as the page reads them: words and numbers are those of `kvviz.findings`."""

from typing import Any

import pytest

import kvviz
from kvviz.trace.outcome import spent
from kvviz.view.page_data import payload
from kvviz.view.page_data.payload_report import spans


def series(sent: list[int]) -> list[int]:
    """Numbers from arithmetic series, as the page reads them."""
    return [sent[i] + k * sent[i + 1] for i in range(0, len(sent), 3) for k in range(sent[i + 2])]


def steps_of(trace: kvviz.Trace, one: dict[str, Any]) -> list[int]:
    """The places of a finding's steps in the order in which the page walks through them."""
    if "at" in one:
        return series(one["at"])
    places = sorted(place for part in one["parts"] for place in series(part.get("at", [])))
    return sorted(places, key=lambda place: -spent(trace.log[place]))


@pytest.mark.parametrize("numbers", [[], [4], [4, 9], [4, 9, 14, 15], [9, 4, 4], [*range(9), *range(90, 0, -7)]])
def test_numbers_are_sent_as_few_arithmetic_series(numbers: list[int]) -> None:
    assert series(spans(numbers)) == numbers and len(spans(numbers)) <= 6


@pytest.mark.parametrize("name", ["decoded", "copying", "branching"])
def test_a_file_has_the_findings_with_their_steps_and_cures(name: str, request: pytest.FixtureRequest) -> None:
    trace: kvviz.Trace = request.getfixturevalue(name)
    head, _ = payload.decode(payload.payload(trace))
    sent = head["report"]["findings"]
    found = kvviz.findings(trace)
    assert len(sent) == len(found) > 1
    for there, one in zip(sent, found):
        if one.kind in ("miss", "copied", "peak"):
            assert sum(part.bytes for part in one.parts) == one.bytes
        about = there.get("selection")
        if about is not None and about["kind"] == "node":
            assert one.selection == ("node", head["graphs"][about["graph"]]["nodes"][about["id"]][0])
        for field in ("kind", "title", "bytes", "where", "scope", "calm", "example", "step"):
            assert there[field] == getattr(one, field)
        assert there["times"] == one.steps and there["reasons"] == list(one.reasons)
        assert steps_of(trace, there) == list(one.at)
        assert [(part["name"], part["bytes"], part["where"]) for part in there.get("parts", [])] == [
            (part.name, part.bytes, part.where) for part in one.parts
        ]
        cure = there.get("cure")
        assert (cure and (cure["code"], cure["change"], cure["peak"])) == (
            one.fix and (one.fix.code, one.change, one.peak)
        )


def test_steps_are_numbered_as_in_a_payload_that_leaves_runs_out(decoded: kvviz.Trace) -> None:
    last = decoded.runs[-1]
    kept = range(last.first, last.last)
    header = payload.decode(payload.payload(decoded, detail={last.index}))[0]["report"]
    assert header["steps"] == len(kept)
    for there, one in zip(header["findings"], kvviz.findings(decoded)):
        places = series(there["at"]) if "at" in there else steps_of(decoded, there)
        assert sorted(place + last.first for place in places) == sorted(step for step in one.at if step in kept)
        for part in (part for part in there.get("parts", []) if "op" in part):
            assert {decoded.steps[place + last.first].op_type for place in series(part["at"])} <= {part["op"]}
        assert there["times"] == len(one.at), "also of steps that are not sent"
        assert there["step"] == one.step, "the number by which it is known"


def test_the_words_of_a_policys_planner_are_sent_with_the_step(copying: kvviz.Trace) -> None:
    op = copying.log[10].op
    op.note = "kReuse of x (MayInplace)"
    head, columns = payload.decode(payload.payload(copying))
    op.note = ""
    notes = [head["strings"][i] for i in columns["step.note"]]
    assert notes[10] == "kReuse of x (MayInplace)"
    assert [note for i, note in enumerate(notes) if copying.log[i].op is not op and note] == []
