"""The widget's protocol, without a browser: traits, messages from the page, links between debuggers, still pictures."""

import base64
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import traitlets

import kvviz
from kvviz.errors import KvvizError
from kvviz.explain.sentences import sentence
from kvviz.view.page_data.payload import Payloads, decode
from kvviz.widget import Debugger
from tests.engine.graphs import graph_of
from tests.test_models import graph_of as model_of
from tests.widget.asking import ask


def small() -> Any:
    """Two ops that may run in either order, then one that needs both."""
    return graph_of("small (float[4] x) => (float[4] y) { a = Relu(x) b = Neg(x) y = Add(a, b) }")


@pytest.fixture
def paused() -> Debugger:
    return kvviz.debug(small(), {"x": np.arange(4, dtype=np.float32)})


@pytest.fixture(scope="module")
def story() -> kvviz.Trace:
    return kvviz.decode(model_of("o01_optimum_llama"), [5, 17, 33], 3, kv_capacity=8)


def test_a_run_opens_before_its_first_op_and_the_page_steps_and_chooses(paused: Debugger) -> None:
    header, _ = decode(paused.payload)
    told = {header["graphs"][0]["nodes"][e["node"]][0]: e for e in header["live"]["frontier"]}
    assert paused.cursor == -1
    assert list(told) == list(paused.frontier()) == ["a", "b"]
    (answer,) = ask(paused, do="choose", frame=0, node=2)
    assert "cannot run at step 0: it waits for" in answer["error"] and len(paused.trace.steps) == 0
    assert ask(paused, do="choose", frame=0, node=1) == []
    step = paused.trace.steps[0]
    assert (step.node, paused.frontier()) == ("b", ("a",))
    assert told["b"]["alloc"] == step.allocated == 16
    assert told["b"]["frees"] == sum(paused.trace.storages[s].capacity for s in step.freed)
    assert ask(paused, do="next") == []
    assert paused.cursor == 1 and [step.node for step in paused.trace.steps] == ["b", "a"]
    assert decode(paused.payload, paused.edge, paused.latest)[0]["runs"][0]["last"] == 2
    paused.cursor = 99
    assert paused.cursor == 2 and paused.trace.live is None
    assert np.array_equal(paused.trace.outputs["y"], np.zeros(4, np.float32))


def test_a_value_that_was_not_recorded_says_so(story: kvviz.Trace, tmp_path: Path) -> None:
    story.save(tmp_path / "trace")
    debugger = Debugger(kvviz.Trace.load(tmp_path / "trace"))
    (answer,) = ask(debugger, do="value", id=1, step=5, value="logits")
    assert "not recorded" in answer["error"]


def test_two_debuggers_with_linked_cursors_move_together(story: kvviz.Trace) -> None:
    left, right = Debugger(story), Debugger(story)
    traitlets.link((left, "cursor"), (right, "cursor"))
    seen: list[int] = []
    right.observe(lambda change: seen.append(change["new"]), names="cursor")
    left.goto(700)
    right.back()
    assert left.cursor == right.cursor == 699 and seen == [700, 699]
    assert left.decode_step == right.decode_step == story.steps[699].run


def test_breakpoints_of_the_page_stop_the_run_and_those_that_cannot_be_used_say_so_and_hold_up_nothing(
    paused: Debugger, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []
    monkeypatch.setattr(paused, "send_state", lambda key=None: heard.append(key))
    sent: list[Any] = [
        {"kind": "condition", "value": "__import__('os').system('true')", "enabled": True},
        {"kind": "decision", "value": ["maybe"], "enabled": True},
        {"kind": "op"},
        {"value": 3},
        "nonsense",
        {"kind": "buffer", "value": "9" * 5000, "enabled": True},
        {"kind": "op", "value": "Relu", "enabled": False},
        {"kind": "condition", "value": "step.op_type == 'Neg'", "enabled": True, "error": "not any more"},
    ]
    paused.set_state({"breakpoints": sent})
    ask(paused, do="continue")
    errors = [entry.get("error", "") for entry in paused.breakpoints]
    assert "is not understood; write it as a query" in errors[0]
    assert "there is no decision ['maybe']" in errors[1]
    assert all(errors[:-2]) and errors[-2:] == ["", ""]
    assert max(map(len, errors)) < 300
    # and the page hears of them, and can show every one
    assert any("breakpoints" in (key or ()) for key in heard)
    assert all(isinstance(e["kind"], str) and isinstance(e["value"], (str, int)) for e in paused.breakpoints)
    assert paused.trace.steps[paused.cursor].op_type == "Neg"


def test_readers_without_a_kernel_get_pictures(story: kvviz.Trace) -> None:
    bundle, _ = Debugger(story)._repr_mimebundle_()
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert "data:image/svg+xml;base64," in bundle["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_a_decode_is_opened_with_every_option_that_a_decode_takes() -> None:
    graph = model_of("o01_optimum_llama")
    names = ["input_ids", "attention_mask"]
    options: dict[str, Any] = {"growth": "after", "donate": names, "kv_capacity": 4}
    whole = kvviz.decode(graph, [7, 70, 21], 6, progress=False, **options)
    debugger = kvviz.debug(graph, prompt=[7, 70, 21], max_new_tokens=6, detail={2}, **options)
    trace = debugger.trace
    assert [run.index for run in trace.runs if run.last > run.first] == [0, 2]
    assert [run.bytes_moved_outside for run in trace.runs[:4]] == [run.bytes_moved_outside for run in whole.runs[:4]]
    assert sum(run.bytes_moved_outside for run in trace.runs) > 0
    assert {bound.how for bound in trace.frames[0].bindings if bound.name in names} == {"donated"}
    debugger.resume()
    assert trace.tokens == whole.tokens
    assert [run.index for run in trace.runs if run.last > run.first] == [0, 2, 5]
    graph = model_of("storyteller/gqa")
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
    sent = ask(paused, do="continue", id=1)
    planned.call = kernel
    assert sent == [{"id": 1, "side": 0, "error": "stopped from the keyboard; what ran until then is here"}]
    assert [step.node for step in paused.trace.steps] == ["a"] and paused.cursor == 0
    _, columns = decode(paused.payload, paused.edge, paused.latest)
    assert len(columns["step.node"]) == 1
    assert ask(paused, do="continue") == [] and paused.cursor == 2
    np.testing.assert_array_equal(paused.trace.outputs["y"], [0, 0, 0, 0])


def test_a_debugger_and_its_file_open_where_they_are_asked_to() -> None:
    trace = kvviz.run(small(), {"x": np.ones(4, np.float32)})
    assert [kvviz.debug(trace, step=step).cursor for step in (1, -2)] == [1, 1]
    assert kvviz.debug(trace).cursor == kvviz.debug(trace, step=None).cursor
    debugger = Debugger(trace)
    for step in (1, 0, -1):
        debugger.cursor = step
        state = debugger.to_html().split('id="kvviz-state">', 1)[1].split("</script>", 1)[0]
        assert json.loads(state)["cursor"] == step
    debugger.place = {"finding": [0, 1], "list": "caches"}
    assert '"place": {"finding": [0, 1], "list": "caches"}' in debugger.to_html()
    # as bytes, where the page asks the kernel for it
    sent: list[tuple[Any, Any]] = []
    debugger.send = lambda content, buffers=None: sent.append((content, buffers))
    debugger._receive(debugger, {"do": "html", "id": "html"}, [])
    [(content, [page])] = sent
    assert content == {"id": "html", "side": 0}
    assert page.decode() == debugger.to_html()


@pytest.mark.parametrize("model", ["storyteller/concat", "o01_optimum_llama"])
def test_a_live_decode_that_ran_to_its_end_is_the_recorded_one(model: str) -> None:
    decoded = kvviz.decode(model_of(model), [5, 17, 33], 3, progress=False)
    live = kvviz.debug(model_of(model), prompt=[5, 17, 33], max_new_tokens=3)
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
