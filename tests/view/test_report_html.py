"""The report as HTML: the report's own numbers, nothing fetched, nothing that a name could break."""

from __future__ import annotations

from html.parser import HTMLParser

import kvviz
from kvviz.report.explain import explain
from kvviz.report.report_html import report_html
from kvviz.trace.units import size


class Reader(HTMLParser):
    """Tags, attributes and text, and whether all tags were closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)


def test_the_report_is_html_of_its_own_without_scripts(trace: kvviz.Trace) -> None:
    text = report_html(explain(trace))
    page = Reader(text)
    assert not page.open and len(text) < 20_000
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("href", "src")]
    assert "url(" not in text and "//" not in text.replace("/model/", "").partition("</style>")[0]


def test_colours_come_from_the_notebook_s_theme(decoded: kvviz.Trace) -> None:
    style = report_html(explain(decoded)).partition("<style>")[2].partition("</style>")[0]
    for variable in ("--jp-ui-font-color1", "--jp-layout-color1", "--jp-border-color2", "--jp-code-font-family"):
        assert f"var({variable}," in style
    assert all(rule.strip().startswith(".kvviz-report") for rule in style.split("}") if rule.strip())


def test_numbers_reasons_and_fixes_are_those_of_the_report(copying: kvviz.Trace) -> None:
    report = explain(copying)
    told = " ".join(Reader(report_html(report)).texts)
    assert f"Missed in place: {size(report.counts.missed_bytes)} in {len(report.groups)} kinds of op" in told
    assert f"Peak: {size(copying.peak_bytes)} at step {report.peak.step:,}" in told
    for group, nbytes in report.peak.groups.items():
        assert group in told and size(nbytes) in told
    fix = next(entry.fix for entry in report.missed if entry.fix is not None)
    assert f"fix: {fix.label}" in told and fix.sentence in told and fix.code in told
    assert report.held_too_long[0].reason in told
    assert report.caches[0].sentence in told
