"""A debugger on a live decode shows what a debugger on the finished recording shows, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kvviz
from kvviz.view.page_data.packed_columns import unpack

MODELS = Path(__file__).parents[2] / "assets" / "models"
CASES: dict[str, tuple[list[int], dict[str, Any]]] = {
    "storyteller/concat": ([1, 77, 108], {}),
    "o01_optimum_llama": ([5, 17, 33], {"kv_capacity": 8}),
}


def records(trace: kvviz.Trace) -> list[Any]:
    return [(step, step.decision) for step in trace.steps]


@pytest.mark.parametrize("name", CASES)
def test_a_live_decode_shows_at_each_step_what_its_recording_shows(name: str) -> None:
    graph = kvviz.load(MODELS / name / "model.onnx")
    prompt, options = CASES[name]
    recorded = kvviz.decode(graph, prompt, 3, progress=False, **options)
    live = kvviz.debug(graph, prompt=prompt, max_new_tokens=3, **options)
    still = kvviz.debug(recorded)

    # both open before the first step, and the last token is left to run
    assert live.cursor == still.cursor == -1
    begun = len(live.trace.steps)
    assert recorded.runs[1].last == begun < len(recorded.steps)
    assert records(live.trace) == records(recorded)[:begun]

    live.goto(begun + 2)
    still.goto(begun + 2)
    assert live.decode_step == still.decode_step == 2
    assert records(live.trace) == records(recorded)[: begun + 3]

    live.goto(len(recorded.steps) - 1)
    live.resume()
    assert [one.title for one in kvviz.findings(live.trace)] == [one.title for one in kvviz.findings(recorded)]
    assert [one.bytes for one in kvviz.findings(live.trace)] == [one.bytes for one in kvviz.findings(recorded)]
    fresh = kvviz.debug(live.trace)
    (ours, our_columns), (theirs, their_columns) = unpack(fresh.payload), unpack(still.payload)
    for part in ("runs", "caches", "story", "graphs"):
        assert ours[part] == theirs[part], part
    assert our_columns.keys() == their_columns.keys()
    for column, values in their_columns.items():
        assert our_columns[column].tolist() == values.tolist(), column


def test_the_findings_at_the_live_edge_are_of_what_has_run_and_grow() -> None:
    graph = kvviz.load(MODELS / "storyteller" / "concat" / "model.onnx")
    debugger = kvviz.debug(graph, prompt=[1, 77, 108], max_new_tokens=3)
    before = next(one for one in kvviz.findings(debugger.trace) if one.kind == "copied")
    debugger.resume()
    after = next(one for one in kvviz.findings(debugger.trace) if one.kind == "copied")
    assert after.bytes == sum(run.bytes_copied for cache in debugger.trace.caches for run in cache.runs) > before.bytes
