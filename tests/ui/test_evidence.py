"""The page is led by its findings: the list is Python's, and choosing one frames its steps."""

from __future__ import annotations

import re

import nbformat
import pytest
from playwright.sync_api import Browser, Locator, expect

import kvviz
from kvviz.trace.units import size
from tests.test_models import graph_of, reference
from tests.ui.conftest import Show, from_cells, opened
from tests.ui.filepage import FilePage
from tests.ui.server import Jupyter

pytestmark = pytest.mark.ui


def decoded(name: str) -> kvviz.Trace:
    return kvviz.decode(graph_of(name), reference(name)["prompt"].tolist(), 5, progress=False)


@pytest.fixture(scope="module")
def trace() -> kvviz.Trace:
    return decoded("o01_optimum_llama")


@pytest.fixture
def page(show: Show, trace: kvviz.Trace) -> FilePage:
    shown: FilePage = show(trace, width=1500)
    return shown


def finding(page: FilePage, number: int) -> Locator:
    return page.root.locator(f'[data-kv="finding"][data-id="{number}"]')


def place_of(trace: kvviz.Trace, kind: str) -> int:
    return next(i for i, one in enumerate(kvviz.findings(trace)) if one.kind == kind)


def test_it_opens_on_the_first_finding_at_its_widest_step(page: FilePage, trace: kvviz.Trace) -> None:
    first = kvviz.findings(trace)[0]
    page.expect_step(first.at[0])
    expect(finding(page, 0)).to_have_attribute("aria-expanded", "true")
    told = f"Evidence for 1step {first.at[0]:,} is one of {len(first.at):,}"
    expect(page.kv("evidence")).to_contain_text(told)
    expect(page.kv("evidence-at")).to_have_text(f"1 of {len(first.at)}")
    expect(page.root.locator(".kv-this .kv-big")).to_have_attribute("title", trace.steps[first.at[0]].node)
    # which is not a jump that could be undone
    expect(page.kv("undo")).to_be_hidden()


def test_one_walks_through_the_steps_of_a_finding_the_widest_first(page: FilePage, trace: kvviz.Trace) -> None:
    number = place_of(trace, "copied")
    at = kvviz.findings(trace)[number].at
    finding(page, number).click()
    page.expect_step(at[0])
    page.kv("evidence-next").click()
    page.expect_step(at[1])
    page.root.focus()
    page.page.keyboard.press("]")
    page.expect_step(at[2])
    page.page.keyboard.press("[")
    page.expect_step(at[1])
    expect(page.kv("evidence-at")).to_have_text(f"2 of {len(at)}")
    spent = [max(trace.steps[step].allocated, trace.steps[step].copied) for step in at]
    assert spent == sorted(spent, reverse=True)


def test_a_finding_opens_to_its_kinds_of_op_and_their_layers(page: FilePage, trace: kvviz.Trace) -> None:
    number, one = next((i, one) for i, one in enumerate(kvviz.findings(trace)) if one.kind == "miss" and one.parts)
    finding(page, number).click()
    if finding(page, number).get_attribute("aria-expanded") != "true":
        finding(page, number).click()
    page.kv("parts").locator("summary").click()
    parts = page.kv("parts").locator("li")
    expect(parts).to_have_count(len(one.parts))
    for row, part in zip(parts.all(), one.parts):
        assert part.group is not None and row.locator(".kv-kind").get_attribute("title") == part.name
        shown = re.sub(r"\s+", " ", row.locator(".kv-kind").inner_text())
        assert shown.startswith(part.group.op_type) and shown.endswith(part.where)
        expect(row.locator(".kv-num")).to_have_text(size(part.bytes))
    # a layer of one leads to its widest step there
    group = one.parts[0].group
    assert group is not None and len(group.layers) == 2
    parts.first.locator('[data-kv="layer"]').last.click()
    there = [step for step in one.at if step in one.parts[0].at and "layers.1" in trace.steps[step].node]
    page.expect_step(there[0])
    expect(page.kv("evidence")).to_contain_text(f"Evidence for {number + 1}")


def test_without_a_kernel_the_code_of_a_cure_can_be_copied_but_not_applied(page: FilePage, trace: kvviz.Trace) -> None:
    number = place_of(trace, "copied")
    one = kvviz.findings(trace)[number]
    finding(page, number).click()
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    box = page.root.locator(".kv-cure")
    assert one.fix is not None
    box.locator('[data-kv="copy"]').click()
    expect(box.locator('[data-kv="copy"]')).to_have_text("Copied")
    assert page.copied() == one.fix.code
    expect(box.locator('[data-kv="apply"]')).to_have_count(0)


@pytest.mark.parametrize(("width", "theme"), [(600, "dark"), (1000, "light"), (1500, "dark")])
def test_no_finding_is_cut_at_any_width(show: Show, trace: kvviz.Trace, width: int, theme: str) -> None:
    page = show(trace, width=width, color_scheme=theme)
    cut = "(all) => all.filter((one) => one.scrollWidth > one.clientWidth + 1).length"
    assert page.root.locator(".kv-finding b").evaluate_all(cut) == 0
    assert page.root.evaluate("(root) => root.scrollWidth - root.clientWidth") <= 0


LIVE = """
import kvviz
graph = kvviz.load("assets/models/o01_optimum_llama/model.onnx")
live = kvviz.debug(graph, prompt=[5, 17, 33], max_new_tokens=3, recorded=1)
live
"""


def test_while_a_run_goes_on_the_list_grows_and_a_cure_is_applied_from_it(browser: Browser, jupyter: Jupyter) -> None:
    nbformat.write(from_cells([LIVE]), jupyter.root / "growing.ipynb")
    with opened(browser, jupyter, "growing.ipynb", width=1600) as notebook:
        notebook.run_all()
        root = notebook.page.locator(".kvviz").first
        rows = root.locator('[data-kv="finding"] b')
        titles = "[one.title for one in kvviz.findings(live.trace)]"
        # given what has run, when the page rests
        expect(rows).to_have_text(notebook.python(titles))
        assert not any("past copied" in title for title in rows.all_inner_texts())
        # when it goes on, the list stays, and then has what was found since
        root.focus()
        notebook.page.keyboard.press("End")
        for run in (1, 2):
            root.locator('[data-kv="next-token"]').click()
            expect(rows.first).to_be_visible()
            expect(root.locator('[data-kv="decode-slider"]')).to_have_value(str(run))
        expect(rows.filter(has_text="past copied")).to_have_count(1)
        expect(rows).to_have_text(notebook.python(titles))
        # and a finding that is chosen shows its cure, which one click applies
        rows.filter(has_text="past copied").click()
        root.locator('.kv-cure [data-kv="apply"]').click()
        expect(root.locator('[data-kv="lane"]')).to_have_count(2)
        assert "copied" not in notebook.python("[one.kind for one in kvviz.findings(live.fixed)]")
