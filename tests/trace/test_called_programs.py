"""A program that was recorded on its own, as an op of a trace that calls it; what happens to values beside the ops."""

import io
import json
from typing import Any

import pytest

import kvviz
from kvviz.device.submit_outcome import call
from kvviz.errors import LoadError
from kvviz.trace.schema.declared import Mark
from kvviz.trace.writer import Writer
from tests.engine.graphs import graph_of, numbers
from tests.engine.test_damaged_traces import file_of, rewritten
from tests.outside.told import loaded

PROGRAM = "g (float[4] x, float[4] w) => (float[4] y) { s = Add (x, w) y = Neg (s) }"


def recording() -> tuple[Writer, kvviz.Trace, list[int]]:
    """One program, called twice: what it gave is what it is given."""
    writer, graph = Writer("twice", "caller"), graph_of(PROGRAM)
    x = writer.value("x", (4,), "float32", writer.storage(16, origin="caller"))
    w = writer.value("weights", (4,), "float32", writer.storage(16, origin="caller"))
    made = []
    for _ in range(2):
        writer.begin_run()
        body = kvviz.run(graph, {"x": numbers(4), "w": numbers(4)})
        (out,) = body.steps[-1].outs
        y = writer.value("y", (4,), "float32", writer.storage(16))
        given = {bind.name: bind.storage for bind in body.frames[0].bindings}
        places = {given["x"]: x, given["w"]: w, out.storage: y}
        storages, times = {at: writer.storage_of(value) for at, value in places.items()}, [(0.0, 1.0), (1.0, 2.0)]
        made.append(call(writer, "call", body, {"x": x, "w": w}, {"y": y}, storages, lane="q", times=times))
        x = y
    return writer, writer.finish([x]), made


def test_the_ops_of_a_program_come_before_the_op_that_called_it_in_a_frame_of_its_own() -> None:
    _, trace, made = recording()
    body = ("g[program]",)
    assert [(step.op_type, step.frame) for step in trace.steps[:3]] == [("Add", body), ("Neg", body), ("call", ())]
    assert made == [2, 5] and [run.first for run in trace.runs] == [0, 3]
    assert trace.frames[1].graph is trace.frames[3].graph  # one program, told once
    assert [trace.log.declared.times[step] for step in range(3)] == [("q", 0, 1), ("q", 1, 2), ("q", 0, 2)]
    # what a program left is what the next call begins with
    first, second = (step.outs[0] for step in trace.steps if step.op_type == "call")
    assert first.how == "passed"
    bound = {bind.name: bind for bind in trace.frames[3].bindings}
    assert (bound["x"].storage, bound["x"].how) == (first.storage, "captured by reference")
    assert bound["w"].storage == next(b.storage for b in trace.frames[1].bindings if b.name == "w")
    assert second.storage != first.storage
    # Both inputs and the sum, in whose place the result is; then its successor, while nobody has freed the first one.
    assert [step.live_bytes for step in trace.steps] == [48, 48, 48, 64, 64, 64]
    for step in trace.steps:
        alive = [s for s in trace.storages if s.born <= step.index and (s.freed is None or s.freed >= step.index)]
        assert sum(s.capacity for s in alive) == step.live_bytes
    # and from a file it is one program again
    again = loaded(trace)
    assert repr(again.table()) == repr(trace.table()) and again.storages == trace.storages
    assert again.frames[1].graph is again.frames[3].graph
    assert again.log.declared == trace.log.declared


def test_a_trace_that_was_finished_is_not_changed_by_what_is_written_later() -> None:
    writer, trace, _ = recording()
    before, version = repr(trace.table()), writer.version
    more = writer.value("more", (4,), "float32")
    writer.op("NEW", [], [more])
    assert writer.version != version and repr(trace.table()) == before
    assert len(writer.finish([more]).steps) == len(trace.steps) + 1


def test_marks_go_into_the_file_with_the_time_the_line_and_the_sentence() -> None:
    writer, *_ = recording()
    value = writer.value("kept", (4,), "float32")
    writer.op("NEW", [], [value])
    writer.mark("retain", value, text="it stays", line="cell:3", time=7.5, nbytes=16, holder=4, counts=(1, 2))
    writer.mark("note", text="about nothing")
    trace = writer.finish()
    step = len(trace.steps) - 1
    expected = [Mark(step, 7.5, "retain", "kept", writer.storage_of(value), 4, (1, 2), 16, "it stays", "cell:3")]
    expected.append(Mark(step, 0.0, "note", "", -1, -1, (), 0, "about nothing", ""))
    assert trace.log.declared.marks == expected == loaded(trace).log.declared.marks


def test_a_value_that_is_asked_for_late_was_there_from_the_beginning_of_its_run() -> None:
    writer = Writer("late")
    first, late = (writer.value(name, (4,), "float32", writer.storage(16, origin="caller")) for name in "ab")
    one, two = writer.value("c", (4,), "float32"), writer.value("d", (4,), "float32")
    writer.op("NEG", [first], [one])
    writer.op("NEG", [late], [two])
    trace = writer.finish([two])
    assert [step.live_bytes for step in trace.steps] == [48, 64] and trace.peak_bytes == 64
    report = kvviz.explain(trace)
    assert sum(part.bytes for part in report.peak.parts) == report.peak.bytes == 64


@pytest.mark.parametrize(("mark", "why"), [
    ([99, 0, "x", "", -1, -1, [], 0, "", ""], "an op that does not exist"),
    ([0, 0, "x", "", 99, -1, [], 0, "", ""], "a storage that does not exist"),
    ([0, "soon", "x", "", -1, -1, [], 0, "", ""], "soon"),
])  # fmt: skip
def test_a_mark_that_makes_no_sense_is_refused(mark: Any, why: str) -> None:
    def with_mark(header: bytes) -> bytes:
        told = json.loads(header)
        told["declared"]["marks"].append(mark)
        return json.dumps(told).encode()

    with pytest.raises(LoadError, match=why):
        kvviz.Trace.load(io.BytesIO(rewritten(file_of(recording()[1]), "header.json", with_mark)))
