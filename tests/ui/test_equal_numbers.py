"""Every number that two places of a page show is the same in both, and is that of the recording."""

import re
from typing import Any

import pytest
from playwright.sync_api import expect

import kvviz
from kvviz.report.explain import explain
from kvviz.trace.units import size
from tests.ui.conftest import Show, decoded
from tests.ui.filepage import FilePage

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
def page(show: Show, trace: kvviz.Trace) -> Any:
    return show(trace, width=1500)


def test_the_page_prints_the_findings_and_the_peak_of_the_report(page: FilePage, trace: kvviz.Trace) -> None:
    found = kvviz.findings(trace)
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
    peak = explain(trace).peak
    row = page.root.locator('.kv-found > [data-kind="peak"] [data-kv="finding"]')
    expect(page.kv("peak")).to_have_text(f"peak {size(trace.peak_bytes)} at step {peak.step:,}")
    expect(row.locator("b")).to_contain_text(f"peak {size(trace.peak_bytes)} at step {peak.step:,}")
    expect(row.locator(".kv-num")).to_have_text(size(trace.peak_bytes))
    for name, nbytes in peak.groups.items():
        expect(row).to_contain_text(f"{name} {size(nbytes)}")
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
    # a missed step is counted alike in inspector and finding
    missed = next(one.at[0] for one in found if one.kind == "miss")
    for there in (0, missed):  # from another step, since going to it is what shows it
        page.goto(there)
    often = page.root.locator(".kv-this .kv-often").inner_text()
    part = next(part for one in found for part in one.parts if missed in part.at)
    told = re.search(r"in all runs: ([\d,]+) times, (.*)\.$", often)
    if len(part.at) > 1:
        assert told and told.groups() == (f"{len(part.at):,}", size(part.bytes))
