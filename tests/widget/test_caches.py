"""Caches and long recordings in the debugger, without a browser: what the page asks for, and what it is told."""

import numpy as np
import pytest

import kvviz
from kvviz.caches.cache_heat import attention
from kvviz.view.page_data import payload_runs
from kvviz.view.page_data.packed_columns import unpack
from kvviz.view.page_data.payload import decode
from kvviz.view.page_data.payload_cache_rows import cache_payload
from kvviz.view.page_data.payload_lanes import unpack_lanes
from kvviz.widget import Debugger
from tests.decode import small
from tests.test_models import graph_of
from tests.widget.asking import ask


@pytest.fixture(scope="module")
def story() -> kvviz.Trace:
    return kvviz.decode(graph_of("o01_optimum_llama"), [5, 17, 33], 8, kv_capacity=16, progress=False)


@pytest.fixture
def long(story: kvviz.Trace, monkeypatch: pytest.MonkeyPatch) -> Debugger:
    """A debugger whose page cannot have all steps."""
    monkeypatch.setattr(payload_runs, "BUDGET", 2 * story.runs[0].last)
    return Debugger(story)


def told_runs(debugger: Debugger) -> list[int]:
    header, _ = decode(debugger.payload, debugger.edge, debugger.latest)
    return [i for i, run in enumerate(header["runs"]) if run["last"] > run["first"]]


def test_a_page_has_the_rows_of_its_caches_and_they_are_sent_again_when_a_run_ends() -> None:
    debugger = kvviz.debug(graph_of("o01_optimum_llama"), prompt=[5, 17, 33], max_new_tokens=4, recorded=1)
    before = debugger.cache_data
    assert before == cache_payload(debugger.trace)
    assert {"modules", "cache_data"} <= set(debugger.get_state()), "a saved notebook has them"
    debugger.goto(len(debugger.trace.steps) + 3)
    assert debugger.cache_data == before
    debugger.goto(len(debugger.trace.steps) + 450)
    header, columns = unpack(debugger.cache_data)
    assert len(header["runs"]) == len(debugger.trace.runs) >= 3
    assert columns["meter.valid"].reshape(len(debugger.trace.caches), -1)[0, 1] == 4


def test_what_attention_weighed_is_told_by_query_head() -> None:
    trace = kvviz.decode(kvviz.load(small.concat().proto), [1, 2, 3, 4], 5, progress=False)
    debugger = Debugger(trace)
    for run, query in ((0, 0), (0, -1), (3, -1)):
        (answer,) = ask(debugger, do="attention", id="attention:0:0:0", cache=0, run=run, query=query)
        told = np.array(answer["attention"]["heads"])
        weights = attention(trace, trace.caches[0], run, query)
        assert weights is not None
        assert np.allclose(told, weights[:, : told.shape[1]], atol=1e-5)
        assert not weights[:, told.shape[1] :].any()
        assert answer["id"] == "attention:0:0:0"
    fused = Debugger(kvviz.decode(kvviz.load(small.attention().proto), [1, 2, 3], 5, progress=False))
    (answer,) = ask(fused, do="attention", id=3, cache=0, run=1, query=-1)
    assert "does not show what attention weighed" in answer["error"]


def test_the_steps_of_a_run_come_when_they_are_asked_for(long: Debugger) -> None:
    before = told_runs(long)
    assert before == [0, 7]
    assert ask(long, do="detail", run=4) == []
    assert told_runs(long) == [0, 4, 7]
    header, columns = decode(long.payload)
    run = long.trace.runs[4]
    names = [header["graphs"][0]["nodes"][n][0] for n in columns["step.node"][header["runs"][4]["first"] :]]
    assert names[:50] == [step.node for step in long.trace.steps[run.first : run.first + 50]]
    # a cursor that Python moves has them too, one that the page moves asks for nothing by itself
    long.cursor = long.trace.runs[3].first + 9
    assert long.decode_step == 3 and told_runs(long) == [0, 3, 4, 7]
    long.set_state({"cursor": long.trace.runs[5].last - 1, "decode_step": 5})
    assert long.decode_step == 5 and told_runs(long) == [0, 3, 4, 7]


def test_a_run_without_steps_keeps_its_number_while_the_cursor_stands_before_it(
    story: kvviz.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(story.runs[3], "last", story.runs[3].first)
    debugger = Debugger(story)
    debugger.set_state({"cursor": story.runs[3].first - 1, "decode_step": 3})
    assert (debugger.cursor, debugger.decode_step) == (story.runs[3].first - 1, 3)
    (answer,) = ask(debugger, do="detail", id=1, run=3)
    assert "steps of decode 3 were not recorded" in answer["error"]


def test_a_long_trace_is_not_diagnosed_before_somebody_wants_to_know(long: Debugger) -> None:
    assert decode(long.payload)[0]["report"] is None
    (answer,) = ask(long, do="report")
    assert answer["report"]["steps"] == len(decode(long.payload)[1]["step.node"])
    ask(long, do="detail", run=2)
    titles = [
        [one["title"] for one in sent["findings"]] for sent in (decode(long.payload)[0]["report"], answer["report"])
    ]
    assert titles[0] and titles[0] == titles[1]
    number = next(i for i, one in enumerate(answer["report"]["findings"]) if one.get("cure"))
    ask(long, do="fix", finding=number)
    heads = [decode(payload)[0] for payload in (long.payload, unpack_lanes(long.branches)["0"])]
    runs = [[i for i, run in enumerate(head["runs"]) if run["last"] > run["first"]] for head in heads]
    assert runs[0] == runs[1] == [0, 2, 7]
