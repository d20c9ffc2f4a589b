"""Dispatch and identity are two facts: what was called in place and took other memory is not in place, for anybody."""

import json
from pathlib import Path

import numpy as np
import pytest

import kvviz
from kvviz.debugger import Breakpoint
from kvviz.debugger.state import node_states
from kvviz.explain.sentences import ended, sentence
from kvviz.report.faces.report_data import report_data
from kvviz.trace.outcome import OUTCOMES, endings, outcome
from kvviz.trace.records import Step
from kvviz.view.page_data.payload import decode as unpacked
from kvviz.view.page_data.payload import payload
from tests.engine.graphs import graph_of

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"
CONCAT = (
    "agraph (float[1,p,8] past, float[1,1,8] new) => (float[1,q,8] present) {present = Concat <axis = 1> (past, new)}"
)


def appended(capacity: int | None = None) -> kvviz.Trace:
    past = np.ones((1, 5, 8), np.float32)
    inputs = {"past": kvviz.reserve(past, 1, capacity) if capacity else past, "new": np.ones((1, 1, 8), np.float32)}
    return kvviz.run(graph_of(CONCAT), inputs, donate=["past"], policy="rten")


@pytest.fixture(scope="module")
def llama() -> kvviz.Trace:
    graph = kvviz.load(MODELS / "o01_optimum_llama" / "model.onnx")
    return kvviz.decode(graph, [5, 17, 33], 6, policy="rten", progress=False)


def lies_in_an_input(step: Step) -> bool:
    return any(out.how in ("in place", "append") for out in step.outs) or bool(step.decision.shares)


def test_a_donated_concat_without_room_is_called_in_place_and_is_not_in_place() -> None:
    # given a past that is donated and has no room, and a runtime that calls Concat in place for its owner's sake
    trace = appended()
    step = trace.steps[0]
    # then it was called in place, and copied all of the past
    assert (step.decision.dispatch, step.decision.taken, step.decision.shares) == ("in_place", ("past",), {})
    assert (step.allocated, step.copied) == (192, 160)
    # and everybody says so
    assert step.outcome == "elsewhere"
    assert ended(step) == "called in place, copied 160 B: no room to grow"
    assert "was called in place with past" in sentence(step, trace) and "no room to grow" in sentence(step, trace)
    assert not trace.find("in_place") and not trace.find("in place")
    assert trace.find("elsewhere").numbers == trace.find("called in place").numbers == (0,)
    assert "| decision | called in place, copied 160 B: no room to grow |" in trace.to_markdown(0)
    found = kvviz.explain(trace)
    assert (found.counts.in_place, found.counts.elsewhere, found.counts.elsewhere_copied) == (0, 1, 160)
    assert "0 in place" in str(found) and "1 called in place wrote elsewhere, copied 160 B" in str(found)
    header, columns = unpacked(payload(trace))
    assert "called in place, copied 160 B: no room to grow" in json.dumps(header["strings"])
    assert not columns["step.flags"][0] >> header["codes"]["flag"].index("in_place") & 1
    assert columns["step.flags"][0] >> header["codes"]["flag"].index("elsewhere") & 1
    # with room the same Concat is in place
    step = appended(8).steps[0]
    assert (step.outcome, ended(step)) == ("in_place", "in place: appended")
    assert (step.allocated, step.copied) == (0, 0)


def test_of_a_decode_under_rten_in_place_are_the_ops_whose_output_lies_in_an_input(llama: kvviz.Trace) -> None:
    called = [step for step in llama.steps if step.decision.dispatch == "in_place"]
    elsewhere = [step for step in called if not lies_in_an_input(step)]
    assert len(called) > len(elsewhere) > 100
    assert all(out.how in ("new", "pool") for step in elsewhere for out in step.outs)
    in_place = [step.index for step in called if lies_in_an_input(step)]
    assert list(llama.find("in_place").numbers) == in_place
    assert list(llama.find("elsewhere").numbers) == [step.index for step in elsewhere]
    counts = report_data(kvviz.explain(llama))["in_place"]
    assert (counts["in_place"], counts["elsewhere"]) == (len(in_place), len(elsewhere))
    assert counts["elsewhere_copied"] == sum(step.copied for step in elsewhere)


def test_every_step_has_one_outcome_which_all_of_its_faces_show(llama: kvviz.Trace) -> None:
    for step in llama.steps[:: len(llama.steps) // 200]:
        found = endings(llama, llama.log[step.index])
        assert step.outcome == outcome(llama, llama.log[step.index]) == next(e for e in OUTCOMES if e in found)
        assert llama.find(f"step:{step.index} is:{step.outcome}").numbers == (step.index,)
        after = step.index + 1
        if after < len(llama.steps) and llama.steps[after].frame_id == step.frame_id:
            nodes = llama.frames[step.frame_id].graph.nodes
            shown = dict(zip((node.name for node in nodes), node_states(llama, after)))[step.node]
            assert shown == ("done" if step.outcome == "new" else step.outcome)


def test_a_breakpoint_and_a_condition_stop_where_a_call_in_place_took_other_memory(llama: kvviz.Trace) -> None:
    first = llama.find("elsewhere").numbers[0]
    for kind, value in (("decision", "elsewhere"), ("condition", "outcome == 'elsewhere'"), ("query", "is:elsewhere")):
        point = Breakpoint(kind, value)
        assert next(i for i in range(len(llama.steps)) if point.matches(llama, i)) == first
