"""Two traces with one cursor, without a browser: what moves with what, and what the page is told of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

import kvviz
from kvviz.view.payload import decode
from kvviz.widget import Pair

MODELS = Path(__file__).parents[2] / "assets" / "models"


@pytest.fixture(scope="module")
def story() -> tuple[kvviz.Trace, kvviz.Trace]:
    """The same decode without and with room for its caches; the second one token shorter."""
    graph = kvviz.load(MODELS / "o01_optimum_llama" / "model.onnx")
    return kvviz.decode(graph, [5, 17, 33], 4), kvviz.decode(graph, [5, 17, 33], 3, kv_capacity=8)


@pytest.fixture
def pair(story: tuple[kvviz.Trace, kvviz.Trace]) -> Pair:
    return Pair(*story, labels=("tight", "with room"))


def place(trace: kvviz.Trace, step: int) -> tuple[Any, ...]:
    found = trace.steps[step]
    return found.run, found.frame, found.node


def test_either_cursor_moves_the_other_to_the_same_op_of_the_same_run(pair: Pair) -> None:
    for step in (0, 700, len(pair.after.steps) - 1):
        pair.cursor = step
        assert place(pair.after, pair.partner) == place(pair.before, step)
    pair.partner = 450
    assert place(pair.before, pair.cursor) == place(pair.after, 450)
    pair.cursor = -1
    assert pair.partner == -1


def test_an_op_without_a_partner_leaves_the_other_at_the_nearest_earlier_one(pair: Pair) -> None:
    # given the run that only the first trace has
    extra = pair.before.runs[-1]
    # when
    pair.cursor = extra.first + 10
    # then
    assert pair.partner == len(pair.after.steps) - 1
    assert pair.cursor == extra.first + 10


def test_what_the_page_moved_is_not_moved_again(pair: Pair) -> None:
    # when the page says that a person went to an op that has no partner of its own
    pair.set_state({"cursor": 12, "partner": 40})
    # then
    assert (pair.cursor, pair.partner) == (12, 40)


def test_the_page_is_told_the_steps_of_both_and_the_figures_of_the_runs_that_both_have(pair: Pair) -> None:
    # given the first trace as it would be without the run that only it has
    header, columns = decode(pair.match)
    shorter = kvviz.decode(pair.before.graph, [5, 17, 33], 3)
    # then
    assert header["labels"] == ["tight", "with room"]
    assert header["note"] == "figures of the 3 runs that both have finished"
    assert header["note"] in pair._repr_mimebundle_()[0]["text/html"]
    assert header["first"]["step"] < len(shorter.steps)
    for told, trace in zip(header["totals"], (shorter, pair.after), strict=True):
        assert told["peak"] == trace.peak_bytes
        assert told["copied"] == trace.bytes_copied
        assert told["allocated"] == trace.bytes_allocated
        assert told["steps"] == len(trace.steps)
    there = {place(pair.after, step): step for step in range(len(pair.after.steps))}
    wanted = [there.get(place(pair.before, step), -1) for step in range(len(pair.before.steps))]
    assert columns["to.after"].tolist() == wanted
    back = columns["to.before"]
    assert all(wanted[step] == i for i, step in enumerate(back.tolist()) if step >= 0)
    assert len(decode(pair.payload)[1]["step.node"]) == len(pair.before.steps)
    assert len(decode(pair.other)[1]["step.node"]) == len(pair.after.steps)


def test_the_first_difference_is_the_first_op_that_was_decided_otherwise() -> None:
    # given
    graph = kvviz.load(
        parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 21]> small (float[4] x) => (float[4] y) { a = Exp(x)  y = Relu(a) }'
        )
    )
    inputs = {"x": np.arange(4, dtype=np.float32)}
    # when
    pair = Pair(kvviz.run(graph, inputs, policy="never"), kvviz.run(graph, inputs))
    # then
    first = decode(pair.match)[0]["first"]
    assert (first["step"], first["partner"]) == (1, 1)
    assert "Relu" in first["sentence"]


def test_equal_traces_have_no_first_difference(story: tuple[kvviz.Trace, kvviz.Trace]) -> None:
    assert decode(Pair(story[0], story[0]).match)[0]["first"] is None


def test_a_value_is_looked_up_on_the_side_that_asks(story: tuple[kvviz.Trace, kvviz.Trace]) -> None:
    # given
    pair, sent = Pair(*story), []
    pair.send = lambda content, buffers=None: sent.append(content)
    step = next(s for s in pair.after.steps if s.run == 1 and s.op_type == "Softmax")
    # when
    message = {"do": "value", "id": 3, "side": 1, "step": step.index, "value": step.outputs[0]}
    pair._handle_custom_msg(message, [])
    pair._handle_custom_msg({"do": "next", "id": 4}, [])
    # then
    assert (sent[0]["id"], sent[0]["side"]) == (3, 1)
    assert np.allclose(np.sum(sent[0]["rows"], axis=1), 1, atol=1e-5)
    assert "does not know" in sent[1]["error"]


def test_readers_without_a_kernel_get_the_figures(pair: Pair, tmp_path: Path) -> None:
    bundle, _ = pair._repr_mimebundle_()
    assert "with room" in bundle["text/html"] and "data:image/svg+xml;base64," in bundle["text/html"]
    page = pair.to_html(tmp_path / "pair.html")
    assert (tmp_path / "pair.html").read_text("utf-8") == page
    assert '"mode": "pair"' in page
