"""The page is led by its findings: the list is Python's, and choosing one frames its steps in the graph."""

import re
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

import kvviz
from kvviz.report.finding import Finding
from kvviz.trace.units import size
from tests.ui.conftest import OpenNotebook, Show
from tests.ui.debugger import DebuggerPage
from tests.ui.graphpage import GraphPage


@pytest.fixture
def graph(show: Show, llama: kvviz.Trace) -> Any:
    return show(llama, kind=GraphPage, width=1500, height=950)


def finding(graph: GraphPage, number: int) -> Locator:
    return graph.root.locator(f'[data-kv="finding"][data-id="{number}"]')


def frame(graph: GraphPage, trace: kvviz.Trace, kind: str) -> Finding:
    """Choose the first finding of a kind, unless the page has opened on it."""
    number, one = next((i, one) for i, one in enumerate(kvviz.findings(trace)) if one.kind == kind)
    if finding(graph, number).get_attribute("aria-expanded") != "true":
        finding(graph, number).click()
    expect(graph.stage).to_have_attribute("data-evidence", re.compile("^(" + "|".join(map(str, one.at)) + ")$"))
    return one


def shown(graph: GraphPage) -> int:
    return int(graph.stage.get_attribute("data-evidence") or -1)


def test_it_opens_on_the_first_finding_and_walks_through_its_steps_the_widest_first(
    graph: GraphPage, llama: kvviz.Trace
) -> None:
    first = kvviz.findings(llama)[0]
    graph.expect_step(first.at[0])
    expect(finding(graph, 0)).to_have_attribute("aria-expanded", "true")
    told = f"Evidence for 1step {first.at[0]:,} is one of {len(first.at):,}"
    expect(graph.kv("evidence")).to_contain_text(told)
    expect(graph.root.locator(".kv-this .kv-big")).to_have_attribute("title", llama.steps[first.at[0]].node)
    # which is not a jump that could be undone
    expect(graph.kv("undo")).to_be_hidden()
    one = frame(graph, llama, "copied")
    graph.expect_step(one.at[0])
    graph.kv("evidence-next").click()
    graph.expect_step(one.at[1])
    graph.root.focus()
    graph.page.keyboard.press("]")
    graph.expect_step(one.at[2])
    graph.page.keyboard.press("[")
    graph.expect_step(one.at[1])
    expect(graph.kv("evidence-at")).to_have_text(f"2 of {len(one.at)}")
    # without a kernel the code of its cure can be copied, but not applied
    graph.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    box = graph.root.locator(".kv-cure")
    box.locator('[data-kv="copy"]').click()
    expect(box.locator('[data-kv="copy"]')).to_have_text("Copied")
    assert one.fix is not None and graph.copied() == one.fix.code
    expect(box.locator('[data-kv="apply"]')).to_have_count(0)


def test_a_finding_opens_to_its_kinds_of_op_and_their_layers(graph: GraphPage, llama: kvviz.Trace) -> None:
    one = frame(graph, llama, "miss")
    graph.kv("parts").locator("summary").click()
    parts = graph.kv("parts").locator("li")
    expect(parts).to_have_count(len(one.parts))
    for row, part in zip(parts.all(), one.parts):
        assert part.group is not None and row.locator(".kv-kind").get_attribute("title") == part.name
        said = re.sub(r"\s+", " ", row.locator(".kv-kind").inner_text())
        assert said.startswith(part.group.op_type) and said.endswith(part.where)
        expect(row.locator(".kv-num")).to_have_text(size(part.bytes))
    group = one.parts[0].group
    assert group is not None and len(group.layers) == 2
    parts.first.locator('[data-kv="layer"]').last.click()
    graph.expect_step(next(at for at in one.at if at in one.parts[0].at and "layers.1" in llama.steps[at].node))


def test_a_copied_past_is_drawn_with_its_rows_and_what_plays_no_part_is_folded(
    graph: GraphPage, llama: kvviz.Trace
) -> None:
    frame(graph, llama, "copied")
    for _ in range(3):
        step = llama.steps[shown(graph)]
        cache = next(one for one in llama.caches if one.input in step.inputs)
        rows = cache.runs[step.run - 1].valid
        expect(graph.stage).to_have_attribute("aria-description", re.compile(f"all {rows} rows are copied here"))
        buffer = step.outs[0].storage
        expect(graph.stage).to_have_attribute("aria-description", re.compile(rf"B{buffer} · {rows + 1} rows"))
        expect(graph.running).to_have_count(1)
        graph.kv("evidence-next").click()
        expect(graph.stage).not_to_have_attribute("data-evidence", str(step.index))
    folded = graph.kv("hidden-ops")
    expect(folded).to_have_text(re.compile(r"^\d+ ops of this block hidden · show all$"))
    hidden = int((folded.text_content() or "").split()[0])
    drawn = graph.kv("graph-node").count()
    assert 0 < drawn < 12 < hidden
    fitted = graph.kv("zoom").text_content() or ""
    graph.kv("zoom-in").click()
    expect(graph.kv("zoom")).not_to_have_text(fitted)
    graph.kv("fit").click()
    expect(graph.kv("zoom")).to_have_text(fitted)
    node = llama.steps[shown(graph)].node
    folded.click()
    expect(folded).to_have_text("only what takes part")
    assert graph.kv("graph-node").count() >= hidden
    expect(graph.running).to_have_attribute("aria-label", re.compile(re.escape(node)))
    folded.click()
    expect(graph.kv("graph-node")).to_have_count(drawn)
    # a step of one's own leaves the finding
    graph.kv("next").click()
    expect(folded).to_be_hidden()
    assert shown(graph) == -1
    graph.kv("evidence-return").click()
    expect(graph.kv("graph-node")).to_have_count(drawn)


def test_the_way_of_a_buffer_and_the_sums_of_a_range(graph: GraphPage, llama: kvviz.Trace) -> None:
    step = next(s for s in llama.steps if s.decision.dispatch == "in_place" and s.run == 1)
    graph.goto(step.index)
    graph.root.press("Escape")  # the op of the finding is chosen still
    graph.kv("buffer-way").click()
    expect(graph.stage).to_have_attribute("data-way", str(step.outs[0].storage))
    graph.kv("buffer-way").click()
    expect(graph.stage).not_to_have_attribute("data-way", re.compile("."))
    expect(graph.kv("range")).to_be_hidden()
    graph.drag_timeline(0.3, 0.5)
    says = graph.kv("range").locator("span").text_content() or ""
    many, first = (int(n.replace(",", "")) for n in re.findall(r"^([\d,]+) steps, ([\d,]+)–", says)[0])
    steps = llama.steps[first : first + many]
    assert many == pytest.approx(0.2 * len(llama.steps), abs=3)
    for name in ("allocated", "copied", "written"):
        assert f"{name} {size(sum(getattr(s, name) for s in steps))}" in says
    graph.kv("range-steps").click()
    expect(graph.kv("query")).to_have_value(f"step:{first}..{first + many - 1}")
    expect(graph.kv("query-count")).to_have_text(re.compile(f"{many:,}"))
    slider = graph.kv("step-slider")
    slider.focus()
    slider.press("Escape")
    expect(graph.kv("range")).to_be_hidden()
    graph.goto(100)
    slider.focus()
    for _ in range(3):
        slider.press("Shift+ArrowRight")
    expect(graph.kv("range")).to_contain_text("4 steps, 100–103")
    graph.expect_step(103)


LIVE = """
import kvviz
kvviz.debug(kvviz.load("small.onnx"), prompt=[5, 7, 3], max_new_tokens=3, recorded=1)
"""


def test_while_a_run_goes_on_the_list_grows(open_notebook: OpenNotebook) -> None:
    debugger = DebuggerPage(open_notebook([LIVE], width=1600))
    rows = debugger.kv("finding").locator("b")
    titles = "[one.title for one in kvviz.findings(t)]"
    before = debugger.python(titles)
    expect(rows).to_have_text(before)
    debugger.press("End")
    for run in (1, 2):
        debugger.kv("next-token").click()
        expect(rows.first).to_be_visible()  # the list stays meanwhile
        expect(debugger.kv("decode-slider")).to_have_value(str(run))
    expect(rows.filter(has_text="past copied")).to_have_count(1)
    after = debugger.python(titles)
    expect(rows).to_have_text(after)
    assert after != before
