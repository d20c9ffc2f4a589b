"""Another order with a much lower peak: what the report promises is kept when the graph runs in it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvviz
from kvviz.explain import lower_peak
from kvviz.explain.diagnose import Report
from kvviz.view.report_html import report_html
from kvviz.view.report_text import report_text
from tests.engine.random_graphs import Example, examples
from tests.engine.test_invariants import feeds
from tests.explain.applying import same_results
from tests.explain.nested_graphs import nested
from tests.graph.build import model, node


def breadth_first(branches: int) -> Any:
    """Branches that each make something large and then something small of it, listed level by level."""
    nodes = [node("Tile", f"x{i} times", f"large{i}") for i in range(branches)]
    nodes += [node("Exp", f"large{i}", f"exp{i}") for i in range(branches)]
    nodes += [node("ReduceSum", f"exp{i}", f"small{i}") for i in range(branches)]
    nodes.append(node("Concat", " ".join(f"small{i}" for i in range(branches)), "y", axis=0))
    inputs = [f"x{i} float 8" for i in range(branches)]
    return kvviz.load(model(nodes, inputs, [f"y float {branches}"], times=np.array([100])))


def explained(graph: Any, policy: str = "ideal") -> Report:
    feed = {value.name: np.arange(8, dtype=np.float32) for value in graph.inputs}
    report: Report = kvviz.explain(kvviz.run(graph, feed, policy=policy))
    return report


@pytest.mark.parametrize("policy", ["ideal", "never"])
def test_a_graph_in_breadth_first_order_is_told_of_an_order_that_needs_much_less(policy: str) -> None:
    # given
    report = explained(breadth_first(10), policy)
    other = report.other_order
    assert other is not None and other.name == "least-live order"
    assert other.bytes < report.peak.bytes / 2
    # when
    after = other.fix.apply()
    # then
    assert after.peak_bytes <= other.bytes and same_results(report.trace, after)
    assert kvviz.explain(after).other_order is None
    for told in (report_text(report), report_html(report)):
        assert "nother order needs less" in told and "run in least-live order" in told
    assert report.to_dict()["other_order"]["bytes"] == other.bytes


def test_the_code_of_the_fix_runs_in_that_order() -> None:
    report = explained(breadth_first(10))
    assert report.other_order is not None
    fix = report.other_order.fix
    graph, trace = report.trace.graph, report.trace
    inputs = {value.name: np.arange(8, dtype=np.float32) for value in graph.inputs}
    names = {"kvviz": kvviz, "dataclasses": dataclasses, "policy": kvviz.policies.ideal}
    names |= {"graph": graph, "inputs": inputs, "trace": trace}
    exec(fix.code, names)
    again: Any = names["trace"]
    assert again is not trace and again.peak_bytes == fix.apply().peak_bytes <= report.other_order.bytes


def test_an_order_that_needs_nearly_as_much_is_not_told() -> None:
    assert explained(breadth_first(1)).other_order is None
    assert explained(breadth_first(10), "rten").other_order is None


def test_a_trace_that_was_loaded_is_told_the_same(tmp_path: Any) -> None:
    report = explained(breadth_first(10))
    report.trace.save(tmp_path / "trace")
    again = kvviz.explain(kvviz.Trace.load(tmp_path / "trace")).other_order
    assert report.other_order is not None and again is not None
    assert (again.name, again.bytes, str(again)) == (
        report.other_order.name,
        report.other_order.bytes,
        str(report.other_order),
    )


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(example=examples(), policy=st.sampled_from(["ideal", "never"]))
def test_no_promise_is_broken_on_random_graphs_however_little_is_saved(example: Example, policy: str) -> None:
    trace = kvviz.run(kvviz.load(example.model), feeds(example), donate=example.donate, policy=policy)
    assert_kept(trace)


def test_no_promise_is_broken_on_bodies_inside_bodies() -> None:
    for seed in range(80):
        proto, inputs, donate = nested(seed)
        fresh = {name: array.copy() for name, array in inputs.items()}
        assert_kept(kvviz.run(kvviz.load(proto), fresh, donate=donate))


def assert_kept(trace: kvviz.Trace) -> None:
    """Whatever is promised, even if it is no better than what was, holds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lower_peak, "_MUCH", 1e9)
        patch.setattr(lower_peak, "_WORTH", -1e9)
        other = kvviz.explain(trace).other_order
    if other is not None:
        after = other.fix.apply()
        assert after.peak_bytes <= other.bytes and same_results(trace, after)
