"""What is claimed of a fix that was not tried: what its own step saves, and nothing about the rest of the run."""

import json
from typing import Any

import pytest

import kvviz
from kvviz import Trace
from kvviz.report.explain import explain
from kvviz.report.faces.report_html import report_html
from kvviz.report.faces.report_text import report_text
from tests.engine.graphs import graph_of, numbers
from tests.explain.applying import offered

# A sum and a difference of two values: who overwrites x1 leaves x2 to nobody.
PAIR = """g (float[4096] x) => (float[4096] y, float[4096] z) {
    x1 = Exp(x) x2 = Neg(x) [sum] y = Add(x1, x2) [difference] z = Sub(x2, x1) }"""
# Two Concats of one past: with room for the first one, the second has none.
RIVALS = """g (float[1, N, 512] past, float[1, 1, 512] new, float[1, 2, 512] more)
    => (float[1, M, 512] p, float[1, L, 512] q) {
    [one] p = Concat <axis = 1> (past, new) [two] q = Concat <axis = 1> (p, more) }"""


def claims(trace: Trace) -> list[str]:
    """Everything that a report says, in all its forms."""
    report = explain(trace)
    told = [report_text(report), report_html(report), json.dumps(report.to_dict()), trace.to_markdown()]
    return [*told, *map(str, report.findings)]


@pytest.mark.parametrize(("text", "inputs"), [
    (PAIR, {"x": numbers(4096)}),
    (RIVALS, {"past": numbers(1, 4, 512), "new": numbers(1, 1, 512), "more": numbers(1, 2, 512)}),
], ids=["sum and difference", "two appends"])  # fmt: skip
def test_nothing_is_said_of_what_other_steps_do_with_the_fix(text: str, inputs: dict[str, Any]) -> None:
    trace = kvviz.run(graph_of(text), inputs)
    fixes = {fix.changes: fix for _, _, fix in offered(trace)}
    assert fixes
    for told in claims(trace):
        assert "→ 0 B" not in told and "peak −" not in told and "peak +" not in told
    assert all("at this step" in fix.sentence for fix in fixes.values())
    data = explain(trace).to_dict()
    for missed in explain(trace).missed:
        if missed.fix is not None:
            assert missed.peak_effect == trace.peak_bytes - missed.fix.apply().peak_bytes
    assert {one["left"] for one in data["findings"] if one["kind"] != "peak"} == {None}
