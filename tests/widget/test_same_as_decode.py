"""The debugger of a graph that runs step by step shows what the debugger of a finished decode shows."""

from __future__ import annotations

from pathlib import Path

import pytest

import kvviz
from kvviz.explain.sentences import sentence
from kvviz.view.page_data.payload import Payloads

MODELS = Path("assets/models")


@pytest.mark.parametrize(
    ("model", "prompt"), [("storyteller/concat/model.onnx", [1, 77, 108]), ("o01_optimum_llama", [5, 17, 33])]
)
def test_a_live_decode_that_ran_to_its_end_is_the_recorded_one(model: str, prompt: list[int]) -> None:
    graph = kvviz.load(MODELS / model)
    decoded = kvviz.decode(graph, prompt, 3, progress=False)
    live = kvviz.debug(graph, prompt=prompt, max_new_tokens=3)
    # The last token is left to run; up to any step of it, both have the same steps.
    begun = decoded.runs[2].first
    for at in (begun, begun + 2):
        assert len(live.trace.steps) == at
        assert list(live.trace.steps) == decoded.steps[:at]
        live.goto(begun + 1)
    live.cursor = len(decoded.steps) - 1
    assert [sentence(step, live.trace) for step in live.trace.steps] == [sentence(s, decoded) for s in decoded.steps]
    assert kvviz.findings(live.trace) == kvviz.findings(decoded)
    assert Payloads(live.trace).report() == Payloads(decoded).report()
