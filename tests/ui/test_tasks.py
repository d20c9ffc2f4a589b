"""Questions that people ask a recording, each counted in clicks; those that need a kernel are in `test_lanes`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

import kvviz
from kvviz.smollm2 import convert
from tests.decode.small import small
from tests.engine.graphs import graph_of
from tests.smollm2.tiny import Tiny, write_tiny
from tests.ui.conftest import Show
from tests.ui.filepage import Hand

START = 2000  # the step that the file of six layers is opened at
TURNS = 20
BUFFER = 1112
# Takes 1 away in every turn but the first, so that the root of what is left is not a number.
LOOP = """turns (float[4] x, int64 n, float[1] less) => (float[4] y) {
    last = Loop (n, , x) <body = turn (int64 i, bool go, float[4] a) => (bool on, float[4] c) {
        on = Identity (go)
        later = Cast <to = 9> (i)
        c = If (later) <then_branch = shrink () => (float[4] b) { b = Sub (a, less) },
                        else_branch = begin () => (float[4] d) { d = Abs (a) }> }>
    y = Sqrt (last) }"""


def layers(folder: Path) -> kvviz.Trace:
    """SmolLM2's graph with six layers and small weights."""
    convert(folder, "concat", write_tiny(folder / "tiny.gguf", Tiny(layers=6)))
    return kvviz.decode(kvviz.load(folder / "model.onnx"), [5, 6, 7, 8, 9, 10], 8, progress=False)


def turns(_: Path) -> kvviz.Trace:
    inputs = {"x": np.full(4, 2.0, np.float32), "n": np.int64(TURNS), "less": np.ones(1, np.float32)}
    return kvviz.run(graph_of(LOOP), inputs)


def policies(_: Path) -> kvviz.Comparison:
    return kvviz.compare(kvviz.load(small("concat").proto), prompt=[5, 7, 3], max_new_tokens=3)


# Each recording with the place that its file is opened at.
RECORDINGS: dict[str, tuple[Callable[[Path], kvviz.Trace | kvviz.Comparison], str]] = {
    "layers": (layers, f"#step={START}"),
    "turns": (turns, ""),
    "policies": (policies, ""),
}
Task = Callable[[Hand, Any], None]
# By recording, what is asked of it and how many clicks that takes.
TASKS: dict[str, list[tuple[int, Task]]] = {name: [] for name in RECORDINGS}


def asked(of: str, clicks: int) -> Callable[[Task], Task]:
    def listed(task: Task) -> Task:
        TASKS[of].append((clicks, task))
        return task

    return listed


@asked("layers", clicks=1)
def why_an_op_of_layer_3_is_not_in_place(hand: Hand, trace: kvviz.Trace) -> None:
    query = "layer:3 is:missed sort:-missed"
    hand.ask(query)
    worst = int(trace.find(query).numbers[0])
    hand.expect_step(worst)
    reasons = trace.steps[worst].decision.blockers
    expect(hand.kv("blocker")).to_have_count(len(reasons))
    for shown, reason in zip(hand.kv("blocker").all(), reasons):
        expect(shown).to_have_attribute("data-id", reason.code)


@asked("layers", clicks=1)
def the_cache_row_written_at_token_5(hand: Hand, trace: kvviz.Trace) -> None:
    hand.ask("token:5 op:Concat cache:0.key")
    cache = trace.caches[0]
    before, after = (cache.runs[run].valid for run in (4, 5))
    rows = hand.kv("cache-rows")
    expect(rows).to_contain_text(f"{after:,} valid")
    expect(rows).to_contain_text(f"{after - before} written")
    assert trace.runs[5].first <= hand.step < trace.runs[5].last


@asked("layers", clicks=1)
def on_to_a_concat_that_copies_past_rows(hand: Hand, trace: kvviz.Trace) -> None:
    query = "op:Concat cache:* copied>0"
    hand.ask(query)
    found = int(next(n for n in trace.find(query).numbers if n > START))
    hand.expect_step(found)
    assert {out.name for out in trace.steps[found].outs} <= {cache.output for cache in trace.caches}
    # Concats of the rotary embedding copy, too, but no past rows
    assert any(step.op_type == "Concat" and step.copied for step in trace.steps[START:found])


@asked("layers", clicks=2)
def the_longest_lived_buffer(hand: Hand, trace: kvviz.Trace) -> None:
    hand.click(hand.kv("open-map"))
    hand.click(hand.kv("map-row").first)
    ages = [one.freed - one.born for one in trace.storages if one.origin == "run" and one.freed is not None]
    expect(hand.inspector).to_contain_text(f"lives{max(ages):,} steps")


@asked("layers", clicks=1)
def token_7(hand: Hand, trace: kvviz.Trace) -> None:
    hand.click(hand.kv("story-word", id=7))
    expect(hand.kv("decode-slider")).to_have_value("7")
    expect(hand.kv("step-number")).to_contain_text("decode step 7")


@asked("turns", clicks=2)
def into_an_if_and_into_iteration_17_of_its_loop(hand: Hand, trace: kvviz.Trace) -> None:
    branch = [step.index for step in trace.steps if step.op_type == "Sub"]
    hand.goto(branch[0] - 1)
    hand.click(hand.kv("into"))
    hand.expect_step(branch[0])
    expect(hand.root.locator(".kv-crumbs")).to_contain_text("then_branch")
    # the same op in another iteration; the first has no Sub
    hand.choose(hand.kv("iteration"), f"iteration 17 of {TURNS}")
    hand.expect_step(branch[15])
    expect(hand.root.locator(".kv-crumbs")).to_contain_text("then_branch")


@asked("turns", clicks=2)
def values_and_the_first_nan(hand: Hand, trace: kvviz.Trace) -> None:
    hand.click(hand.kv("tab", id="values"))
    hand.click(hand.kv("first", id="NaN").locator('[data-kv="step-link"]'))
    [root] = [step.index for step in trace.steps if step.op_type == "Sqrt"]
    assert np.isnan(trace.outputs["y"]).all()
    hand.expect_step(root)
    expect(hand.inspector).to_contain_text("Sqrt")


@asked("policies", clicks=1)
def the_first_difference_to_rten(hand: Hand, both: kvviz.Comparison) -> None:
    rten = hand.kv("lane").nth(1)
    expect(rten).to_contain_text("rten")
    hand.click(rten.locator('[data-kv="lane-first"]'))
    first = both.first_difference(0, 1)
    assert first is not None
    hand.expect_step(first.step)


@asked("layers", clicks=2)
def who_holds_a_buffer_until_when(hand: Hand, trace: kvviz.Trace) -> None:
    hand.ask(f"B{BUFFER}")
    hand.click(hand.inspector.locator(f'[data-kv="buffer"][data-id="{BUFFER}"]').first)
    storage = trace.storages[BUFFER]
    assert storage.origin == "run" and storage.freed is not None
    expect(hand.inspector).to_contain_text(f"B{BUFFER}")
    expect(hand.inspector).to_contain_text("made by this run")
    expect(hand.inspector).to_contain_text(f"freedstep {storage.freed:,}")


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_question_takes_as_many_clicks_as_it_is_listed_with(show: Show, tmp_path: Path, name: str) -> None:
    record, address = RECORDINGS[name]
    trace, file = record(tmp_path), tmp_path / "page.html"
    if isinstance(trace, kvviz.Comparison):
        trace.to_html(file)
    else:
        trace.to_html(file, values="200 kB" if name in ("layers", "turns") else None)
    for clicks, task in TASKS[name]:
        hand = Hand(show(file, address, width=1500).page)
        task(hand, trace)
        assert hand.clicks == clicks <= 3, task.__name__
