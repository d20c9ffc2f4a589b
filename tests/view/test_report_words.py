"""What reports call figures: the names of the glossary, as the page has them, and no second name for one of them."""

from __future__ import annotations

import re

import pytest

import kvviz
from kvviz.report.glossary import FIGURES
from kvviz.report.report_html import report_html

NAMES = {name for name, _ in FIGURES.values()}
# Other words that people use for a figure or a thing of the glossary, and what it is called here.
OTHERS = {
    r"\b(high[- ]water|peak memory|max(imum)? memory|memory usage)\b": "peak",
    r"\b(memory in use|resident|live bytes|bytes live)\b": "live while the op ran",
    r"\b(alive|live|held) after(wards)?\b(?! this step)": "held after",
    r"\b(duplicated|memcpy|cloned)\b": "copied",
    r"\b(malloc(ed)?|newly allocated|reserved bytes)\b": "allocated",
    r"\b(wasted|opportunit(y|ies)|could be in-place)\b": "missed",
    r"\bin-place (call|op|run)\b": "in place",
    r"\b(ready set|runnable nodes)\b": "frontier",
    r"\b(owned input|consumed input)\b": "donated",
    r"\b(subgraph instance|call frame)\b": "frame",
}


def texts(trace: kvviz.Trace) -> dict[str, str]:
    found = kvviz.explain(trace)
    html = re.sub(r"<style.*?</style>|<[^>]+>", " ", report_html(found), flags=re.DOTALL)
    return {"text": repr(kvviz.explain(trace)), "html": html, "markdown": trace.to_markdown()}


def test_reports_have_no_second_name_for_what_the_glossary_names(trace: kvviz.Trace) -> None:
    for form, text in texts(trace).items():
        found = {m[0]: name for other, name in OTHERS.items() if (m := re.search(other, text, re.IGNORECASE))}
        assert not found, f"{form}: say what the glossary says: {found}"


def test_totals_are_told_by_their_names_in_every_form(copying: kvviz.Trace) -> None:
    for form, text in texts(copying).items():
        for key in ("peak", "allocated", "copied", "missed"):
            assert re.search(rf"\b{FIGURES[key][0]}\b", text, re.IGNORECASE), (form, key)


def test_columns_of_bytes_are_called_as_in_the_page(decoded: kvviz.Trace) -> None:
    head = next(line for line in repr(kvviz.explain(decoded)).split("\n") if line.startswith("run "))
    assert set(head.split()) - {"run", "token", "steps"} == {FIGURES[key][0] for key in FIGURES} & set(head.split())
    assert set(head.split()) & NAMES == {"peak", "allocated", "written", "copied"}


@pytest.mark.parametrize("text", ["peak memory 3 kB", "12 in-place ops were wasted", "the ready set"])
def test_other_words_are_found(text: str) -> None:
    assert any(re.search(other, text, re.IGNORECASE) for other in OTHERS)
