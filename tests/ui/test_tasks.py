"""Twenty questions that people ask a recording, each counted in clicks; those here need no kernel.

What needs one (another ready op, another policy, a fix) is asked in `test_tasks_live`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import parser
from playwright.sync_api import Browser, expect

import kvviz
from kvviz.report.explain import explain
from kvviz.smollm2 import convert
from kvviz.trace.units import size
from tests.decode.small import small
from tests.smollm2.tiny import Tiny, write_tiny
from tests.ui.filepage import FilePage
from tests.ui.hand import Hand
from tests.ui.test_device_lanes import recorded

pytestmark = pytest.mark.ui

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"
START = 2000  # the step that the file of six layers is opened at
TURNS = 20
BUFFER = 1112
# Takes 1 away in every turn but the first, so that the root of what is left is not a number.
LOOP = """<ir_version: 10, opset_import: ["" : 21]> turns (float[4] x, int64 n, float[1] less) => (float[4] y) {
    last = Loop (n, , x) <body = turn (int64 i, bool go, float[4] a) => (bool on, float[4] c) {
        on = Identity (go)
        later = Cast <to = 9> (i)
        c = If (later) <then_branch = shrink () => (float[4] b) { b = Sub (a, less) },
                        else_branch = begin () => (float[4] d) { d = Abs (a) }> }>
    y = Sqrt (last) }"""

# How many clicks each question takes. The three with a kernel are asserted in `test_tasks_live`.
CLICKS = {
    "why_an_op_of_layer_3_is_not_in_place": 1,
    "what_the_peak_consists_of": 1,
    "the_cache_row_written_at_token_5": 1,
    "on_to_a_concat_that_copies_past_rows": 1,
    "one_step_back": 1,
    "another_ready_op_and_undo": 2,
    "ideal_against_rten": 2,
    "a_fix_before_and_after": 2,
    "the_longest_lived_buffer": 2,
    "an_op_by_name": 1,
    "token_7": 1,
    "into_an_if_and_into_iteration_17_of_its_loop": 2,
    "values_and_the_first_nan": 2,
    "a_picture_and_markdown": 3,
    "the_file_without_a_kernel_at_my_step": 2,
    "what_only_the_order_of_a_ggml_graph_keeps": 1,
    "which_tensor_of_a_device_leaked_and_which_line_made_it": 1,
    "the_first_difference_to_rten": 1,
    "who_holds_a_buffer_until_when": 2,
    "what_was_copied_at_token_200_of_512": 1,
}


def layers(folder: Path) -> kvviz.Trace:
    """SmolLM2's graph with six layers and small weights."""
    convert(folder, "concat", write_tiny(folder / "tiny.gguf", Tiny(layers=6)))
    return kvviz.decode(kvviz.load(folder / "model.onnx"), [5, 6, 7, 8, 9, 10], 8, progress=False)


def turns(_: Path) -> kvviz.Trace:
    """A Loop with an If inside."""
    inputs = {"x": np.full(4, 2.0, np.float32), "n": np.int64(TURNS), "less": np.ones(1, np.float32)}
    return kvviz.run(kvviz.load(parser.parse_model(LOOP)), inputs)


def llama_cpp(_: Path) -> kvviz.Trace:
    made: kvviz.Trace = kvviz.ggml.load(sorted((MODELS / "llama_cpp").glob("*.jsonl.gz"))[0]).graphs[-1].trace
    return made


def policies(_: Path) -> kvviz.Comparison:
    return kvviz.compare(kvviz.load(small("concat").proto), prompt=[5, 7, 3], max_new_tokens=3)


def storyteller(_: Path) -> kvviz.Trace:
    graph = kvviz.load(MODELS / "storyteller" / "concat" / "model.onnx")
    return kvviz.decode(graph, [1, 77, 108], 512, progress=False, detail=range(500, 512))


# Each recording with the place that its file is opened at.
RECORDINGS: dict[str, tuple[Callable[[Path], kvviz.Trace | kvviz.Comparison], str]] = {
    "layers": (layers, f"#step={START}"),
    "turns": (turns, ""),
    "llama_cpp": (llama_cpp, ""),
    "device": (lambda _: recorded(4), ""),
    "policies": (policies, ""),
    "storyteller": (storyteller, ""),
}
Made = Callable[[str], tuple[kvviz.Trace | kvviz.Comparison, Path]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Record and export each once."""
    known: dict[str, tuple[kvviz.Trace | kvviz.Comparison, Path]] = {}

    def one(name: str) -> tuple[kvviz.Trace | kvviz.Comparison, Path]:
        if name not in known:
            folder = tmp_path_factory.mktemp("tasks")
            trace = RECORDINGS[name][0](folder)
            path = folder / f"{name}.html"
            if isinstance(trace, kvviz.Comparison):
                trace.to_html(path)
            else:
                trace.to_html(path, values="200 kB" if name in ("layers", "turns") else None)
            known[name] = trace, path
        return known[name]

    return one


@pytest.fixture
def asked(
    browser: Browser, made: Made, request: pytest.FixtureRequest
) -> Iterator[tuple[Hand, kvviz.Trace | kvviz.Comparison]]:
    trace, file = made(request.param)
    page = FilePage(browser, file, RECORDINGS[request.param][1], width=1500)
    yield Hand(page.page), trace
    page.close()


def why_an_op_of_layer_3_is_not_in_place(hand: Hand, trace: kvviz.Trace) -> None:
    query = "layer:3 is:missed sort:-missed"
    hand.ask(query)
    worst = int(trace.find(query).numbers[0])
    hand.expect_step(worst)
    reasons = trace.steps[worst].decision.blockers
    expect(hand.kv("blocker")).to_have_count(len(reasons))
    for shown, reason in zip(hand.kv("blocker").all(), reasons):
        expect(shown).to_have_attribute("data-id", reason.code)


def what_the_peak_consists_of(hand: Hand, trace: kvviz.Trace) -> None:
    peak = explain(trace).peak
    found = hand.root.locator('.kv-found > [data-kind="peak"] [data-kv="finding"]')
    hand.click(found)
    hand.expect_step(peak.step or 0)
    assert "weights" in peak.groups
    for name, nbytes in peak.groups.items():
        expect(found).to_contain_text(f"{name} {size(nbytes)}")


def the_cache_row_written_at_token_5(hand: Hand, trace: kvviz.Trace) -> None:
    hand.ask("token:5 op:Concat cache:0.key")
    cache = trace.caches[0]
    before, after = (cache.runs[run].valid for run in (4, 5))
    rows = hand.kv("cache-rows")
    expect(rows).to_contain_text(f"{after:,} valid")
    expect(rows).to_contain_text(f"{after - before} written")
    assert trace.runs[5].first <= hand.step < trace.runs[5].last


def on_to_a_concat_that_copies_past_rows(hand: Hand, trace: kvviz.Trace) -> None:
    query = "op:Concat cache:* copied>0"
    hand.ask(query)
    found = int(next(n for n in trace.find(query).numbers if n > START))
    hand.expect_step(found)
    assert {out.name for out in trace.steps[found].outs} <= {cache.output for cache in trace.caches}
    # Concats of the rotary embedding copy, too, but no past rows
    assert any(step.op_type == "Concat" and step.copied for step in trace.steps[START:found])


def one_step_back(hand: Hand, trace: kvviz.Trace) -> None:
    hand.click(hand.kv("back"))
    hand.expect_step(START - 1)


def the_longest_lived_buffer(hand: Hand, trace: kvviz.Trace) -> None:
    hand.click(hand.kv("open-map"))
    hand.click(hand.kv("map-row").first)
    ages = [one.freed - one.born for one in trace.storages if one.origin == "run" and one.freed is not None]
    expect(hand.inspector).to_contain_text(f"lives{max(ages):,} steps")


def an_op_by_name(hand: Hand, trace: kvviz.Trace) -> None:
    hand.ask("lm_head op:MatMul")
    hand.expect_step(int(next(n for n in trace.find("lm_head op:MatMul").numbers if n > START)))


def token_7(hand: Hand, trace: kvviz.Trace) -> None:
    hand.click(hand.kv("story-word", id=7))
    expect(hand.kv("decode-slider")).to_have_value("7")
    expect(hand.kv("step-number")).to_contain_text("decode step 7")


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


def values_and_the_first_nan(hand: Hand, trace: kvviz.Trace) -> None:
    hand.click(hand.kv("tab", id="values"))
    hand.click(hand.kv("first", id="NaN").locator('[data-kv="step-link"]'))
    [root] = [step.index for step in trace.steps if step.op_type == "Sqrt"]
    assert np.isnan(trace.outputs["y"]).all()
    hand.expect_step(root)
    expect(hand.inspector).to_contain_text("Sqrt")


def a_picture_and_markdown(hand: Hand, trace: kvviz.Trace) -> None:
    hand.click(hand.root.locator('.kv-bar [data-kv="share"]'))
    with hand.root.page.expect_download() as saved:
        hand.click(hand.kv("share-png-save"))
    assert Path(saved.value.path()).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    with hand.root.page.expect_download() as saved:
        hand.click(hand.kv("share-step-save"))
    assert Path(saved.value.path()).read_text("utf-8") == trace.to_markdown(START)


def the_file_without_a_kernel_at_my_step(hand: Hand, trace: kvviz.Trace) -> None:
    hand.goto(START + 5)
    hand.click(hand.root.locator('.kv-bar [data-kv="share"]'))
    with hand.root.page.expect_download() as saved:
        hand.click(hand.kv("share-html"))
    again = Path(saved.value.path()).with_suffix(".html")
    Path(saved.value.path()).rename(again)
    page = FilePage(hand.root.page.context.browser or pytest.fail("no browser"), again)
    page.expect_step(START + 5)
    page.close()


def what_only_the_order_of_a_ggml_graph_keeps(hand: Hand, trace: kvviz.Trace) -> None:
    found = kvviz.hazards(trace)
    hand.click(hand.root.locator('.kv-found > [data-kind="hidden"] [data-kv="finding"]'))
    hand.expect_step(min(hazard.second for hazard in found))
    expect(hand.kv("pair-sentence")).to_have_text(min(found, key=lambda hazard: hazard.second).sentence)


def which_tensor_of_a_device_leaked_and_which_line_made_it(hand: Hand, trace: kvviz.Trace) -> None:
    leak = hand.root.locator('.kv-clock-warning[data-code="LEAK"]', has_text="'cache'")
    expect(leak.locator("code")).to_contain_text("test_device_lanes.py")
    hand.click(leak.locator('[data-kv="mark"]'))
    hand.expect_step(len(trace.steps) - 1)


def the_first_difference_to_rten(hand: Hand, both: kvviz.Comparison) -> None:
    rten = hand.kv("lane").nth(1)
    expect(rten).to_contain_text("rten")
    hand.click(rten.locator('[data-kv="lane-first"]'))
    first = both.first_difference(0, 1)
    assert first is not None
    hand.expect_step(first.step)


def who_holds_a_buffer_until_when(hand: Hand, trace: kvviz.Trace) -> None:
    hand.ask(f"B{BUFFER}")
    hand.click(hand.inspector.locator(f'[data-kv="buffer"][data-id="{BUFFER}"]').first)
    storage = trace.storages[BUFFER]
    assert storage.origin == "run" and storage.freed is not None
    expect(hand.inspector).to_contain_text(f"B{BUFFER}")
    expect(hand.inspector).to_contain_text("made by this run")
    expect(hand.inspector).to_contain_text(f"freedstep {storage.freed:,}")


def what_was_copied_at_token_200_of_512(hand: Hand, trace: kvviz.Trace) -> None:
    run = trace.runs[200]
    assert len(trace.runs) == 512 and run.first == run.last and run.bytes_copied > 0
    hand.click(hand.kv("story-word", id=200))
    expect(hand.root).to_have_attribute("data-bare", "200")
    expect(hand.kv("total", id="copied").locator("dd").first).to_have_text(size(run.bytes_copied))


TASKS: dict[Callable[..., None], str] = {
    why_an_op_of_layer_3_is_not_in_place: "layers",
    what_the_peak_consists_of: "layers",
    the_cache_row_written_at_token_5: "layers",
    on_to_a_concat_that_copies_past_rows: "layers",
    one_step_back: "layers",
    the_longest_lived_buffer: "layers",
    an_op_by_name: "layers",
    token_7: "layers",
    into_an_if_and_into_iteration_17_of_its_loop: "turns",
    values_and_the_first_nan: "turns",
    a_picture_and_markdown: "layers",
    the_file_without_a_kernel_at_my_step: "layers",
    what_only_the_order_of_a_ggml_graph_keeps: "llama_cpp",
    which_tensor_of_a_device_leaked_and_which_line_made_it: "device",
    the_first_difference_to_rten: "policies",
    who_holds_a_buffer_until_when: "layers",
    what_was_copied_at_token_200_of_512: "storyteller",
}


@pytest.mark.parametrize(
    ("asked", "task"), [(on, task) for task, on in TASKS.items()], ids=[t.__name__ for t in TASKS], indirect=["asked"]
)
def test_a_question_takes_as_many_clicks_as_it_is_listed_with(
    asked: tuple[Hand, kvviz.Trace], task: Callable[[Hand, kvviz.Trace], None]
) -> None:
    hand, trace = asked
    task(hand, trace)
    print(hand.told(task.__name__))
    assert hand.clicks == CLICKS[task.__name__]


def test_twenty_questions_take_one_click_in_the_median_and_none_takes_more_than_three() -> None:
    assert len(CLICKS) == 20 and {task.__name__ for task in TASKS} < set(CLICKS)
    assert statistics.median(CLICKS.values()) <= 1
    assert max(CLICKS.values()) <= 3
