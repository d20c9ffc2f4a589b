"""The policy `rten` on real models: it plans, dispatches and shares as rten itself did, in every recorded run."""

from __future__ import annotations

import onnx
import pytest

from kvviz.errors import LoadError
from kvviz.verification.rten_recording import read_recording
from tests.engine.rten.check import assert_like_rten
from tests.engine.rten.records import DATA, MODELS, UNLOADED, Recording, models, recordings

RUNS = [recording for name in models() for recording in recordings(name)]


@pytest.mark.parametrize("recording", RUNS, ids=lambda recording: recording.id)
def test_a_model_runs_as_it_ran_in_rten(recording: Recording) -> None:
    assert_like_rten(recording)


@pytest.mark.parametrize("name", [name for name in models() if recordings(name)])
def test_the_recorded_ops_are_the_nodes_of_the_model(name: str) -> None:
    nodes = _nodes(onnx.load(MODELS / name / "model.onnx", load_external_data=False).graph, "main")
    for recording in recordings(name):
        for op in recording.ops:
            node = nodes[op["path"], op["node_index"]]
            assert node.name == op["name"]
            assert [out["n"] for out in op["out"] if out] == [out for out in node.output if out][: len(op["out"])]


def test_a_model_that_rten_cannot_load_has_no_runs() -> None:
    assert {name for name in models() if not recordings(name)} == UNLOADED
    for name in UNLOADED:
        with pytest.raises(LoadError, match="has no run of rten"):
            read_recording(DATA / f"{name}.jsonl.gz")


def _nodes(graph: onnx.GraphProto, path: str) -> dict[tuple[str, int], onnx.NodeProto]:
    found = {(path, index): node for index, node in enumerate(graph.node)}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                found.update(_nodes(attribute.g, f"{path}/{node.name}[{attribute.name}]"))
    return found
