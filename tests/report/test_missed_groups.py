"""Missed ops by kind: sums are those of the members, and the grouping is the one that names give away."""

import re
from collections import defaultdict

import pytest

import kvviz
from kvviz.report.finding_groups import place_of
from kvviz.smollm2 import convert
from tests.report.test_findings import decoded
from tests.smollm2.tiny import Tiny, write_tiny
from tests.test_models import DECODERS

POLICIES = ["ideal", "never", "rten", "onnxruntime"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", DECODERS)
def test_every_missed_node_is_in_one_group_and_the_sums_are_those_of_its_members(name: str, policy: str) -> None:
    trace = decoded(name, policy)
    report = kvviz.explain(trace)
    members = [entry for group in report.groups for entry in group.entries]
    assert sorted(map(id, members)) == sorted(map(id, report.missed))
    for group in report.groups:
        for total in ("bytes", "allocated", "copied"):
            assert getattr(group, total) == sum(getattr(entry, total) for entry in group.entries)
        assert group.times == sum(len(entry.steps) for entry in group.entries)
        assert group.runs == tuple(sorted({trace.steps[s].run for e in group.entries for s in e.steps}))
        assert group.bytes == max(group.bytes, group.worst.bytes) and group.entries[0] is group.worst
        # one layer has an op of this role once in each body
        where = [(place_of(trace, trace.log[e.step]).layer, e.frame) for e in group.entries]
        assert len(set(where)) == len(where)
    assert [group.bytes for group in report.groups] == sorted((g.bytes for g in report.groups), reverse=True)


@pytest.mark.parametrize("name", ["o01_optimum_llama", "o02_optimum1_merged_gpt2", "storyteller/concat"])
def test_where_names_count_layers_only_the_groups_are_those_of_the_names(name: str) -> None:
    # given an exporter whose names are alike in all layers but for the layer's number
    trace = decoded(name)
    report = kvviz.explain(trace)
    naive: dict[tuple[object, ...], int] = defaultdict(int)
    for entry in report.missed:
        codes = frozenset(str(blocker.code) for blocker in entry.blockers)
        naive[entry.frame, re.sub(r"(layers|h)\.\d+", "layer", entry.node), codes] += entry.bytes
    assert sorted(naive.values()) == sorted(group.bytes for group in report.groups)


def test_a_model_of_thirty_layers_is_reported_in_at_most_twenty_kinds(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("thirty")
    convert(folder / "model", "concat", write_tiny(folder / "tiny.gguf", Tiny(layers=30)))
    trace = kvviz.decode(kvviz.load(folder / "model" / "model.onnx"), [5, 17, 33, 9], 4, progress=False)
    report = kvviz.explain(trace)
    assert len(report.missed) > 300 and len(report.groups) <= 20
    worst = report.groups[0]
    assert worst.layers == tuple(range(30)) and str(worst).startswith(f"{worst.op_type} × 30 layers × 4 tokens: ")
    assert len(report.findings) <= 20
    assert any("× 30 layers × 4 tokens" in one.where for one in report.findings)
