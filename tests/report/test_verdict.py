"""The verdict: its figures are those of the trace, and what a change is said to save is what those steps then save."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.explain.cache_findings import copying_steps
from kvviz.report.verdict import Verdict
from kvviz.trace.value_index import index_of
from tests.explain.applying import step_like
from tests.graph.build import model, node
from tests.test_models import DECODERS, graph_of, reference


def decoded(name: str, policy: str = "ideal", **options: Any) -> kvviz.Trace:
    ref = reference(name)
    inputs = {}
    if "encoder.out.last_hidden_state" in ref:
        inputs["encoder_hidden_states"] = ref["encoder.out.last_hidden_state"]
    return kvviz.decode(graph_of(name), ref["prompt"].tolist(), 5, inputs, policy=policy, progress=False, **options)


def told(trace: kvviz.Trace) -> dict[str, Verdict]:
    return {one.kind: one for one in reversed(kvviz.explain(trace).verdict)}


def past_copied(trace: kvviz.Trace) -> int:
    return sum(trace.steps[step].copied for _, step, _ in copying_steps(index_of(trace)))


@pytest.mark.parametrize("policy", ["ideal", "never"])
@pytest.mark.parametrize("name", DECODERS)
def test_the_change_for_copied_pasts_saves_what_it_is_said_to_at_those_steps(name: str, policy: str) -> None:
    # given
    trace = decoded(name, policy)
    found = told(trace).get("copied")
    # when there is a past that is copied, and a change
    if found is None:
        assert past_copied(trace) == 0
        return
    assert found.bytes == past_copied(trace) <= trace.bytes_copied
    assert found.fix is not None and found.saves is not None and found.left is None
    after = found.fix.apply()
    # then
    assert past_copied(after) == 0
    saved, times = found.saves
    pairs = [
        (trace.log[step], after.log[step_like(trace, after, step)]) for _, step, _ in copying_steps(index_of(trace))
    ]
    assert times == len(pairs) and saved == sum(row.allocated - there.allocated for row, there in pairs)
    assert after.tokens == trace.tokens and after.bytes_copied <= trace.bytes_copied - found.bytes


@pytest.mark.parametrize("name", DECODERS)
def test_every_figure_leads_to_a_step_that_has_it(name: str) -> None:
    # given
    trace = decoded(name)
    for one in kvviz.explain(trace).verdict:
        # then
        assert one.text == "".join(text for text, _ in one.parts)
        if one.step is not None and one.selection is not None and one.selection[0] == "node":
            assert trace.steps[one.step].node == one.selection[1]
        if one.kind == "peak":
            assert one.bytes == trace.peak_bytes and one.step is not None
            assert trace.log[one.step].live == trace.peak_bytes
        if one.kind == "miss":
            assert one.step is not None and trace.steps[one.step].decision.blockers
        if one.kind == "cache":
            assert one.selection is not None and one.selection[1] in [cache.input for cache in trace.caches]


def test_a_change_that_helps_one_of_two_layers_is_not_said_to_remove_all() -> None:
    # given two ops that are alike, each of which is read once more by another op
    nodes = []
    for layer in (0, 1):
        nodes.append(node("Relu", "x" if not layer else "add0", f"h{layer}", name=f"/layers.{layer}/Relu"))
        nodes.append(node("Neg", f"h{layer}", f"n{layer}", name=f"/layers.{layer}/Neg"))
        nodes.append(node("Mul", f"h{layer} n{layer}", f"add{layer}", name=f"/layers.{layer}/Mul"))
    graph = kvviz.load(model(nodes, ["x float 64"], ["add1 float 64"]))
    trace = kvviz.run(graph, {"x": np.ones(64, np.float32)}, donate=["x"])
    # when
    report = kvviz.explain(trace)
    miss = told(trace)["miss"]
    # then
    assert str(report.groups[0]) == "Neg × 2 layers: 512 B" and report.groups[0].layers == (0, 1)
    assert miss.text == "biggest miss Neg × 2 layers: 512 B" and miss.fix is None


def test_nothing_to_gain_is_said_as_plainly() -> None:
    # given an op that runs in place
    graph = kvviz.load(model([node("Relu", "x", "y")], ["x float 64"], ["y float 64"]))
    # when
    free, bound = (kvviz.run(graph, {"x": np.ones(64, np.float32)}, donate=donate) for donate in (["x"], []))
    # then
    assert told(free)["nothing"].text == "nothing to gain: every op that could run in place did"
    # and where it may not, the change that lets it
    assert "nothing" not in told(bound)
    assert told(bound)["miss"].change == "donate x (saves 256 B at this step)"
    after = told(bound)["miss"].fix
    assert after is not None and after.apply().bytes_allocated == 0


def test_bytes_of_one_op_that_keeps_two_pasts_are_counted_once() -> None:
    trace = decoded("storyteller/gqa")
    attention = [step for step in trace.steps if step.op_type == "GroupQueryAttention"]
    assert told(trace)["copied"].bytes == sum(step.copied for step in attention) > 0


def test_the_report_and_its_data_begin_with_the_verdict() -> None:
    report = kvviz.explain(decoded("o01_optimum_llama"))
    text = repr(report)
    assert text.index("verdict: peak ") < text.index("missed in place")
    assert all(str(one) in text for one in report.verdict)
    assert [one["text"] for one in report.to_dict()["verdict"]] == [one.text for one in report.verdict]
    assert all(one.text in report._repr_html_() for one in report.verdict)
