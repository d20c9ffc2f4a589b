"""Findings: their figures are those of the trace, and what a change is said to save is what those steps then save."""

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import kvviz
from kvviz.explain.cache_findings import copying_steps
from kvviz.report.faces.report_text import CURED
from kvviz.report.finding import Finding, query_of_steps
from kvviz.trace.index.value_index import index_of
from tests.explain.applying import step_like
from tests.graph.build import model, node
from tests.test_models import DECODERS, graph_of, reference


def decoded(name: str, policy: str = "ideal", **options: Any) -> kvviz.Trace:
    ref = reference(name)
    inputs = {}
    if "encoder.out.last_hidden_state" in ref:
        inputs["encoder_hidden_states"] = ref["encoder.out.last_hidden_state"]
    return kvviz.decode(graph_of(name), ref["prompt"].tolist(), 5, inputs, policy=policy, progress=False, **options)


def by_kind(trace: kvviz.Trace) -> dict[str, Finding]:
    return {one.kind: one for one in reversed(kvviz.explain(trace).verdict)}


def past_copied(trace: kvviz.Trace) -> int:
    return sum(trace.steps[step].copied for _, step, _ in copying_steps(index_of(trace)))


@pytest.mark.parametrize("policy", ["ideal", "never"])
@pytest.mark.parametrize("name", DECODERS)
def test_the_change_for_copied_pasts_saves_what_it_is_said_to_at_those_steps(name: str, policy: str) -> None:
    trace = decoded(name, policy)
    found = by_kind(trace).get("copied")
    if found is None:
        assert past_copied(trace) == 0
        return
    assert found.bytes == past_copied(trace) <= trace.bytes_copied
    assert found.cure is not None and found.cure.saves is not None and found.cure.left is None
    after = found.cure.fix.apply()
    assert past_copied(after) == 0
    saved, times = found.cure.saves
    pairs = [
        (trace.log[step], after.log[step_like(trace, after, step)]) for _, step, _ in copying_steps(index_of(trace))
    ]
    assert f"at {'this step' if times == 1 else f'these {times:,} steps'}" in found.change
    assert times == len(pairs) and saved == sum(row.allocated - there.allocated for row, there in pairs)
    assert after.tokens == trace.tokens and after.bytes_copied <= trace.bytes_copied - found.bytes


@pytest.mark.parametrize("name", DECODERS)
def test_every_figure_leads_to_a_step_that_has_it(name: str) -> None:
    trace = decoded(name)
    found = kvviz.findings(trace)
    for one in found:
        assert one.steps == len(one.at)
        if one.query:
            assert sorted(trace.find(one.query).numbers) == sorted(one.at)
        if one.step is not None and one.selection is not None and one.selection[0] == "node":
            assert trace.steps[one.step].node == one.selection[1]
        if one.kind == "peak":
            assert one.bytes == trace.peak_bytes and one.step is not None
            assert trace.log[one.step].live == trace.peak_bytes
        if one.kind == "miss":
            assert one.step == one.at[0] or trace.steps[one.at[0]].decision.blockers
            spent = [max(trace.steps[step].allocated, trace.steps[step].copied) for step in one.at]
            assert sum(spent) == one.bytes and spent == sorted(spent, reverse=True)
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
    report = kvviz.explain(trace)
    miss = by_kind(trace)["miss"]
    assert str(report.groups[0]) == "Neg × 2 layers: 512 B" and report.groups[0].layers == (0, 1)
    assert miss.title == "Neg cannot overwrite its input: Mul reads it later" and miss.bytes == 512
    assert miss.where == "Neg × 2 layers" and miss.fix is None


def test_nothing_to_gain_is_said_as_plainly() -> None:
    graph = kvviz.load(model([node("Relu", "x", "y")], ["x float 64"], ["y float 64"]))
    free, bound = (kvviz.run(graph, {"x": np.ones(64, np.float32)}, donate=donate) for donate in (["x"], []))
    assert by_kind(free)["nothing"].title == "nothing to gain: every op that could run in place did"
    assert "nothing" not in by_kind(bound)
    assert by_kind(bound)["miss"].change == "donate x (saves 256 B at this step)"
    after = by_kind(bound)["miss"].fix
    assert after is not None and after.apply().bytes_allocated == 0


def test_an_op_that_keeps_two_pasts_is_counted_once_and_a_past_that_is_always_copied_leads_to_its_ops() -> None:
    trace = decoded("storyteller/gqa")
    attention = [step for step in trace.steps if step.op_type == "GroupQueryAttention"]
    assert by_kind(trace)["copied"].bytes == sum(step.copied for step in attention) > 0
    trace = kvviz.decode(graph_of("o01_optimum_llama"), [5, 17, 33], 3, policy="onnxruntime")
    (found,) = (one for one in kvviz.findings(trace) if one.title.startswith("past copied"))
    pasts = {cache.input for cache in trace.caches}
    copies = [step.index for step in trace.steps if pasts & set(step.inputs) and step.copied]
    assert copies and list(found.at) == copies and found.step == copies[0]


def test_all_faces_of_the_report_have_the_same_findings_in_the_same_words() -> None:
    report = kvviz.explain(decoded("o01_optimum_llama"))
    text, html = " ".join(repr(report).split()), report._repr_html_()
    assert text.index("findings:") < text.index("prefill")
    assert all(one.change in text for one in report.findings[:CURED])
    for one in report.findings[:8]:
        assert one.title in text and one.where in text
        assert one.title in html and one.where in html and one.change in html
    assert [one["title"] for one in report.to_dict()["findings"]] == [one.title for one in report.findings]
    assert set(report.verdict) <= set(report.findings)
    table = repr(report.findings)
    assert all(one.title in table for one in report.findings)


def test_what_endangers_results_comes_before_what_costs_memory_and_calm_findings_last() -> None:
    # given a window whose oldest rows are overwritten while they are still attended to, and a trace without a fault
    for name in ("storyteller/tensor_scatter", "o01_optimum_llama", "storyteller/gqa"):
        found = kvviz.findings(decoded(name))
        costs = [one.bytes for one in found if one.kind in ("copied", "miss")]
        assert costs == sorted(costs, reverse=True)
        assert [one.calm for one in found] == sorted(one.calm for one in found)


def test_making_the_list_tries_no_change_where_something_is_to_be_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = decoded("o01_optimum_llama")
    tried: list[Any] = []
    monkeypatch.setattr(import_module("kvviz.report.findings"), "fix_for", lambda *given: tried.append(given))
    monkeypatch.setattr(import_module("kvviz.report.diagnosis"), "lower_peak", lambda index: tried.append(index))
    found = kvviz.findings(trace)
    assert [one.title for one in found] and not tried
    assert found[0].fix is None and tried


def test_a_name_that_no_query_can_quote_gives_the_steps_by_number_where_that_is_short() -> None:
    assert query_of_steps([9, 3, 8, 7]) == "step:3|7..9"
    assert query_of_steps(range(0, 100_000, 2)) == "" and query_of_steps([]) == ""
    nodes = [node("Relu", "x", "h"), node("Neg", "h", "n", name='say "no"'), node("Mul", "h n", "y")]
    graph = kvviz.load(model(nodes, ["x float 64"], ["y float 64"]))
    trace = kvviz.run(graph, {"x": np.ones(64, np.float32)}, donate=["x"])
    found = by_kind(trace)["miss"]
    assert found.query == "step:1" and trace.find(found.query).numbers == found.at


def test_of_many_ops_with_one_cause_the_first_is_named_and_the_others_are_counted() -> None:
    ops = ["Relu", "Neg", "Abs", "Exp"]
    nodes = [node(op, f"x{i}", f"y{i}") for i, op in enumerate(ops)]
    for many, named in ((3, "Relu, Neg and Abs"), (4, "Relu and 3 other ops")):
        sides = ([f"{side}{i} float 64" for i in range(many)] for side in "xy")
        trace = kvviz.run(
            kvviz.load(model(nodes[:many], *sides)), {f"x{i}": np.ones(64, np.float32) for i in range(many)}
        )
        title = by_kind(trace)["miss"].title
        assert title == f"{named} cannot overwrite their input: borrowed from the caller"


def test_the_list_of_a_recording_with_few_kept_runs_has_the_order_of_the_whole_one() -> None:
    graph = kvviz.load("assets/models/storyteller/concat/model.onnx")
    whole, few = (kvviz.decode(graph, [1, 5, 9], 96, detail=detail, progress=False) for detail in (None, range(40, 56)))
    long, short = ([one for one in kvviz.findings(trace) if one.kind in ("copied", "miss")] for trace in (whole, few))
    # the first five: below them are kinds of ops that cost as much as another
    assert [one.title for one in short[:5]] == [one.title for one in long[:5]]
    assert long[0].kind == "miss" and short[0].bytes < short[1].bytes == long[1].bytes
