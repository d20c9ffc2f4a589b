"""The report says what the trace says, fits on a screen, and goes through JSON unharmed."""

import json
import re
from html import escape

import numpy as np
import pytest

import kvviz
from kvviz.caches.cache_warnings import cache_warnings
from kvviz.explain.retention import peak
from kvviz.explain.summary import counts, missed
from kvviz.report.explain import explain
from kvviz.report.faces.report_html import report_html
from kvviz.report.finding_groups import held_groups
from kvviz.trace.units import size
from tests.decode.small import ROWS, tensor_scatter
from tests.engine.graphs import graph_of
from tests.graph.build import model, node
from tests.test_models import graph_of as model_of
from tests.view.conftest import Html


def block(text: str, start: str) -> list[str]:
    """The lines of the part of a report that begins with these words."""
    return next(part for part in text.split("\n\n") if part.startswith(start)).split("\n")


def test_a_report_fits_on_a_screen_whatever_the_names_are(trace: kvviz.Trace) -> None:
    lines = repr(explain(trace)).split("\n")
    assert 3 < len(lines) <= 50
    assert max(map(len, lines)) <= 160
    assert all(line.isprintable() for line in lines)


def test_the_data_is_json_and_has_the_trace_s_own_numbers(trace: kvviz.Trace) -> None:
    data = json.loads(json.dumps(kvviz.explain(trace).to_dict()))
    assert data["steps"] == len(trace.steps) == sum(run["steps"] for run in data["runs"])
    # of a run whose steps were not kept only the totals are there
    bare = [run for run in data["runs"] if not run["kept"]]
    totals = data["totals"]
    for name in ("allocated", "written", "copied"):
        spent = sum(getattr(step, name) for step in trace.steps) + sum(run[f"bytes_{name}"] for run in bare)
        assert totals[f"bytes_{name}"] == spent
    assert totals["peak_bytes"] == trace.peak_bytes
    assert totals["bytes_moved_outside"] == sum(run["bytes_moved_outside"] for run in data["runs"])
    assert data["runs_kept"] == len(data["runs"]) - len(bare) > 0
    assert sum(data["peak"]["groups"].values()) == trace.peak_bytes
    assert len(data["held_too_long"]) == len(explain(trace).held_too_long)
    assert sum(part["bytes"] for part in data["peak"]["parts"]) == trace.peak_bytes
    assert sum(entry["bytes"] for entry in data["missed"]) == data["in_place"]["missed_bytes"]
    assert [len(cache["runs"]) for cache in data["caches"]] == [len(cache.runs) for cache in trace.caches]
    assert data["tokens"] == trace.tokens


def test_the_first_lines_tell_the_model_and_the_totals(copying: kvviz.Trace) -> None:
    first, second, third = repr(explain(copying)).split("\n")[:3]
    assert f"{len(copying.graph.nodes)} nodes" in first
    assert "opset 18" in first
    assert first.endswith("policy ideal")
    steps, runs = f"{len(copying.steps):,} steps", f"{len(copying.runs)} runs"
    assert second.startswith(f"{steps} in {runs}: peak {size(copying.peak_bytes)}, ")
    told = [int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", third)]
    assert sum(told) == len(copying.steps)


def test_runs_are_listed_with_their_tokens_and_of_many_the_first_and_the_last_ones(decoded: kvviz.Trace) -> None:
    lines = block(repr(explain(decoded)), "run ")
    assert len(lines) == 1 + len(decoded.runs)
    for run, line in zip(decoded.runs, lines[1:]):
        assert f"{run.token} {run.text!r}" in line and size(run.peak_bytes) in line
    lines = block(repr(explain(kvviz.decode(model_of("o05_dynamo_llama_op23"), [3, 1], 9))), "run ")
    assert [line.split("  ")[0] for line in lines[1:]] == ["prefill", "… 6 rows …", "decode 7", "decode 8"]


def test_where_steps_of_some_runs_were_kept_the_head_says_of_how_many_and_whose_the_bytes_are(
    sparse: kvviz.Trace,
) -> None:
    _, second, third = repr(explain(sparse)).split("\n")[:3]
    kept = [run for run in sparse.runs if run.last > run.first]
    assert len(kept) == 9
    start = f"{len(sparse.steps):,} steps of 9 of 30 runs were kept; all 30 runs: peak {size(sparse.peak_bytes)}, "
    assert second.startswith(start + size(sum(run.bytes_allocated for run in sparse.runs)))
    assert third.endswith(", in the 9 runs whose steps were kept")
    lines = block(repr(explain(sparse)), "findings")
    assert lines[0].endswith(" kB, in the 9 runs whose steps were kept")
    # of past rows the meters of all runs know
    past = sum(run.bytes_copied for cache in sparse.caches for run in cache.runs)
    assert f"{size(past)} of past rows were copied in 29 runs" in " ".join(map(str.strip, lines))
    scopes = {"copied": "all 30 runs, steps of 9 kept", "miss": "9 runs whose steps were kept"}
    assert {one.kind: one.scope for one in kvviz.findings(sparse) if one.kind in scopes} == scopes
    lines = block(repr(explain(sparse)), "run ")
    assert [re.split(r"\s{2,}", line)[0] for line in lines[1:]] == [
        "prefill",
        *("decode 3", "decode 6", "decode 9"),
        "… 4 more with steps …",
        *("decode 24", "decode 29"),
        "20 others",
    ]
    others = [run for run in sparse.runs[:-1] if run.last == run.first]
    told = re.split(r"\s{2,}", lines[-1])
    sums = [size(sum(getattr(run, f"bytes_{name}") for run in others)) for name in ("allocated", "written", "copied")]
    assert told == ["20 others", "not kept", size(max(run.peak_bytes for run in others)), *sums]
    assert "not kept" in lines[-2] and size(sparse.runs[-1].bytes_allocated) in lines[-2]
    # a peak in a run without steps is said to be there
    found = peak(sparse)
    assert found.step is None and sparse.runs[found.run or 0].peak_bytes == found.bytes
    assert sum(found.groups.values()) == found.bytes and set(found.groups) == {"weights", "not recorded"}
    head, _, third, *_ = block(repr(explain(sparse)), "peak")
    assert head == f"peak: {size(sparse.peak_bytes)} in decode 29, whose steps were not kept"
    highest = max(sparse.steps, key=lambda step: step.live_bytes)
    words = f"of the steps that were kept: {size(highest.live_bytes)} at step {highest.index:,} of "
    assert third.strip().startswith(words)


def test_warnings_about_caches_are_told_once_and_those_first_that_make_results_wrong(copying: kvviz.Trace) -> None:
    early = [node("Identity", "write_indices", "nonpad_kv_seqlen")]
    trace = tensor_scatter("linear", ROWS, early)
    decoded = kvviz.decode(kvviz.load(trace.proto), [3, 7, 1, 9], 6, policy="never", progress=False, **trace.options)
    kinds = [warning.kind for warning in cache_warnings(decoded)]
    assert kinds.count("newest row not attended") == 2 and "past copied" in kinds
    found = explain(decoded).caches
    assert [one.kind for one in found] == ["newest row not attended", "past copied"]
    first = next(w for w in cache_warnings(decoded) if w.kind == "newest row not attended")
    assert found[0].sentence == f"{first.sentence} (so with 1 other cache)" and len(found[0].caches) == 2
    assert " and 1 other cache, from run " in kvviz.findings(decoded)[0].title
    assert escape(first.sentence, quote=True) in report_html(explain(decoded))
    # and what a finding says with its fix no warning says again
    assert {warning.kind for warning in cache_warnings(copying)} == {"past copied"}
    assert [one.kind for one in explain(copying).caches] == ["copied"]


def test_the_findings_begin_with_what_missed_ops_spent_and_give_an_example_of_the_first(copying: kvviz.Trace) -> None:
    numbers = counts(copying)
    spent, cannot = size(sum(entry.bytes for entry in missed(copying))), size(numbers.cannot_bytes)
    head, *lines = block(repr(explain(copying)), "findings")
    assert head == f"findings: missed ops spent {spent}; ops that cannot by kind spent {cannot}"
    text = " ".join(map(str.strip, lines))
    for one in kvviz.findings(copying)[:3]:
        assert one.example.partition(": ")[0] in text and one.where in text
    # an example is the sentence of the step that costs most
    for one in kvviz.findings(copying):
        if one.kind == "miss" and one.example:
            assert one.step is not None
            messages = [blocker.message for blocker in copying.steps[one.step].decision.blockers]
            assert one.example.removeprefix(f"step {one.step:,}: ") in messages


def test_what_was_held_too_long_is_a_finding_and_outputs_need_no_action(branching: kvviz.Trace) -> None:
    groups = held_groups(branching, explain(branching).held_too_long)
    assert len(groups) > 3
    found = [one for one in kvviz.findings(branching) if one.kind == "held"]
    assert {(one.bytes, one.example) for one in found} == {
        (sum(one.bytes for one in group), group[0].reason) for group in groups[:4]
    }
    assert all(one.calm == ("caller asked for" in one.example) for one in found)


def test_the_peak_is_told_with_its_step_and_its_largest_storages_and_every_cache(decoded: kvviz.Trace) -> None:
    found = peak(decoded)
    assert found.step is not None
    head, *lines = block(repr(explain(decoded)), "peak")
    assert head.startswith(f"peak: {size(found.bytes)} at step {found.step:,} of {len(decoded.steps):,} (")
    assert decoded.steps[found.step].node in head
    largest = next(part for part in found.parts if part.origin != "weights")
    assert lines[0].split(", ")[0].strip() == f"weights {size(found.groups['weights'])}"
    assert f"B{largest.storage} {largest.name}" in lines[1]
    lines = block(repr(explain(decoded)), "cache ")
    assert len(lines) == 1 + len(decoded.caches)
    for cache, line in zip(decoded.caches, lines[1:]):
        rows = f"{cache.runs[0].valid} … {cache.runs[-1].valid}"
        written = f"{size(cache.runs[0].bytes_written)} … {size(cache.runs[-1].bytes_written)}"
        assert re.split(r"\s{2,}", line) == [cache.name, cache.protocol, "16", rows, "0 B … 0 B", written]


def test_where_a_run_was_interrupted_the_report_says_so() -> None:
    trace = kvviz.run(graph_of("g (float[4] x) => (float[4] y) { y = Relu(x) }"), {"x": np.ones(4, np.float32)})
    assert "stopped from the keyboard" not in repr(explain(trace))
    trace.interrupted = True
    assert "stopped from the keyboard" in repr(explain(trace))


def test_names_are_cut_and_reasons_never_are() -> None:
    # given ops with long names under a policy whose reasons are long, too
    long = "/model/decoder/layers.0/self_attn/a_rather_long_name_of_a_value_as_exporters_make_them"
    nodes = [node("Exp", "x", f"{long}/{i}", name=f"exp{i}") for i in range(3)]
    nodes += [node("Relu", f"{long}/{i}", f"{long}/relu/{i}", name=f"{long}/Relu_{i}") for i in range(3)]
    nodes.append(node("Concat", " ".join(f"{long}/relu/{i}" for i in range(3)), "y", axis=0))
    loaded = kvviz.load(model(nodes, ["x float ?"], ["y float ?"]))
    trace = kvviz.run(loaded, {"x": np.ones(9, np.float32)}, policy="onnxruntime")
    found = explain(trace)
    reasons = [blocker.message.partition(": ")[2] for entry in found.missed for blocker in entry.blockers]
    assert len(reasons) >= 3 and all("neither a number nor a name" in reason for reason in reasons)
    lines = repr(explain(trace)).split("\n")
    assert max(map(len, lines)) <= 118
    for told in (" ".join(" ".join(lines).split()), report_html(found)):
        assert "neither a number nor a name" in told and "plans before it runs" in told
        assert "/model/decoder/layers.0" in told and long not in told


def test_what_cannot_run_in_place_by_kind_is_told_with_its_bytes() -> None:
    # given two runtimes, of which only one can append
    graph = graph_of(
        "g (float[n,4] past, float[1,4] new) => (float[m,4] present) { present = Concat <axis = 0> (past, new) }"
    )
    inputs = {"past": np.ones((7, 4), np.float32), "new": np.ones((1, 4), np.float32)}
    compared = kvviz.compare(graph, inputs, policies=["ideal", "onnxruntime"])
    able, unable = compared.rows
    assert (able.missed, able.missed_bytes, able.cannot_bytes) == (1, 128, 0)
    assert (unable.missed, unable.missed_bytes, unable.cannot, unable.cannot_bytes) == (0, 0, 1, 128)
    assert "by what cannot" in str(compared) and "128 B" in str(compared).split("\n")[2]
    assert "ops that cannot by kind spent 128 B" in repr(explain(compared["onnxruntime"]))
    assert "cannot, which spent 128 B" in report_html(explain(compared["onnxruntime"]))


def test_the_report_is_html_of_its_own_without_scripts(trace: kvviz.Trace) -> None:
    text = report_html(explain(trace))
    page = Html(text)
    assert page.nested and not page.open and len(text) < 20_000
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
    told = " ".join(text for tag, _, text in Html(report_html(report)).texts if tag != "style")
    assert f"Findings: missed ops spent {size(report.counts.missed_bytes)}; " in told
    assert f"Peak: {size(copying.peak_bytes)} at step {report.peak.step:,}" in told
    fix = next(one.fix for one in report.findings if one.fix is not None)
    assert f"fix: {fix.label}" in told and fix.sentence in told and fix.code in told


@pytest.mark.parametrize("policy", ["ideal", "rten"])
def test_two_pasts_of_one_op_are_cured_by_two_changes_together_of_which_none_helps_alone(policy: str) -> None:
    graph = model_of("storyteller/gqa")
    trace = kvviz.run(graph, kvviz.inputs(graph), policy=policy)
    copied = next(one for one in kvviz.findings(trace) if one.kind == "copied")
    assert copied.cure is not None and copied.cure.about.startswith("None alone; these two together.")
    assert trace.bytes_copied - copied.cure.fix.apply().bytes_copied == copied.cure.fix.saves > 0
