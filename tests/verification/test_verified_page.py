"""The report of a verification as HTML: its figures, the times on the trace, and where it differs."""

import re
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

import kvviz
from kvviz.graph.loading.tensors import Weights
from kvviz.verification.session_record import observe
from kvviz.verification.verified import Verification, bound_by
from kvviz.verification.verify import compared, run_session
from tests.graph.build import MODELS

MODEL = MODELS / "o04_dynamo_static_llama_op18" / "model.onnx"


@pytest.fixture(scope="module")
def found() -> Verification:
    return kvviz.verify(MODEL)


def test_each_step_has_the_time_at_which_the_session_ran_it(found: Verification) -> None:
    times = found.trace.log.declared.times
    assert sorted(times) == [step for row in sorted(found.rows, key=lambda row: row.step) for step in row.steps]
    for row in found.rows:
        assert sum(times[step].end - times[step].start for step in row.steps) == pytest.approx(row.microseconds)
    # They ran one after the other, in the order of the steps.
    ends = [(times[step].start, times[step].end) for step in sorted(times)]
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    assert {timing.lane for timing in times.values()} == {"onnxruntime"}


def test_the_page_has_the_figures_and_the_debugger(found: Verification, tmp_path: Path) -> None:
    page = found.to_html(tmp_path / "verified.html")
    assert page == (tmp_path / "verified.html").read_text(encoding="utf-8")
    assert f"{found.agree:,} of {found.total:,}</span>" in page and 'id="kvviz-payload"' in page
    assert "http" not in found._repr_html_().replace("http://www.w3.org", "")
    bars = re.findall(r'<rect x="[\d.]+" width="([\d.]+)"', page)
    assert len(bars) == len([row for row in found.rows if row.microseconds])
    assert sum(map(float, bars)) == pytest.approx(1000, abs=len(bars) * 0.005)


def test_where_they_differ_is_said_in_the_report_and_marked_in_the_trace() -> None:
    # given a record that says of one node that it allocated what it did not
    graph = kvviz.load(MODEL)
    feeds = kvviz.inputs(graph)
    record = observe(graph, partial(run_session, feeds))
    allocated = dict(record.allocated or {})
    name = max(allocated, key=allocated.__getitem__)
    # when
    wrong = compared(record._replace(allocated={**allocated, name: allocated[name] + 256}), feeds)
    # then
    (row,) = wrong.differences
    (mark,) = wrong.trace.log.declared.marks
    assert mark.kind == "differs" and mark.after == row.step and mark.value == row.node
    assert row.cause in wrong._repr_html_() and f"{wrong.total - 1:,} of {wrong.total:,}</span>" in wrong._repr_html_()


def test_work_is_counted_from_shapes(found: Verification) -> None:
    weights = found.trace.graph.weights
    assert isinstance(weights, Weights)
    product = next(row for row in found.rows if row.op == "MatMul" and found.trace.steps[row.step].inputs[1] in weights)
    step = found.trace.steps[product.step]
    left = next(out for s in found.trace.steps for out in s.outs if out.name == step.inputs[0])
    # Its bytes stay in a file of the session that is gone by now, where they are many.
    weight = weights.tensors[step.inputs[1]]
    (made,) = step.outs
    assert left.shape is not None and made.shape is not None
    assert product.flops == 2 * made.nbytes // 4 * left.shape[-1]
    assert product.moved == left.nbytes + weight.nbytes + made.nbytes
    assert bound_by(10**12, 10, 1e6) == "compute" and bound_by(10, 10**11, 1e6) == "memory"
    assert bound_by(10, 10, 1e6) == "overhead"


def test_the_report_on_the_prediction_ranks_what_was_missed_by_the_time_of_the_session() -> None:
    found = kvviz.verify(MODELS / "storyteller" / "attention_23" / "model.onnx")
    report, times = kvviz.explain(found.trace), found.trace.log.declared.times
    took = [sum(times[s].end - times[s].start for one in group.entries for s in one.steps) for group in report.groups]
    assert len(took) > 1 and took == sorted(took, reverse=True) and took[0] > 0
    assert [group.time for group in report.groups] == pytest.approx(took)
    assert list(report.missed) == [one for group in report.groups for one in group.entries]
    assert ", by time" in str(report) and ", by time" in report._repr_html_()
    # Without times the order is that of bytes.
    plain = kvviz.explain(kvviz.dry(MODELS / "storyteller" / "attention_23" / "model.onnx", policy="onnxruntime"))
    spent = [group.bytes for group in plain.groups]
    assert spent == sorted(spent, reverse=True) and "by time" not in str(plain)
