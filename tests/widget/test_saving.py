"""The page asks the kernel for the recording as one file."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import kvviz
from kvviz.graph.model import Graph
from kvviz.widget import Debugger
from tests.graph.build import model, node


def two() -> Graph:
    return kvviz.load(model([node("Neg", "x", "y"), node("Neg", "y", "z")], ["x"], ["z"]))


def test_the_kernel_gives_the_file_as_bytes_with_the_diagnosis_in_it() -> None:
    # given
    graph = two()
    debugger = Debugger(kvviz.run(graph, {"x": np.ones(4, np.float32)}))
    sent: list[tuple[Any, Any]] = []
    debugger.send = lambda content, buffers=None: sent.append((content, buffers))
    # when
    debugger._receive(debugger, {"do": "html", "id": "html"}, [])
    # then
    [(content, [page])] = sent
    assert content == {"id": "html", "side": 0}
    assert page.decode() == debugger.to_html()


def test_a_debugger_opens_at_a_step() -> None:
    graph = two()
    trace = kvviz.run(graph, {"x": np.ones(4, np.float32)})
    assert kvviz.debug(trace, step=1).cursor == 1
    assert kvviz.debug(trace, step=-2).cursor == 0
    assert kvviz.debug(trace).cursor == kvviz.debug(trace, step=None).cursor


def test_a_file_opens_at_the_step_where_the_debugger_is() -> None:
    debugger = Debugger(kvviz.run(two(), {"x": np.ones(4, np.float32)}))
    for step in (1, 0, -1):
        debugger.cursor = step
        state = debugger.to_html().split('id="kvviz-state">', 1)[1].split("</script>", 1)[0]
        assert json.loads(state)["cursor"] == step
