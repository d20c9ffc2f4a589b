"""Every number that two places of a page show is the same in both, and is that of the recording."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

import kvviz
from kvviz.report.explain import explain
from kvviz.report.faces.report_data import sarif
from kvviz.trace.units import size
from tests.ui.conftest import Show, decoded
from tests.ui.filepage import FilePage

pytestmark = pytest.mark.ui

# Models whose caches grow, stand still, wrap around a merged graph, or do not exist.
NAMES = (
    "o02_optimum1_merged_gpt2",
    "o06_mobius_static_llama_op24",
    "o09_dynamo_qwen2_nocache",
    "storyteller/concat",
    "storyteller/tensor_scatter",
)


@pytest.fixture(scope="module", params=NAMES)
def trace(request: pytest.FixtureRequest) -> kvviz.Trace:
    return decoded(request.param)


@pytest.fixture
def page(show: Show, trace: kvviz.Trace) -> FilePage:
    shown: FilePage = show(trace, width=1500, permissions=["clipboard-read", "clipboard-write"])
    return shown


def test_page_report_json_and_sarif_print_the_same_findings_and_peak(page: FilePage, trace: kvviz.Trace) -> None:
    found = kvviz.findings(trace)
    report = kvviz.explain(trace)
    rows = page.kv("finding")
    expect(rows).to_have_count(len(found))
    effects = dict(
        page.root.locator(".kv-found > li").evaluate_all(
            "(all) => all.map((one) => [one.dataset.id, one.querySelector('[data-kv=effect]')?.firstChild.data ?? ''])"
        )
    )
    assert rows.locator("b").all_inner_texts() == [one.title for one in found]
    assert rows.locator(".kv-num").all_inner_texts() == [size(one.bytes) if one.bytes else "" for one in found]
    assert rows.locator(".kv-at").all_inner_texts() == [one.where for one in found]
    assert effects == {str(i): one.change for i, one in enumerate(found)}
    scope = f"{len(found)} · of {len(trace.steps):,} steps, all {len(trace.runs)} runs"
    assert page.kv("findings-scope").inner_text() == scope
    data = json.loads(json.dumps(report.to_dict()))["findings"]
    assert [(one["title"], one["bytes"]) for one in data] == [(one.title, one.bytes) for one in found]
    text = " ".join(repr(report).split())
    assert all(one.title in text for one in found[:8])
    results = sarif(report, "model.onnx")["runs"][0]["results"]
    chosen = [one for one in found if not one.calm and one.kind != "peak"]
    assert [one["properties"]["bytes"] for one in results] == [one.bytes for one in chosen]
    assert all(one["message"]["text"].startswith(there.line) for one, there in zip(results, chosen, strict=True))
    # the peak in its finding, over the timeline, and in both texts
    peak = explain(trace).peak
    row = page.root.locator('.kv-found > [data-kind="peak"] [data-kv="finding"]')
    expect(page.kv("peak")).to_have_text(f"peak {size(trace.peak_bytes)} at step {peak.step:,}")
    expect(row.locator("b")).to_contain_text(f"peak {size(trace.peak_bytes)} at step {peak.step:,}")
    expect(row.locator(".kv-num")).to_have_text(size(trace.peak_bytes))
    assert f"peak {size(trace.peak_bytes)}" in text
    assert f"| peak | {size(trace.peak_bytes)} |" in trace.to_markdown()
    # and its parts sum to it
    assert sum(peak.groups.values()) == trace.peak_bytes
    for name, nbytes in peak.groups.items():
        expect(row).to_contain_text(f"{name} {size(nbytes)}")
    # at its step that many bytes are live
    row.click()
    page.expect_step(peak.step or 0)
    expect(page.root.locator('.kv-legend [data-part="live"] b').first).to_have_text(size(trace.peak_bytes))


def test_of_a_finding_list_evidence_timeline_and_inspector_name_the_same_steps_and_bytes(
    page: FilePage, trace: kvviz.Trace
) -> None:
    found = kvviz.findings(trace)
    for number, one in enumerate(found):
        if not one.at:
            continue
        page.root.focus()
        row = page.root.locator(f'[data-kv="finding"][data-id="{number}"]')
        row.click()
        step = trace.steps[one.at[0]]
        page.expect_step(step.index)
        evidence = page.kv("evidence")
        expect(evidence).to_contain_text(f"Evidence for {number + 1}")
        expect(evidence).to_contain_text(f"step {step.index:,}")
        marked = page.root.locator('.kv-legend [data-part="marked"]')
        steps = f"{len(one.at):,} step{'' if len(one.at) == 1 else 's'}"
        expect(marked).to_have_text(f"{steps} of finding {number + 1}")
        if one.steps > 1:
            expect(evidence).to_contain_text(f"is one of {one.steps:,}")
            expect(page.kv("evidence-at")).to_have_text(f"1 of {one.steps:,}")
        # what its widest step spent, in the inspector
        facts = page.root.locator('.kv-this [data-kv="inspector"] > dl.kv-facts').first.locator("dd")
        if page.root.locator(".kv-this header h3").inner_text() == "This step":
            expect(facts).to_have_text([size(step.allocated), size(step.written), size(step.copied)])
        # those of misses are the sum over their steps
        if one.kind == "miss" and not one.title.endswith("kinds of missed op"):
            assert one.bytes == sum(max(trace.steps[at].allocated, trace.steps[at].copied) for at in one.at)
    # a missed step is counted alike in inspector, Markdown and finding
    missed = next(one.at[0] for one in found if one.kind == "miss")
    for there in (0, missed):  # from another step, since going to it is what shows it
        page.goto(there)
    often = page.root.locator(".kv-this .kv-often").inner_text()
    part = next(part for one in found for part in one.parts if missed in part.at)
    told = re.search(r"in all runs: ([\d,]+) times, (.*)\.$", often)
    if len(part.at) > 1:
        assert told and told.groups() == (f"{len(part.at):,}", size(part.bytes))
    # and in the page's own Markdown of it
    page.root.locator('.kv-bar [data-kv="share"]').click()
    page.kv("share-step-copy").click()
    expect(page.kv("share-said")).to_have_text("copied")
    text = page.copied()
    page.page.keyboard.press("Escape")
    assert text == trace.to_markdown(missed)
    for name in ("allocated", "copied", "written"):
        assert f"| {name} | {size(getattr(trace.steps[missed], name))} |" in text
    if len(part.at) > 1:
        assert size(part.bytes) in next(line for line in text.splitlines() if line.startswith("| the same miss |"))
