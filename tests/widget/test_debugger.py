"""The widget's protocol, without a browser: traits, messages from the page, links between debuggers, still pictures."""

from __future__ import annotations

import base64
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import traitlets
from onnx import parser

import kvviz
from kvviz.errors import KvvizError
from kvviz.graph.model import Graph
from kvviz.view.page_data.payload import decode
from kvviz.widget import Debugger
from tests.graph.build import model, node
from tests.widget.asking import ask

MODELS = Path(__file__).parents[2] / "assets" / "models"


def small() -> Any:
    """Two ops that may run in either order, then one that needs both."""
    return kvviz.load(
        parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 21]> small (float[4] x) => (float[4] y)'
            " { a = Relu(x)  b = Neg(x)  y = Add(a, b) }"
        )
    )


@pytest.fixture
def paused() -> Debugger:
    """A debugger before the first op of a run."""
    return kvviz.debug(small(), {"x": np.arange(4, dtype=np.float32)})


@pytest.fixture(scope="module")
def story() -> kvviz.Trace:
    graph = kvviz.load(MODELS / "o01_optimum_llama" / "model.onnx")
    return kvviz.decode(graph, [5, 17, 33], 3, kv_capacity=8)


def test_a_single_run_opens_before_its_first_op_with_the_frontier_told(paused: Debugger) -> None:
    header, _ = decode(paused.payload)
    names = [header["graphs"][0]["nodes"][entry["node"]][0] for entry in header["live"]["frontier"]]
    assert paused.cursor == -1
    assert names == list(paused.frontier()) == ["a", "b"]


def test_the_frontier_tells_what_each_op_would_allocate_and_free(paused: Debugger) -> None:
    # given
    header, _ = decode(paused.payload)
    told = {header["graphs"][0]["nodes"][e["node"]][0]: e for e in header["live"]["frontier"]}
    # when
    paused.choose("b")
    # then
    step = paused.trace.steps[0]
    assert told["b"]["alloc"] == step.allocated == 16
    assert told["b"]["frees"] == sum(paused.trace.storages[s].capacity for s in step.freed)


def test_stepping_past_the_recorded_end_executes_and_tells_the_page(paused: Debugger) -> None:
    # when
    answers = ask(paused, do="next")
    # then
    assert answers == []
    assert paused.cursor == 0 and len(paused.trace.steps) == 1
    assert decode(paused.payload, paused.edge, paused.latest)[0]["runs"][0]["last"] == 1


def test_choosing_a_frontier_op_in_the_page_runs_that_one(paused: Debugger) -> None:
    # when
    ask(paused, do="choose", frame=0, node=1)
    # then
    assert [step.node for step in paused.trace.steps] == ["b"]
    assert paused.frontier() == ("a",)


def test_a_choice_that_is_not_ready_is_refused_with_one_sentence(paused: Debugger) -> None:
    answers = ask(paused, do="choose", frame=0, node=2)
    assert len(answers) == 1 and "cannot run at step 0: it waits for" in answers[0]["error"]
    assert len(paused.trace.steps) == 0


def test_a_value_that_was_not_recorded_says_so(story: kvviz.Trace, tmp_path: Path) -> None:
    story.save(tmp_path / "trace")
    debugger = Debugger(kvviz.Trace.load(tmp_path / "trace"))
    (answer,) = ask(debugger, do="value", id=1, step=5, value="logits")
    assert "not recorded" in answer["error"]


def test_two_debuggers_with_linked_cursors_move_together(story: kvviz.Trace) -> None:
    # given
    left, right = Debugger(story), Debugger(story)
    traitlets.link((left, "cursor"), (right, "cursor"))
    # when
    left.goto(700)
    right.back()
    # then
    assert left.cursor == right.cursor == 699
    assert left.decode_step == right.decode_step == story.steps[699].run


def test_setting_the_cursor_past_the_end_runs_on(paused: Debugger) -> None:
    paused.cursor = 1
    assert [step.node for step in paused.trace.steps] == ["a", "b"]
    paused.cursor = 99
    assert paused.cursor == 2 and paused.trace.live is None
    assert np.array_equal(paused.trace.outputs["y"], np.zeros(4, np.float32))


def test_breakpoints_of_the_page_stop_the_run(paused: Debugger) -> None:
    paused.breakpoints = [
        {"kind": "op", "value": "Neg", "enabled": False},
        {"kind": "condition", "value": "step.op_type == 'Add'", "enabled": True},
    ]
    ask(paused, do="continue")
    assert paused.trace.steps[paused.cursor].op_type == "Add"


def test_breakpoints_that_cannot_be_used_say_so_and_hold_up_nothing(paused: Debugger) -> None:
    sent: list[Any] = [
        {"kind": "condition", "value": "__import__('os').system('true')", "enabled": True},
        {"kind": "decision", "value": ["maybe"], "enabled": True},
        {"kind": "op"},
        {"value": 3},
        "nonsense",
        {"kind": "buffer", "value": "9" * 5000, "enabled": True},
        {"kind": "op", "value": "Neg", "enabled": True, "error": "not any more"},
    ]
    # when the page sends them, and asks to run on
    paused.set_state({"breakpoints": sent})
    ask(paused, do="continue")
    # then each has its error where it stands, and the good one stops
    errors = [entry.get("error", "") for entry in paused.breakpoints]
    assert "is not understood; write it as a query" in errors[0]
    assert "there is no decision ['maybe']" in errors[1]
    assert all(errors[:-1]) and errors[-1] == ""
    assert max(map(len, errors)) < 300
    # and the page can show every one of them
    assert all(isinstance(e["kind"], str) and isinstance(e["value"], (str, int)) for e in paused.breakpoints)
    assert paused.trace.steps[paused.cursor].op_type == "Neg"


def test_the_page_hears_of_errors_in_what_it_sent(paused: Debugger, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(paused, "send_state", lambda key=None: told.append(key))
    paused.set_state({"breakpoints": [{"kind": "condition", "value": "1 +", "enabled": True}]})
    assert any("breakpoints" in (key or ()) for key in told)


def test_the_cursor_can_be_observed(story: kvviz.Trace) -> None:
    debugger, seen = Debugger(story), []
    debugger.observe(lambda change: seen.append(change["new"]), names="cursor")
    debugger.goto(3)
    debugger.next()
    assert seen == [3, 4]


def test_readers_without_a_kernel_get_pictures(story: kvviz.Trace) -> None:
    bundle, _ = Debugger(story)._repr_mimebundle_()
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert "data:image/svg+xml;base64," in bundle["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_a_decode_is_opened_with_every_option_that_a_decode_takes() -> None:
    graph = kvviz.load(MODELS / "o01_optimum_llama" / "model.onnx")
    names = ["input_ids", "attention_mask"]
    options: dict[str, Any] = {"growth": "after", "donate": names, "kv_capacity": 4}
    whole = kvviz.decode(graph, [7, 70, 21], 6, progress=False, **options)
    # when all but the last run are recorded, with the steps of one of them
    debugger = kvviz.debug(graph, prompt=[7, 70, 21], max_new_tokens=6, detail={2}, **options)
    # then
    trace = debugger.trace
    assert [run.index for run in trace.runs if run.last > run.first] == [0, 2]
    assert [run.bytes_moved_outside for run in trace.runs[:4]] == [run.bytes_moved_outside for run in whole.runs[:4]]
    assert sum(run.bytes_moved_outside for run in trace.runs) > 0
    assert {bound.how for bound in trace.frames[0].bindings if bound.name in names} == {"donated"}
    # and the run that is stepped through live stays
    debugger.resume()
    assert trace.tokens == whole.tokens
    assert [run.index for run in trace.runs if run.last > run.first] == [0, 2, 5]


def test_a_cache_can_be_shared_in_a_debugger_too() -> None:
    graph = kvviz.load(MODELS / "storyteller" / "gqa" / "model.onnx")
    debugger = kvviz.debug(graph, prompt=[1, 5, 9], max_new_tokens=3, cache="shared", recorded=3)
    whole = kvviz.decode(graph, [1, 5, 9], 3, cache="shared", progress=False)
    assert [cache.protocol for cache in debugger.trace.caches] == [cache.protocol for cache in whole.caches]
    assert debugger.trace.bytes_copied == whole.bytes_copied


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"inputs": {"x": np.zeros(4, np.float32)}, "growth": "after"}, "is for a decode; give prompt, too"),
        ({"inputs": {"x": np.zeros(4, np.float32)}, "kv_capacity": 8}, "is for a decode; give prompt, too"),
        ({"prompt": [1], "outputs": ["y"]}, "computes all outputs"),
        ({}, "inputs="),
    ],
)
def test_options_of_the_other_kind_of_run_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(KvvizError, match=why):
        kvviz.debug(small(), **options)


def test_an_interrupt_of_a_long_command_shows_what_ran_and_tells_the_page(paused: Debugger) -> None:
    # given somebody who presses Stop while the first op runs
    session = paused._cursor.session
    assert session is not None
    planned = session.plan.order[0]
    kernel = planned.call

    def stopped(*args: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return kernel(*args)

    planned.call = stopped
    # when the page asks to run on
    sent = ask(paused, do="continue", id=1)
    planned.call = kernel
    # then
    assert sent == [{"id": 1, "side": 0, "error": "stopped from the keyboard; what ran until then is here"}]
    assert [step.node for step in paused.trace.steps] == ["a"] and paused.cursor == 0
    _, columns = decode(paused.payload, paused.edge, paused.latest)
    assert len(columns["step.node"]) == 1
    # and it can be run on
    assert ask(paused, do="continue") == [] and paused.cursor == 2
    np.testing.assert_array_equal(paused.trace.outputs["y"], [0, 0, 0, 0])


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


def test_a_file_opens_with_the_finding_and_the_table_that_are_shown(story: kvviz.Trace) -> None:
    debugger = kvviz.debug(story)
    debugger.place = {"finding": [0, 1], "list": "caches"}
    assert '"place": {"finding": [0, 1], "list": "caches"}' in debugger.to_html()
